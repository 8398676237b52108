"""Reservations: which entitled gang is kept how many nodes of which domain, and from when (facts, fixed before solving).

A reservation is kept a *number* of nodes: until its start, promises in its domain may be made only as far as that number
comes free in time. Which nodes it gets is decided when it falls due. Everything is taken from the view just before `now`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from allocator.domain import Reservation, Workload
from allocator.entitlement.releases import Releases
from allocator.entitlement.reserved import Reserved
from allocator.topology import NEVER, BoolArray, IntArray, Layout, can_place, shape_of, suitable, tasks_per_node


class Planner:
    """Finds domains and starts for gangs, one after another, so that all that were found before keep theirs.

    Gangs `in_place` have started at this very instant where they were kept their nodes: what they are promised there is their
    own, and stands for the number of nodes that they were kept. On nodes `at_rest`, shape (num_nodes,), nobody is promised
    anything more at this instant.
    """

    def __init__(self, layout: Layout, now: int, releases: Releases, cap: int) -> None:
        self.layout, self.now, self.cap = layout, now, cap
        self.releases = releases
        self.found: list[Reserved] = []
        self.in_place: set[int] = set()
        self.at_rest: BoolArray = np.zeros(len(layout.names), dtype=bool)

    def free_at(self, one: Reserved, instant: int) -> int:
        """Nodes of its domain that promises and other reservations leave at an instant."""
        in_time = one.usable & (self.releases.node <= instant) & (self.layout.deadline >= instant + one.promise)
        others = (other for other in self.found if other.row != one.row and other.holds_at(instant, self.now))
        return int(in_time.sum()) - sum(other.nodes for other in others if other.overlaps(one))

    def stands(self, one: Reserved) -> bool:
        """Whether its number of nodes comes free by its start, promises made at this very instant apart and counted."""
        start = max(one.start, self.now)
        if self.free_at(one, start) < one.nodes:
            return False
        return one.row in self.in_place or self._free_after(one, start, one.usable) >= one.nodes

    def _free_after(self, one: Reserved, instant: int, nodes: BoolArray) -> int:
        """Of these nodes, those that all promises and other reservations leave at an instant."""
        in_time = nodes & (self.releases.actual <= instant) & (self.layout.deadline >= instant + one.promise)
        others = (other for other in self.found if other.row >= 0 and other.row not in {one.row, *self.in_place})
        held = sum(other.nodes for other in others if other.holds_at(instant, self.now) and other.overlaps(one))
        return int(in_time.sum()) - held

    def all_stand(self) -> bool:
        """Whether every reservation found so far comes free in time."""
        return all(self.stands(one) for one in self.found if one.row >= 0)

    def accept(self, one: Reserved) -> bool:
        """Add a reservation, if it stands and those found before do with it."""
        self.found.append(one)
        if self.all_stand():
            return True
        self.found.pop()
        return False

    def keep(self, one: Reserved) -> bool:
        """Add a reservation of an earlier decision, if it still stands."""
        return self.accept(one)

    def advance(self, works: Sequence[Workload]) -> None:
        """Move each reservation to an earlier start where there is one."""
        for position, one in enumerate(self.found):
            if one.row < 0 or one.start <= self.now:
                continue
            for start in self._instants(one):
                if start >= one.start:
                    break
                self.found[position] = self._starting(one, works[one.row], start)
                if self.found[position].nodes and self.all_stand():
                    break
                self.found[position] = one

    def earliest(self, one: Reserved, work: Workload) -> Reserved | None:
        """The reservation with the earliest start at which it and all others stand; None if there is none."""
        for start in self._instants(one):
            moved = self._starting(one, work, start)
            if moved.nodes and self.accept(moved):
                self.found.pop()
                return moved
        return None

    def _starting(self, one: Reserved, work: Workload, start: int) -> Reserved:
        """The reservation with another start. With segments it is kept all nodes free by then, none if they do not hold it."""
        one = replace(one, start=start)
        if not one.segmented:
            return one
        nodes = one.usable & (self.releases.node <= one.start) & (self.layout.deadline >= one.start + one.promise)
        room = np.where(nodes, tasks_per_node(self.layout.capacity, shape_of(work)), 0)
        return replace(one, nodes=int(nodes.sum()) if can_place(self.layout, work, room) else 0)

    def _instants(self, one: Reserved) -> list[int]:
        """When its nodes come free, from the first instant at which there are enough of them on."""
        ends = np.sort(np.maximum(self.releases.actual[one.usable], self.now))
        ends = ends[min(one.nodes, len(ends)) - 1 :] if len(ends) else ends
        later = [max(other.start, self.now) + other.promise for other in self.found if other.overlaps(one)]
        return sorted({instant for instant in (*ends.tolist(), *later) if instant < NEVER})

    def choose(self, draft: Reserved, work: Workload, clear: IntArray) -> Reserved | None:
        """The domain with the earliest start; of equals the one with least to clear (GPUs by node), then the first by path."""
        best: tuple[tuple[int, int, tuple[str, ...]], Reserved] | None = None
        for one in self._domains(draft, work):
            found = self.earliest(one, work)
            if found is not None:
                key = (found.start, int(clear[found.usable].sum()), found.domain)
                best = min(best, (key, found), key=lambda pair: pair[0]) if best else (key, found)
        return best[1] if best else None

    def _domains(self, draft: Reserved, work: Workload) -> Iterable[Reserved]:
        """One candidate for each domain in which the gang may lie."""
        layout, required = self.layout, work.topology.required
        if required is None:
            yield from filter(None, [in_domain(layout, draft, work, top_domain(layout, draft.pool))])
            return
        level = layout.levels.index(required)
        mine = np.unique(layout.domain[level][layout.pool == draft.pool]).tolist()
        yield from filter(None, (in_domain(layout, draft, work, layout.domain_paths[level][domain]) for domain in mine))

    def position(self, one: Reserved) -> int:
        """Its place among the reservations whose domains overlap with it, directly or through others, 1 for the first."""
        near, rest = [one], [other for other in self.found if other.row != one.row]
        for member in near:
            near += [other for other in rest if other.overlaps(member)]
            rest = [other for other in rest if not other.overlaps(member)]
        return len(near)

    def longest(self, one: Reserved) -> int:
        """The longest promise that it may have to wait for: of the policy, of what runs in its pool, and of other gangs."""
        ends = self.releases.node[(self.layout.pool == one.pool) & (self.releases.node < NEVER)]
        others = max((other.promise for other in self.found if other.overlaps(one)), default=0)
        return max(self.cap, others, int(ends.max(initial=self.now)) - self.now)

    def limits(self, order: IntArray) -> IntArray:
        """Until when promises may be made on each node for the sake of reservations, NEVER where none stands.

        Nodes that are promised beyond the start anyway do not matter, nor do as many more as a reservation can spare, the
        first by `order` (lowest first, shape (num_nodes,)); with segments it can spare none.
        """
        return self.limits_but(order, None)

    def limits_but(self, order: IntArray, own: int | None) -> IntArray:
        """The same for the gang in a row: its own reservation does not keep it away."""
        limit = np.where(self.at_rest, self.now, NEVER)
        for one in self.found:
            if one.row < 0 or one.row == own or one.row in self.in_place or one.due:
                continue
            start = max(one.start, self.now)
            in_time = one.usable & (self.releases.node <= start) & (self.layout.deadline >= start + one.promise)
            nodes = in_time.nonzero()[0]
            nodes = nodes[np.lexsort((nodes, order[nodes]))]
            spare = 0 if one.segmented else max(0, self.free_at(one, start) - one.nodes)
            while spare and self._free_after(one, start, _without(in_time, nodes[:spare])) < one.nodes:
                spare -= 1
            limit[nodes[spare:]] = np.minimum(limit[nodes[spare:]], start)
        return limit


def _without(mask: BoolArray, nodes: IntArray) -> BoolArray:
    rest = mask.copy()
    rest[nodes] = False
    return rest


def in_domain(layout: Layout, draft: Reserved, work: Workload, path: tuple[str, ...] | None) -> Reserved | None:
    """The draft in a domain (path; empty: the whole pool): nodes that could serve, and how many it takes; None if too few."""
    inside = domain_mask(layout, draft.pool, path) if path is not None else None
    if inside is None:
        return None
    tasks = np.where(inside & layout.accepting & suitable(layout, work), tasks_per_node(layout.capacity, shape_of(work)), 0)
    per_node = int(tasks.max(initial=0))
    if per_node == 0:
        return None
    usable, nodes = tasks == per_node, -(-work.tasks // per_node)
    return replace(draft, domain=path or (), usable=usable, nodes=nodes) if usable.sum() >= nodes else None


def domain_mask(layout: Layout, pool: int, path: Sequence[str]) -> BoolArray | None:
    """Nodes of a pool inside a domain; None if there is no such domain."""
    inside: BoolArray = layout.pool == pool
    if not path:
        return inside
    if len(path) > len(layout.levels):
        return None
    level = len(path) - 1
    paths = layout.domain_paths[level]
    return inside & (layout.domain[level] == paths.index(tuple(path))) if tuple(path) in paths else None


def top_domain(layout: Layout, pool: int) -> tuple[str, ...]:
    """The coarsest domain that holds all nodes of a pool; empty if there is none, and the pool itself has to do."""
    if len(layout.levels) == 1:
        return ()
    tops = np.unique(layout.domain[0][layout.pool == pool])
    return layout.domain_paths[0][int(tops[0])] if len(tops) == 1 else ()


def as_row(one: Reserved, works: Sequence[Workload], pools: Sequence[str]) -> Reservation:
    """The reservation as it stands in a decision."""
    return Reservation(
        workload=works[one.row].id, pool=pools[one.pool], domain=one.domain, nodes=one.nodes, start=one.start,
        eligible_since=one.eligible_since, bound=one.bound, waits_for=one.waits_for,
    )  # fmt: skip


def by_row(found: Iterable[Reserved]) -> Mapping[int, Reserved]:
    """The reservations by the row of their gang."""
    return {one.row: one for one in found if one.row >= 0}
