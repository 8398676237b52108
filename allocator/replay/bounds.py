"""Whether large gangs start within the bound that their reservation has stated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from allocator.domain import Decision, Workload
from allocator.replay.lives import Life


class BoundRow(NamedTuple):
    """A wait under a reservation. `bound` is the first one stated; `late` by how many seconds the start missed it, a tick
    of grace allowed; `start` is None if the end of the replay came first."""

    job: str
    eligible_since: int
    bound: int
    last_bound: int
    start: int | None
    late: int


class Bounds:
    """Keeps the bounds stated in decisions until the gang starts."""

    def __init__(self, tick: int) -> None:
        self._tick = tick
        self._stated: dict[str, tuple[int, int, int]] = {}
        self.rows: list[BoundRow] = []

    def see(self, decision: Decision, works: Mapping[str, Workload]) -> None:
        """Note what a decision reserves, and what it starts; `works` is the work after it.

        A gang that needs no reservation for a while keeps its bound. One that has lost its claim, so that its mark
        `entitled_since` is gone, has lost its bound; a later claim has a new one.
        """
        for start in decision.starts:
            self._met(start.workload, decision.now)
        reserved = {held.workload: held for held in decision.reservations}
        for key in [key for key in self._stated if key not in reserved]:
            if key not in works or works[key].entitled_since is None:
                del self._stated[key]
        for key, held in reserved.items():
            since, first, _ = self._stated.get(key, (held.eligible_since, held.bound, held.bound))
            if since != held.eligible_since:  # a new claim
                since, first = held.eligible_since, held.bound
            self._stated[key] = (since, first, held.bound)

    def close(self, lives: Mapping[str, Life], end: int) -> None:
        """What still waits at the end is late if its bound has passed."""
        for key, (since, bound, last) in sorted(self._stated.items()):
            if key in lives:
                self.rows.append(BoundRow(key, since, bound, last, None, max(0, end - bound - self._tick)))
        self._stated.clear()

    def _met(self, key: str, now: int) -> None:
        stated = self._stated.pop(key, None)
        if stated is not None:
            since, bound, last = stated
            self.rows.append(BoundRow(key, since, bound, last, now, max(0, now - bound - self._tick)))
