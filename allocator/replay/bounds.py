"""Whether large gangs start within the bound that their reservation has stated."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import NamedTuple

from allocator.domain import Decision, Workload
from allocator.replay.lives import Life


class BoundRow(NamedTuple):
    """A wait under a reservation. `bound` is the first one stated, or the one that took its place when nodes had died; `late`
    by how many seconds the start missed it, a tick of grace allowed; `start` is None if the end of the replay came first."""

    job: str
    eligible_since: int
    bound: int
    last_bound: int
    start: int | None
    late: int


class _Stated(NamedTuple):
    """What decisions have said about a wait. `hit`: a node of the pool has been dead since the bound was last stated."""

    pool: str
    since: int
    bound: int
    last: int
    hit: bool


class Bounds:
    """Keeps the bounds stated in decisions until the gang starts."""

    def __init__(self, tick: int) -> None:
        self._tick = tick
        self._stated: dict[str, _Stated] = {}
        self.rows: list[BoundRow] = []

    def see(self, decision: Decision, works: Mapping[str, Workload], hit: Set[str] = frozenset()) -> None:
        """Note what a decision reserves, and what it starts; `works` is the work after it, `hit` the pools with dead nodes.

        A gang that needs no reservation for a while keeps its bound. One that has lost its claim, so that its mark
        `entitled_since` is gone, has lost its bound; a later claim has a new one. Bounds leave dead nodes apart: where there
        were any, a later bound takes the place of the one before.
        """
        for start in decision.starts:
            self._met(start.workload, decision.now)
        reserved = {held.workload: held for held in decision.reservations}
        for key in [key for key in self._stated if key not in reserved]:
            if key not in works or works[key].entitled_since is None:
                del self._stated[key]
        self._stated = {key: one._replace(hit=one.hit or one.pool in hit) for key, one in self._stated.items()}
        for key, held in reserved.items():
            new = _Stated(held.pool, held.eligible_since, held.bound, held.bound, held.pool in hit)
            known = self._stated.get(key, new)
            stands = known.since == new.since and not (known.hit and new.last > known.last)
            self._stated[key] = new._replace(bound=known.bound) if stands else new

    def close(self, lives: Mapping[str, Life], end: int) -> None:
        """What still waits at the end is late if its bound has passed."""
        for key, one in sorted(self._stated.items()):
            if key in lives:
                self.rows.append(BoundRow(key, one.since, one.bound, one.last, None, max(0, end - one.bound - self._tick)))
        self._stated.clear()

    def _met(self, key: str, now: int) -> None:
        one = self._stated.pop(key, None)
        if one is not None:
            self.rows.append(BoundRow(key, one.since, one.bound, one.last, now, max(0, now - one.bound - self._tick)))
