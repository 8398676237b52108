"""The usage inside the sliding window, kept up to date instead of counted anew."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from allocator.domain import Policy, UsageRecord

_Key = tuple[str, str, bool]
_ANCHOR = 3600
"""Sums are dated at the last full hour, so that those that have not changed are the same objects at the next decision."""


class UsageWindow:
    """Usage records for snapshots.

    With a hard window only the sum over it matters for each allocation, pool and kind, so one record of a second holds the
    exact sum. Where usage decays, the records themselves are kept.
    """

    def __init__(self, policy: Policy, history: Iterable[UsageRecord]) -> None:
        self._window = policy.window
        self._kept: list[UsageRecord] | None = None if policy.half_life is None else []
        self._total: dict[_Key, int] = {}
        self._inside: list[tuple[int, int, int, int, _Key]] = []
        self._leaving: list[tuple[int, int, _Key]] = []
        self._made: dict[_Key, UsageRecord] = {}
        self._stale: set[_Key] = set()
        self._dated = 0
        self._count = 0
        for record in history:
            self.add(record)

    def add(self, record: UsageRecord) -> None:
        """Take in what has ended; it must have ended by the next instant that is asked for."""
        if record.start >= record.end:
            return
        if self._kept is not None:
            self._kept.append(record)
            return
        key = (record.allocation, record.pool, record.charged)
        self._count += 1
        heappush(self._inside, (record.start, self._count, record.end, record.gpus, key))
        self._total[key] = self._total.get(key, 0) + record.gpus * (record.end - record.start)
        self._stale.add(key)

    def records(self, now: int) -> tuple[UsageRecord, ...]:
        """Records that give every allocation the usage it has at `now`."""
        if self._kept is not None:
            return tuple(self._kept)
        edge = now - self._window
        self._let_go(edge)
        part: dict[_Key, int] = {}
        for end, gpus, key in self._leaving:
            part[key] = part.get(key, 0) + gpus * (end - edge)
        dated = now // _ANCHOR * _ANCHOR if self._window > 2 * _ANCHOR else now
        for key in self._total if dated != self._dated else (*self._stale, *part):
            self._make(key, part.get(key, 0), dated)
        self._dated = dated
        self._stale = set(part)  # what is leaving is less at the next instant, or gone
        return tuple(self._made.values())

    def _let_go(self, edge: int) -> None:
        """Sort out what begins to leave the window, and what has left it."""
        while self._inside and self._inside[0][0] < edge:
            start, _, end, gpus, key = heappop(self._inside)
            self._total[key] -= gpus * (end - start)
            self._leaving.append((end, gpus, key))
            self._stale.add(key)
        self._leaving = [row for row in self._leaving if row[0] > edge]

    def _make(self, key: _Key, leaving: int, dated: int) -> None:
        """The record of a key: of the second before `dated`, with all that is in the window."""
        allocation, pool, charged = key
        gpus = self._total[key] + leaving
        if gpus == 0:
            self._made.pop(key, None)
            return
        self._made[key] = UsageRecord(allocation=allocation, pool=pool, gpus=gpus, start=dated - 1, end=dated, charged=charged)
