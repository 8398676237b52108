"""An environment for commands whose lines need not be counted, because counting takes as long as running."""

from __future__ import annotations

import os


def uncounted() -> dict[str, str]:
    """The environment of this process without what makes its children count lines.

    For whole commands that are run to see what they print: other tests run through the same code and count it.
    """
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_PROCESS")}
