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

    def records(self, now: int) -> tuple[UsageRecord, ...]:
        """Records that give every allocation the usage it has at `now`."""
        if self._kept is not None:
            return tuple(self._kept)
        edge = now - self._window
        self._let_go(edge)
        used = dict(self._total)
        for end, gpus, key in self._leaving:
            used[key] = used.get(key, 0) + gpus * (end - edge)
        return tuple(self._record(key, amount, now) for key, amount in sorted(used.items()) if amount)

    def _let_go(self, edge: int) -> None:
        """Sort out what begins to leave the window, and what has left it."""
        while self._inside and self._inside[0][0] < edge:
            start, _, end, gpus, key = heappop(self._inside)
            self._total[key] -= gpus * (end - start)
            self._leaving.append((end, gpus, key))
        self._leaving = [row for row in self._leaving if row[0] > edge]

    def _record(self, key: _Key, amount: int, now: int) -> UsageRecord:
        end = now // _ANCHOR * _ANCHOR if self._window > 2 * _ANCHOR else now
        known = self._made.get(key)
        if known is None or known.gpus != amount or known.end != end:
            allocation, pool, charged = key
            known = UsageRecord(allocation=allocation, pool=pool, gpus=amount, start=end - 1, end=end, charged=charged)
            self._made[key] = known
        return known
