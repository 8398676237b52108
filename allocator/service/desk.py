"""Who is let in: a place for each call that is worked on or waits, and not all of them for one client."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from allocator.service.problems import Kind, RefusedError
from allocator.service.settings import Settings

MOST_RETRY_SECONDS = 60

_FADE = 0.9
"""How much of the mean duration of a call survives one more."""


class Desk:
    """Counts calls. A call is let in before its body is read, so that the bodies in memory are bounded."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._by_client: Counter[str] = Counter()
        self._mean_seconds = 1.0

    @property
    def taken(self) -> int:
        """Calls that are worked on or wait."""
        return self._by_client.total()

    @contextmanager
    def place(self, client: str) -> Iterator[None]:
        """A place for one call of a client.

        Raises
        ------
        RefusedError
            If the client has too many calls underway (429), or all places are taken (503).
        """
        if self._by_client[client] >= self._settings.per_client:
            detail = f"at most {self._settings.per_client} calls at once: wait for one of them to end"
            raise RefusedError(Kind.TOO_MANY, detail, headers=self.retry_after())
        if self.taken >= self._settings.workers + self._settings.queue:
            raise RefusedError(Kind.BUSY, "all places are taken: try again later", headers=self.retry_after())
        self._by_client[client] += 1
        try:
            yield
        finally:
            self._by_client[client] -= 1
            if not self._by_client[client]:
                del self._by_client[client]

    def note_duration(self, seconds: float) -> None:
        """Learn how long a call kept a worker busy."""
        self._mean_seconds = _FADE * self._mean_seconds + (1 - _FADE) * seconds

    def retry_after(self) -> dict[str, str]:
        """When the calls that wait now will have been served, as a header: whole seconds, at least 1."""
        waiting = max(self.taken - self._settings.workers, 0) + 1
        seconds = math.ceil(waiting * self._mean_seconds / self._settings.workers)
        return {"retry-after": str(min(max(seconds, 1), MOST_RETRY_SECONDS))}
