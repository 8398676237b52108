"""When a request could start at the earliest if no work ends by itself.

Promises alone decide: whatever is not promised its GPUs counts as removable, so that no start can come before the instant
found here. Nodes stay as they are; when somebody repairs one is unknown. Nodes that will drain stay too, but for what is
asked until some instant.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial

import numpy as np

from allocator.domain import Workload
from allocator.entitlement.model import Entitlement
from allocator.explain.after import After
from allocator.topology import (
    GPUS,
    NEVER,
    BoolArray,
    IntArray,
    Shape,
    can_place,
    eligible,
    largest_by_pool,
    place_tasks,
    shape_of,
    tasks_per_node,
)

MOST_BLOCKERS = 10

_FREE, _BY_LICENCE, _EMPTY = -1, -2, -3
"""States of the nodes: beside all that runs; once everything has gone that may be stopped for the sake of shares; empty."""

_MOST_MASKS = 1024
"""Bounds the memory where every workload excludes other nodes."""


@dataclass(frozen=True, slots=True)
class Earliest:
    """The first instant at which a place is free of promises, and whose promises end until then, earliest first."""

    instant: int
    blockers: tuple[str, ...]


class Prospect:
    """What the nodes say to one request; each answer is worked out when it is first wanted.

    With `until`, nodes that drain before that instant do not count (see `Horizon.stay`).
    """

    def __init__(self, horizon: Horizon, work: Workload, until: int | None) -> None:
        self._horizon, self._work, self._until = horizon, work, until

    @cached_property
    def earliest(self) -> Earliest | None:
        """The first instant with a place; None if there never is one."""
        return self._horizon.earliest(self._work, self._until)

    @cached_property
    def not_before(self) -> int | None:
        """The first instant with a place, as if victims that should have left by now had left; None if there never is one."""
        late = self._horizon.victims_stay
        found = self._horizon.earliest(self._work, self._until, late=True) if late else self.earliest
        return None if found is None else found.instant

    @cached_property
    def fits_free(self) -> bool:
        """Whether it fits beside everything that runs after the decision."""
        return self._horizon.fits(self._work, _FREE, self._until)

    @cached_property
    def fits_by_licence(self) -> bool:
        """Whether it fits where unallocated work and work of allocations above their entitlement gives way."""
        return self._horizon.fits(self._work, _BY_LICENCE, self._until)

    @cached_property
    def free_gpus(self) -> int:
        """GPUs that no task uses, on the nodes it may start on."""
        return self._horizon.free_gpus(self._work, self._until)

    @cached_property
    def healthy_pools(self) -> list[int]:
        """The pools whose accepting nodes hold it when they are empty."""
        return self._horizon.healthy_pools(self._work, self._until)


class Horizon:
    """Where and when requests fit, for one decision.

    Attributes
    ----------
    free
        GPUs, CPUs and GiB that no task uses on each node, shape (3, num_nodes).
    deadlines_matter, victims_stay
        Whether some node that accepts work will drain, and whether on some a victim stays beyond its time.
    """

    def __init__(self, ent: Entitlement, after: After) -> None:
        self._ent = ent
        self._after = after
        self._release = after.release[after.entry_row]
        self._events = np.unique(self._release[self._release > 0])
        self._masks: dict[Hashable, BoolArray] = {}
        self._most: dict[Hashable, IntArray] = {}
        # A search for the first event that suffices passes the same few events for most requests.
        self._unpromised = lru_cache(maxsize=128)(partial(_unpromised, ent, after, self._events))
        self._tasks = lru_cache(maxsize=1024)(self._count_tasks)
        capacity, num_nodes = ent.layout.capacity, len(ent.layout.names)
        works, removable = ent.works, after.running & (after.release == 0) & (ent.works.stoppable | ent.works.fresh)
        licensed = removable & (works.licensed | ~works.charged)
        self.free = capacity - after.used(after.running, num_nodes)
        self._free_by_licence = self.free + after.used(licensed, num_nodes)
        self.victims_stay = bool(ent.layout.overdue.any())
        self._deadlines: list[int] = np.unique(ent.layout.deadline[ent.layout.accepting]).tolist()
        self.deadlines_matter = any(deadline != NEVER for deadline in self._deadlines)

    def stay(self, until: int) -> int | None:
        """What tells instants apart: the next deadline of a node from there on, None where every node stays as long."""
        position = bisect_left(self._deadlines, until)
        return None if position == 0 else self._deadlines[position] if position < len(self._deadlines) else until

    def fits(self, work: Workload, state: int, until: int | None, late: bool = False) -> bool:
        """Whether it fits the accepting nodes in a state: so many promises have ended, or one of those named above."""
        if self._is_plain(work):
            return work.tasks <= int(self._largest(work, state, until, late).max(initial=0))
        return can_place(self._ent.layout, work, self._room(work, state, until, late))

    def _is_plain(self, work: Workload) -> bool:
        """Whether a gang fits if one domain, or one pool, has room for that many tasks."""
        wish = work.topology
        return wish.segment is None and (wish.required is None or wish.required in self._ent.layout.levels)

    def _largest(self, work: Workload, state: int, until: int | None, late: bool = False) -> IntArray:
        """The most tasks like these that fit in each pool, shape (num_pools,)."""
        key = (shape_of(work), work.pools, _pairs(work), work.exclude_nodes, work.topology.required, state, until, late)
        most = self._most.get(key)
        if most is None:
            required, levels = work.topology.required, self._ent.layout.levels
            level = -1 if required is None else levels.index(required)
            most = self._most[key] = largest_by_pool(self._ent.layout, level, self._room(work, state, until, late))
        return most

    def fits_beside_reservations(self, work: Workload, until: int) -> bool:
        """Whether it fits with its promise where others give way, on nodes that no reservation needs before that."""
        room = np.where(self._mask(work, until, reserved=True), self._tasks(_BY_LICENCE, shape_of(work)), 0)
        return can_place(self._ent.layout, work, room)

    def healthy_pools(self, work: Workload, until: int | None) -> list[int]:
        """The pools whose accepting nodes hold it when they are empty."""
        if self._is_plain(work):
            most = self._largest(work, _EMPTY, until)
            return list((most >= work.tasks).nonzero()[0].tolist())
        room, pool = self._room(work, _EMPTY, until), self._ent.layout.pool
        pools = np.unique(pool[room > 0]).tolist()
        return [one for one in pools if can_place(self._ent.layout, work, np.where(pool == one, room, 0))]

    def free_gpus(self, work: Workload, until: int | None) -> int:
        """GPUs that no task uses, on the nodes it may start on."""
        return int(self.free[GPUS, self._mask(work, until)].sum())

    def earliest(self, work: Workload, until: int | None = None, late: bool = False) -> Earliest | None:
        """The first instant at which it fits beside the promises that then remain; None if it never does.

        Nodes with a victim that is overdue take nothing as long as it stays; with `late` they count, as if it had left.
        """
        if self.fits(work, 0, until, late):
            return Earliest(self._ent.snapshot.now, ())
        if not self.fits(work, _EMPTY, until, late):
            return None
        low, high = 0, len(self._events)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.fits(work, middle, until, late) else (middle, high)
        instant = int(self._events[high - 1])
        room = self._room(work, high, until, late)
        return Earliest(instant, self._blockers(work, room, instant))

    def _blockers(self, work: Workload, room: IntArray, instant: int) -> tuple[str, ...]:
        """Whose promises end until then on the nodes of the place that comes free."""
        placement = place_tasks(self._ent.layout, work, room) or {}
        there = np.zeros(len(self._ent.layout.names), dtype=np.bool_)
        there[list(placement)] = True
        ends = (self._release > 0) & (self._release <= instant)
        rows = np.unique(self._after.entry_row[ends & there[self._after.entry_node]])
        works = self._ent.snapshot.workloads
        ordered = sorted(rows.tolist(), key=lambda row: (self._after.release[row], works[row].id))
        return tuple(works[row].id for row in ordered[:MOST_BLOCKERS])

    def _room(self, work: Workload, state: int, until: int | None, late: bool = False) -> IntArray:
        room: IntArray = np.where(self._mask(work, until, late=late), self._tasks(state, shape_of(work)), 0)
        return room

    def _count_tasks(self, state: int, shape: Shape) -> IntArray:
        """Tasks of a shape that each node takes in a state, shape (num_nodes,)."""
        named = {_FREE: self.free, _BY_LICENCE: self._free_by_licence, _EMPTY: self._ent.layout.capacity}
        return tasks_per_node(named[state] if state < 0 else self._unpromised(state), shape)

    def _mask(self, work: Workload, until: int | None, *, reserved: bool = False, late: bool = False) -> BoolArray:
        """The nodes it may start on, remembered by what that depends on; with `reserved`, beside all reservations; with `late`,
        where victims are overdue too."""
        late = late and self.victims_stay
        key = (work.pools, _pairs(work), work.exclude_nodes, until, reserved, late)
        if key not in self._masks:
            if len(self._masks) >= _MOST_MASKS:
                self._masks.clear()
            by = self._ent.layout.promise_by if reserved else self._ent.layout.deadline
            layout = replace(self._ent.layout, overdue=np.zeros_like(self._ent.layout.overdue)) if late else self._ent.layout
            self._masks[key] = eligible(layout, work, until, by)
        return self._masks[key]


def _unpromised(ent: Entitlement, after: After, events: IntArray, count: int) -> IntArray:
    """What is not promised to anybody once the first `count` promises have ended, shape (3, num_nodes)."""
    instant = events[count - 1] if count else 0
    return ent.layout.capacity - after.used(after.release > instant, len(ent.layout.names))


def _pairs(work: Workload) -> Sequence[tuple[str, str]]:
    return tuple(sorted(work.node_labels.items())) if work.node_labels else ()
