"""Seeds in chunks, so that parallel workers share them, and far more of them in a long fuzz run."""

from __future__ import annotations

import os
from typing import Any

import pytest

FUZZ = os.environ.get("ALLOCATOR_FUZZ") == "1"
"""True in the long runs of `make fuzz` and `make soak`."""

LIMIT = 60.0
"""Seconds for one call. Far more than these instances need, so that a busy machine changes no answer."""


def chunks(usual: int, long: int, size: int) -> list[Any]:
    """Test parameters: the seeds below `usual`, or below `long` in a long fuzz run, `size` at a time.

    No lines are counted in them: the tests of single rules run through the same code.
    """
    count, mark = (long, pytest.mark.fuzz) if FUZZ else (usual, pytest.mark.slow)
    return [
        pytest.param(range(first, min(first + size, count)), id=f"{first}-{min(first + size, count) - 1}", marks=mark)
        for first in range(0, count, size)
    ]
