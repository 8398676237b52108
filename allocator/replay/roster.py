"""The workloads of the next snapshot, kept in order."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from allocator.domain import Workload


class Roster:
    """Workloads by id; a change costs little, however many there are."""

    def __init__(self) -> None:
        self.works: dict[str, Workload] = {}
        self._ids: list[str] = []
        self.num_running = 0

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[Workload]:
        return (self.works[key] for key in self._ids)

    def put(self, work: Workload) -> None:
        """Add a workload, or replace the one of that id."""
        before = self.works.get(work.id)
        if before is None:
            insort(self._ids, work.id)
        else:
            self.num_running -= before.run is not None
        self.num_running += work.run is not None
        self.works[work.id] = work

    def drop(self, key: str) -> None:
        """Forget a workload."""
        self.num_running -= self.works.pop(key).run is not None
        del self._ids[bisect_left(self._ids, key)]

    def in_order(self) -> tuple[Workload, ...]:
        """All of them, by id."""
        return tuple(map(self.works.__getitem__, self._ids))
