"""When a request could start at the earliest if no work ends by itself.

Promises alone decide: whatever is not promised its GPUs counts as removable, so that no start can come before the instant
found here. Nodes stay as they are; when somebody repairs one is unknown. Nodes that will drain stay too, but for what is
asked until some instant.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial

import numpy as np

from allocator.domain import Workload
from allocator.entitlement.model import Entitlement
from allocator.explain.after import After
from allocator.topology import GPUS, NEVER, BoolArray, IntArray, can_place, eligible, place_tasks, shape_of, tasks_per_node

MOST_BLOCKERS = 10

_MOST_MASKS = 1024
"""Bounds the memory where every workload excludes other nodes."""


@dataclass(frozen=True, slots=True)
class Earliest:
    """The first instant at which a place is free of promises, and whose promises end until then, earliest first."""

    instant: int
    blockers: tuple[str, ...]


class Prospect:
    """What the nodes say to one request; each answer is worked out when it is first wanted.

    With `until`, nodes that drain before that instant do not count.
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
        return self._horizon.fits(self._work, self._horizon.free, self._until)

    @cached_property
    def fits_by_licence(self) -> bool:
        """Whether it fits where unallocated work and work of allocations above their entitlement gives way."""
        return self._horizon.fits(self._work, self._horizon.free_by_licence, self._until)

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
    free, free_by_licence
        GPUs, CPUs and GiB that no task uses on each node; the same once everything has gone that may be stopped for the sake
        of shares. Shape (3, num_nodes).
    deadlines_matter, victims_stay
        Whether some node that accepts work will drain, and whether on some a victim stays beyond its time.
    """

    def __init__(self, ent: Entitlement, after: After) -> None:
        self._ent = ent
        self._after = after
        self._release = after.release[after.entry_row]
        self._events = np.unique(self._release[self._release > 0])
        self._masks: dict[Hashable, BoolArray] = {}
        # A search for the first event that suffices passes the same few events for most requests.
        self._unpromised = lru_cache(maxsize=128)(partial(_unpromised, ent, after, self._events))
        capacity, num_nodes = ent.layout.capacity, len(ent.layout.names)
        works, removable = ent.works, after.running & (after.release == 0) & (ent.works.stoppable | ent.works.fresh)
        licensed = removable & (works.licensed | ~works.charged)
        self.free = capacity - after.used(after.running, num_nodes)
        self.free_by_licence = self.free + after.used(licensed, num_nodes)
        self.victims_stay = bool(ent.layout.overdue.any())
        self.deadlines_matter = bool(np.any(ent.layout.accepting & (ent.layout.deadline != NEVER)))

    def fits(self, work: Workload, free: IntArray, until: int | None, late: bool = False) -> bool:
        """Whether it fits the accepting nodes with that much free, shape (3, num_nodes)."""
        return can_place(self._ent.layout, work, self._room(work, free, until, late))

    def fits_beside_reservations(self, work: Workload, until: int) -> bool:
        """Whether it fits with its promise where others give way, on nodes that no reservation needs before that."""
        room = np.where(self._mask(work, until, reserved=True), tasks_per_node(self.free_by_licence, shape_of(work)), 0)
        return can_place(self._ent.layout, work, room)

    def healthy_pools(self, work: Workload, until: int | None) -> list[int]:
        """The pools whose accepting nodes hold it when they are empty."""
        room, pool = self._room(work, self._ent.layout.capacity, until), self._ent.layout.pool
        pools = np.unique(pool[room > 0]).tolist()
        return [one for one in pools if can_place(self._ent.layout, work, np.where(pool == one, room, 0))]

    def free_gpus(self, work: Workload, until: int | None) -> int:
        """GPUs that no task uses, on the nodes it may start on."""
        return int(self.free[GPUS, self._mask(work, until)].sum())

    def earliest(self, work: Workload, until: int | None = None, late: bool = False) -> Earliest | None:
        """The first instant at which it fits beside the promises that then remain; None if it never does.

        Nodes with a victim that is overdue take nothing as long as it stays; with `late` they count, as if it had left.
        """
        if self.fits(work, self._unpromised(0), until, late):
            return Earliest(self._ent.snapshot.now, ())
        if not self.fits(work, self._ent.layout.capacity, until, late):
            return None
        low, high = 0, len(self._events)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.fits(work, self._unpromised(middle), until, late) else (middle, high)
        instant = int(self._events[high - 1])
        room = self._room(work, self._unpromised(high), until, late)
        return Earliest(instant, self._blockers(work, room, instant))

    def _blockers(self, work: Workload, room: IntArray, instant: int) -> tuple[str, ...]:
        """Whose promises end until then on the nodes of the place that comes free."""
        placement = place_tasks(self._ent.layout, work, room) or {}
        there = np.isin(self._after.entry_node, np.array(sorted(placement), dtype=np.int64))
        rows = np.unique(self._after.entry_row[there & (self._release > 0) & (self._release <= instant)])
        works = self._ent.snapshot.workloads
        ordered = sorted(rows.tolist(), key=lambda row: (self._after.release[row], works[row].id))
        return tuple(works[row].id for row in ordered[:MOST_BLOCKERS])

    def _room(self, work: Workload, free: IntArray, until: int | None, late: bool = False) -> IntArray:
        room: IntArray = np.where(self._mask(work, until, late=late), tasks_per_node(free, shape_of(work)), 0)
        return room

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
