"""The cluster as the baselines see it: what is free where, and placing and making room on it."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from allocator.domain import Cluster, Snapshot, Start, Workload
from allocator.replay.baselines.releases import Releases
from allocator.topology import BoolArray, IntArray, Layout, build_layout, can_place, shape_of, suitable, tasks_per_node
from allocator.topology.gang import WHOLE_POOL, group_nodes
from allocator.topology.layout import GPUS, NEVER
from allocator.topology.place import place_tasks, pool_order

DEFAULT_LIMIT = 240 * 3_600
"""Seconds that work without a time limit is expected to take: the longest limit that people choose."""

Placement = Mapping[int, int]
"""Tasks by node number."""


@dataclass(frozen=True, slots=True, eq=False)
class Resident:
    """Running work, and what it takes: amounts by resource of each of its nodes, shape (3, num_nodes). `releases`: when its
    limit gives that back."""

    work: Workload
    nodes: IntArray
    amounts: IntArray
    releases: Releases


class Yard:
    """Nodes with what is free on them, kept up to date from snapshot to snapshot.

    It holds nothing that does not follow from the last snapshot; a copy made by pickle begins anew.

    Attributes
    ----------
    layout
        The nodes as arrays.
    free
        GPUs, CPUs and GiB that no work takes, shape (3, num_nodes). A decision works on a copy.
    waiting, residents
        What waits, in the order of submission, and what runs, by id.
    ending
        What runs, in the order in which it ends by its limits, each as end and id.
    """

    layout: Layout
    free: IntArray

    def __init__(self) -> None:
        self.now = 0
        self.waiting: list[Workload] = []
        self.residents: dict[str, Resident] = {}
        self.ending: list[tuple[int, str]] = []
        self._queue: list[tuple[int, str]] = []
        self._seen: dict[str, Workload] = {}
        self._cluster: Cluster | None = None
        self._masks: dict[int, BoolArray] = {}
        self._groups: list[IntArray] = []
        self._wanted = False
        self._kinds: dict[tuple[object, ...], int] = {}
        self._kind: dict[str, int] = {}
        self._releases: Releases | None = None

    def __getstate__(self) -> dict[str, object]:
        """Nothing: all of it follows from the next snapshot."""
        return {}

    def __setstate__(self, state: dict[str, object]) -> None:
        """An empty yard."""
        Yard.__init__(self)

    def see(self, snapshot: Snapshot) -> None:
        """Take in the snapshot of this decision; only what is not as it was is looked at."""
        self.now = snapshot.now
        self._releases = None
        if snapshot.cluster is not self._cluster:
            self._rebuild(snapshot.cluster)
        works, seen = snapshot.workloads, self._seen
        for work in [work for work in works if seen.get(work.id) is not work]:
            self._forget(work.id)
            self._take_in(work)
        if len(seen) > len(works):
            for key in seen.keys() - {work.id for work in works}:
                self._forget(key)
        if len(self._kind) > 2 * len(works) + 1_000:
            self._kind = {}  # of work that is long gone

    def _rebuild(self, cluster: Cluster) -> None:
        """Begin anew with other nodes."""
        self._cluster = cluster
        self.layout = build_layout(Snapshot(now=0, cluster=cluster, budgets=(), workloads=()))
        self.free = self.layout.capacity.copy()
        self.waiting, self._queue, self.residents, self.ending, self._seen, self._masks = [], [], {}, [], {}, {}
        self._groups = [group_nodes(self.layout, level)[0] for level in range(WHOLE_POOL, len(self.layout.levels))]
        self._wanted = bool((self.layout.deadline < NEVER).any())

    def _take_in(self, work: Workload) -> None:
        self._seen[work.id] = work
        if work.run is None:
            place = bisect_left(self._queue, first_come(work))
            self._queue.insert(place, first_come(work))
            self.waiting.insert(place, work)
            return
        nodes = np.array([self.layout.index[name] for name in work.run.placement], dtype=np.int64)
        amounts, end = amounts_of(work, work.run.placement.values()), self._end_of(work)
        self.residents[work.id] = Resident(work, nodes, amounts, Releases.of(end, nodes, amounts, len(self.layout.names)))
        self.free[:, nodes] -= amounts
        insort(self.ending, (end, work.id))

    def _end_of(self, work: Workload) -> int:
        """When running work ends by its limit; without a start time it has run since it was first seen."""
        start = None if work.run is None else work.run.start_time
        return (self.now if start is None else start) + limit_of(work)

    def releases(self) -> Releases:
        """When what runs gives back what, by its time limits; what has outlived them may end any moment."""
        if self._releases is None:
            self._releases = Releases.all([self.residents[key].releases for _, key in self.ending], self.now + 1)
        return self._releases

    def _forget(self, key: str) -> None:
        work = self._seen.pop(key, None)
        if work is None:
            return
        if work.run is None:
            place = bisect_left(self._queue, first_come(work))
            del self._queue[place], self.waiting[place]
            return
        resident = self.residents.pop(key)
        self.free[:, resident.nodes] += resident.amounts
        del self.ending[bisect_left(self.ending, (int(resident.releases.ends[0]), key))]

    def kind(self, work: Workload) -> int:
        """A number for the kind of work: where one fits, others of its kind fit."""
        number = self._kind.get(work.id)
        if number is None:
            asked = (shape_of(work), work.tasks, work.pools, work.topology, tuple(work.node_labels.items()), work.exclude_nodes)
            number = self._kind[work.id] = self._kinds.setdefault(asked, len(self._kinds))
        return number

    def alike(self, work: Workload) -> tuple[int, int]:
        """The same for work that fits in the same places now: where nodes are wanted at some time, its limit counts too."""
        return self.kind(work), limit_of(work) if self._wanted else 0

    def usable(self, work: Workload) -> BoolArray:
        """Nodes on which work may start and, by its time limit, ends before they are wanted; shape (num_nodes,)."""
        kind = self.kind(work)
        mask = self._masks.get(kind)
        if mask is None:
            mask = self._masks[kind] = suitable(self.layout, work) & ~self.layout.down & ~self.layout.leaving
        if self._wanted:
            mask = mask & (self.layout.deadline >= self.now + limit_of(work))
        return mask

    def place(self, work: Workload, free: IntArray, only: BoolArray | None = None) -> Placement | None:
        """Nodes for all tasks of a gang, None where it does not fit.

        Parameters
        ----------
        free
            What may be taken, shape (3, num_nodes).
        only
            Nodes to which it is confined.
        """
        room = self._room(work, free, only)
        if work.tasks == 1:
            return self._place_task(work, free, room)
        if not self._has_room(work, room):
            return None
        return place_tasks(self.layout, work, room) if work.topology.segment else self._place_gang(work, room)

    def fits(self, work: Workload, free: IntArray, only: BoolArray | None = None) -> bool:
        """Whether `place` would find a place; a good deal faster."""
        room = self._room(work, free, only)
        return self._has_room(work, room) and (work.topology.segment is None or can_place(self.layout, work, room))

    def _room(self, work: Workload, free: IntArray, only: BoolArray | None) -> IntArray:
        """Tasks that each node takes, shape (num_nodes,)."""
        mask = self.usable(work) if only is None else self.usable(work) & only
        room: IntArray = tasks_per_node(free, shape_of(work)) * mask
        return room

    def _has_room(self, work: Workload, room: IntArray) -> bool:
        """Whether a pool, or a domain of the required level, has room for so many tasks."""
        level = self._coarsest(work)
        if level == 0 and len(self.layout.pools) == 1:
            return int(room.sum()) >= work.tasks
        totals = np.bincount(self._groups[level], weights=room)
        return bool((totals >= work.tasks).any())

    def _coarsest(self, work: Workload) -> int:
        """The coarsest level at which the tasks have to lie together, counted from 1; 0: the pool."""
        required = work.topology.required
        return 0 if required is None else self.layout.levels.index(required) + 1

    def _place_gang(self, work: Workload, room: IntArray) -> Placement | None:
        """The finest domain that holds the gang, the one with least room left; across domains the emptiest first."""
        layout = self.layout
        pools = pool_order(layout, work) if len(layout.pools) > 1 else [0]
        for pool in pools:
            here = room if len(layout.pools) == 1 else room * (layout.pool == pool)
            for level in range(len(layout.levels), self._coarsest(work) - 1, -1):
                group = self._groups[level]
                totals = np.bincount(group, weights=here)
                enough = (totals >= work.tasks).nonzero()[0]
                if enough.size:
                    chosen = enough[totals[enough].argmin()]
                    return self._fill(((group == chosen) & (here > 0)).nonzero()[0], here, work.tasks)
        return None

    def _fill(self, nodes: IntArray, room: IntArray, tasks: int) -> Placement:
        """Whole emptier domains first, and in them the emptier nodes, so that the gang touches few."""
        finest = self._groups[-2] if len(self._groups) > 1 else self._groups[0]
        totals = np.bincount(finest, weights=room)
        order = nodes[np.lexsort((nodes, -room[nodes], finest[nodes], -totals[finest[nodes]]))]
        filled = np.cumsum(room[order])
        last = int(np.searchsorted(filled, tasks))
        placement = {int(node): int(room[node]) for node in order[: last + 1]}
        placement[int(order[last])] -= int(filled[last]) - tasks
        return placement

    def _place_task(self, work: Workload, free: IntArray, room: IntArray) -> Placement | None:
        """The fullest node that has room, in the first pool that has one."""
        fits = room.nonzero()[0]
        if not fits.size:
            return None
        if len(self.layout.pools) > 1:
            pools = self.layout.pool[fits]
            fits = next(found for pool in pool_order(self.layout, work) if (found := fits[pools == pool]).size)
        return {int(fits[free[GPUS, fits].argmin()]): 1}

    def start(self, work: Workload, placement: Placement, *, until: int | None = None) -> Start:
        """The row of a decision. Work with a min runtime is charged; `until` is the end of a promise, None: no promise."""
        names = {self.layout.names[node]: tasks for node, tasks in sorted(placement.items())}
        charged = work.min_runtime > 0 or until is not None
        promised = (self.now if until is None else until) if charged else None
        return Start(workload=work.id, placement=names, charged=charged, protected_until=promised)

    def make_room(
        self, work: Workload, victims: Sequence[Resident], free: IntArray, only: BoolArray | None = None
    ) -> tuple[list[Resident], Placement] | None:
        """Whom to stop so that a gang can start, and where it then lies.

        As many as it takes are stopped in the order given; those whose GPUs are not needed after all are spared.
        """
        least = self._fewest(work, victims, free, only)
        if least is None:
            return None
        after = free.copy()
        for victim in victims[:least]:
            after[:, victim.nodes] += victim.amounts
        placement = self.place(work, after, only)
        if placement is None:
            return None
        left = after.copy()
        take(left, work, placement)
        chosen = list(victims[:least])
        for victim in reversed(victims[:least]):
            if (left[:, victim.nodes] >= victim.amounts).all():
                left[:, victim.nodes] -= victim.amounts
                chosen.remove(victim)
        return chosen, placement

    def _fewest(self, work: Workload, victims: Sequence[Resident], free: IntArray, only: BoolArray | None) -> int | None:
        """How many of the victims, in their order, have to go; None if all are not enough."""
        low, high = 0, len(victims)
        if not self._fits_without(work, victims, free, only):
            return None
        while low < high:
            middle = (low + high) // 2
            if self._fits_without(work, victims[:middle], free, only):
                high = middle
            else:
                low = middle + 1
        return low

    def _fits_without(self, work: Workload, victims: Iterable[Resident], free: IntArray, only: BoolArray | None) -> bool:
        after = free.copy()
        for victim in victims:
            after[:, victim.nodes] += victim.amounts
        return self.fits(work, after, only)


def amounts_of(work: Workload, tasks: Collection[int]) -> IntArray:
    """What so many tasks on each node take, by resource, shape (3, num_nodes)."""
    shape = np.array(shape_of(work), dtype=np.int64)
    amounts: IntArray = shape[:, np.newaxis] * np.fromiter(tasks, dtype=np.int64, count=len(tasks))
    return amounts


def take(free: IntArray, work: Workload, placement: Placement) -> None:
    """Take what a gang needs out of what is free, in place."""
    free[:, list(placement)] -= amounts_of(work, placement.values())


def limit_of(work: Workload) -> int:
    """Seconds that work runs at most, as far as anybody knows."""
    return work.max_runtime or DEFAULT_LIMIT


def first_come(work: Workload) -> tuple[int, str]:
    """The order of submission."""
    return work.submit_time, work.id
