"""The garbage collector stands still while documents are read and epochs decided.

What is made there is freed by counting references, or lives until the end. Each pass of the collector looks at every workload:
with 320,000 of them that is a fifth of a call.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """No automatic collection in this block. Where blocks of several threads overlap, the first that ends may end the pause."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
