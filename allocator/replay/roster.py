"""The workloads of the next snapshot, kept in order."""

from __future__ import annotations

from bisect import bisect_left, insort

from allocator.domain import Workload


class Roster:
    """Workloads by id; a change costs little, however many there are.

    `num_running` counts those that run, `gpus_waiting` the GPUs that the others ask for.
    """

    def __init__(self) -> None:
        self.works: dict[str, Workload] = {}
        self._ids: list[str] = []
        self.num_running = 0
        self.gpus_waiting = 0

    def put(self, work: Workload) -> None:
        """Add a workload, or replace the one of that id."""
        before = self.works.get(work.id)
        if before is None:
            insort(self._ids, work.id)
        else:
            self._count(before, -1)
        self._count(work, 1)
        self.works[work.id] = work

    def drop(self, key: str) -> None:
        """Forget a workload."""
        self._count(self.works.pop(key), -1)
        del self._ids[bisect_left(self._ids, key)]

    def in_order(self) -> tuple[Workload, ...]:
        """All of them, by id."""
        return tuple(map(self.works.__getitem__, self._ids))

    def _count(self, work: Workload, sign: int) -> None:
        if work.run is None:
            self.gpus_waiting += sign * work.gpus
        else:
            self.num_running += sign
