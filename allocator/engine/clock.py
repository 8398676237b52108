"""The time budget of one call."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Clock:
    """Measures the steps of a call and knows when the budget ends. Seconds of `time.monotonic`."""

    def __init__(self, time_limit: float) -> None:
        self._begun = time.monotonic()
        self.deadline = self._begun + time_limit
        self._steps: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Adds the time of a block to a step."""
        begun = time.monotonic()
        try:
            yield
        finally:
            self._steps[name] = self._steps.get(name, 0.0) + time.monotonic() - begun

    @property
    def elapsed(self) -> float:
        """Seconds since the call."""
        return time.monotonic() - self._begun

    @property
    def left(self) -> float:
        """Seconds until the deadline, perhaps negative."""
        return self.deadline - time.monotonic()

    def timing(self) -> dict[str, float]:
        """Seconds by step, and of the whole call under `total_seconds`."""
        return {"total_seconds": self.elapsed, **self._steps}
