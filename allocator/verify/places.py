"""Where work could be placed, memoised: thousands of waiting workloads ask about few shapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from allocator.domain import Workload
from allocator.entitlement.model import Entitlement
from allocator.topology import (
    NEVER,
    BoolArray,
    IntArray,
    Layout,
    Shape,
    can_place,
    eligible,
    once,
    place_tasks,
    shape_of,
    tasks_per_node,
)


@dataclass(slots=True, eq=False)
class TaskCounts:
    """How many tasks of each shape fit on each node of `room` (3, num_nodes), which somebody else changes and tells of.

    Counts are brought up to date when they are asked for; `log` lists the nodes changed, `seen` how far each shape has read.
    """

    room: IntArray
    by_shape: dict[Shape, IntArray] = field(default_factory=dict)
    seen: dict[Shape, int] = field(default_factory=dict)
    log: list[int] = field(default_factory=list)

    def of(self, shape: Shape) -> IntArray:
        """Tasks per node, shape (num_nodes,); not to be changed."""
        if shape not in self.by_shape:
            self.by_shape[shape] = tasks_per_node(np.maximum(self.room, 0), shape)
        elif self.seen[shape] < len(self.log):
            nodes = np.unique(self.log[self.seen[shape] :])
            self.by_shape[shape][nodes] = tasks_per_node(np.maximum(self.room[:, nodes], 0), shape)
        self.seen[shape] = len(self.log)
        return self.by_shape[shape]

    def changed(self, nodes: IntArray) -> None:
        """Take note that the room on some nodes has changed."""
        if self.by_shape:
            self.log.extend(nodes.tolist())


@dataclass(slots=True, eq=False)
class Places:
    """Placements on a room that shrinks and grows.

    A workload that does not fit cannot fit before something `grows`; one that fits is looked at again after every change.
    """

    layout: Layout
    counts: TaskCounts
    version: int = 0
    grown: int = 0
    memo: dict[tuple[object, ...], tuple[int, Mapping[int, int] | None]] = field(default_factory=dict)
    held: dict[tuple[object, ...], tuple[int, bool]] = field(default_factory=dict)

    def changed(self, nodes: IntArray, *, grew: bool) -> None:
        """Take note that the room on some nodes has changed."""
        self.counts.changed(nodes)
        self.version += 1
        self.grown += grew

    def holds(self, work: Workload, pool: int, until: int | None, masks: Masks) -> bool:
        """Whether there is a placement in one pool on nodes that stay until then."""
        key = (masks.demand_of(work), pool, masks.horizon(until))
        known = self.held.get(key)
        if known is not None and known[0] == (self.version if known[1] else self.grown):
            return known[1]
        room, enough = self._room(work, pool, until, masks)
        free = work.topology.required is None and work.topology.segment is None
        answer = enough and (free or can_place(self.layout, work, room))
        self.held[key] = (self.version if answer else self.grown, answer)
        return answer

    def find(self, work: Workload, pool: int, until: int | None, masks: Masks) -> Mapping[int, int] | None:
        """A placement (node index -> tasks) in one pool on nodes that stay until then, or None."""
        key = (masks.demand_of(work), pool, masks.horizon(until))
        known = self.memo.get(key)
        if known is not None and known[0] == (self.grown if known[1] is None else self.version):
            return known[1]
        room, enough = self._room(work, pool, until, masks)
        found = place_tasks(self.layout, work, room) if enough else None
        placement = None if found is None else {int(node): int(tasks) for node, tasks in found.items()}
        self.memo[key] = (self.grown if placement is None else self.version, placement)
        return placement

    def _room(self, work: Workload, pool: int, until: int | None, masks: Masks) -> tuple[IntArray, bool]:
        """Tasks that each node takes, 0 where the workload may not start, and whether they add up to enough."""
        room = np.where(masks.of(work, pool, until), self.counts.of(shape_of(work)), 0)
        return room, int(np.minimum(room, work.tasks).sum()) >= work.tasks


@dataclass(slots=True, eq=False)
class Masks:
    """Nodes on which a workload may start, memoised by what it asks for.

    `own` has, by id, until when reserved gangs may be promised each node, shape (num_nodes,): the same for all others.
    """

    layout: Layout
    own: Mapping[str, IntArray] = field(default_factory=dict)
    deadlines: IntArray = field(init=False)
    memo: dict[tuple[object, ...], BoolArray] = field(default_factory=dict)
    demands: dict[tuple[object, ...], int] = field(default_factory=dict)
    by_work: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        instants = np.concatenate([self.layout.promise_by, self.layout.deadline, *self.own.values()])
        self.deadlines = np.unique(instants[instants < NEVER])

    def of(self, work: Workload, pool: int, until: int | None) -> BoolArray:
        """Healthy nodes of the pool that suit the workload and may be promised until then, shape (num_nodes,)."""
        own = self.own.get(work.id)
        mine = None if own is None else work.id
        key = (pool, self.horizon(until), work.pools, _frozen(work.node_labels), work.exclude_nodes, mine)
        if key not in self.memo:
            by = None if own is None else np.minimum(own, self.layout.deadline)
            self.memo[key] = eligible(self.layout, work, until, by) & (self.layout.pool == pool)
        return self.memo[key]

    def horizon(self, until: int | None) -> int:
        """How many instants by which promises must end somewhere lie before this one: all that eligibility knows of it."""
        return 0 if until is None else int(np.searchsorted(self.deadlines, until))

    def demand_of(self, work: Workload) -> int:
        """A number that is equal for workloads that can be placed in the same ways."""
        if work.id not in self.by_work:
            wish = work.topology
            mine = work.id if work.id in self.own else None
            asked = (shape_of(work), work.tasks, wish, work.pools, _frozen(work.node_labels), work.exclude_nodes, mine)
            self.by_work[work.id] = self.demands.setdefault(asked, len(self.demands))
        return self.by_work[work.id]


@once
def masks_of(ent: Entitlement) -> Masks:
    """The masks of an epoch: no decision changes them."""
    works = ent.snapshot.workloads
    return Masks(ent.layout, {works[row].id: limit for row, limit in ent.own_limit.items()})


def _frozen(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(labels.items()))
