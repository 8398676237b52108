"""Which unallocated work would have to stop so that a gang fits: node by node, fewest idled GPUs first."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from allocator.domain import Workload
from allocator.topology import BoolArray, IntArray, Shape, place_tasks, shape_of
from allocator.verify.prices import NOTHING, Choice, Kind, Triple, by_kind, cheapest, fit
from allocator.verify.room_state import Cleared, Mode, Room

_MAX_AREAS = 32
"""Once something was found, no more domains than this are looked at for something better."""


def clear_for(room: Room, row: int, pool: int, mode: Mode, may_stop: Callable[[int], bool] | None = None) -> Cleared | None:
    """The cheapest way found to make room in one pool; None where all stops together do not do.

    `may_stop` narrows the work that may be stopped.
    """
    if may_stop is not None:
        return _search(room, row, pool, mode, may_stop)
    key = (room.masks.demand_of(room.work(row)), pool, room.masks.horizon(room.until(row, mode)))
    known = room.clearings.get(key)
    if known is None or known[0] != room.places.version:
        known = room.clearings[key] = (room.places.version, _search(room, row, pool, mode, None))
    return known[1]


def _search(room: Room, row: int, pool: int, mode: Mode, may_stop: Callable[[int], bool] | None) -> Cleared | None:
    """Look at one set of nodes after the other."""
    work, until = room.work(row), room.until(row, mode)
    if not room.reachable.holds(work, pool, until, room.masks):
        return None
    best: Cleared | None = None
    for count, area in enumerate(_areas(room, work, room.masks.of(work, pool, until))):
        if best is not None and (best.idled == 0 or (count >= _MAX_AREAS and best.idled <= work.gpus)):
            break
        found = _Clearing(room, row, area, may_stop).run()
        if found is not None and (best is None or found.idled < best.idled):
            best = found
    return best


def _areas(room: Room, work: Workload, mask: BoolArray) -> Iterator[BoolArray]:
    """Sets of nodes of which the gang needs one: all, or the domains of the required level that could be cleared for it.

    Domains in which most tasks fit as it is come first.
    """
    layout, level = room.ent.layout, work.topology.required
    if level is None:
        yield mask
        return
    domain = layout.domain[layout.levels.index(level)]
    size, shape, nodes = int(domain.max(initial=-1)) + 1, shape_of(work), mask.nonzero()[0]
    could, fits = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    np.add.at(could, domain[nodes], np.minimum(room.reachable.counts.of(shape)[nodes], work.tasks))
    np.add.at(fits, domain[nodes], np.minimum(room.places.counts.of(shape)[nodes], work.tasks))
    for which in np.argsort(-fits, kind="stable").tolist():
        if could[which] >= work.tasks:
            yield mask & (domain == which)


@dataclass(slots=True, eq=False)
class _Clearing:
    """One attempt inside one set of nodes.

    `stops` so far, what they have `freed` by node, the nodes `touched` by that, and the tasks that each node of the set
    takes now, shape (num_nodes,).
    """

    room: Room
    row: int
    area: BoolArray
    may_stop: Callable[[int], bool] | None
    shape: Shape = field(init=False)
    fits: IntArray = field(init=False)
    stops: set[int] = field(default_factory=set)
    freed: dict[int, IntArray] = field(default_factory=dict)
    touched: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.shape = shape_of(self.room.work(self.row))
        self.fits = np.where(self.area, self.room.places.counts.of(self.shape), 0)

    def run(self) -> Cleared | None:
        """Stop residents until the gang fits, place it, and take back what need not stop after all."""
        work = self.room.work(self.row)
        if work.topology.segment is None:
            self._gather(work.tasks)
        else:
            self._follow(work)
        found = place_tasks(self.room.ent.layout, work, self.fits)
        if found is None:
            return None
        placement = {int(node): int(tasks) for node, tasks in found.items()}
        self._take_back(placement)
        return Cleared(placement, tuple(sorted(self.stops)), self._idled(placement))

    def _gather(self, tasks: int) -> None:
        """Gain tasks node by node, cheapest first, until enough fit."""
        if self.may_stop is not None:  # the prices kept by node are those of all residents
            self.touched.update(self.area.nonzero()[0].tolist())
        prices = self.room.prices
        while (missing := tasks - int(self.fits.sum())) > 0:
            most = prices.most(self.shape, missing)
            untouched = _ascending(np.where(self.area, prices.of(self.shape, missing), NOTHING), self.touched)
            heap = [(choice.price, node) for node in sorted(self.touched) if (choice := self._best(node, most))]
            heapq.heapify(heap)
            if not self._gain(untouched, heap, most, missing):
                return

    def _gain(self, untouched: Iterator[tuple[int, int]], heap: list[tuple[int, int]], most: int, missing: int) -> bool:
        """Take one choice after the other while `most` is what matters on a node; False when nothing is left to take."""
        head = next(untouched)
        while missing > 0 and self.room.prices.most(self.shape, missing) == most:
            while head[1] in self.touched:
                head = next(untouched)
            price, node = min(head, heap[0]) if heap else head
            if price >= NOTHING:
                return False
            if (price, node) != head:
                heapq.heappop(heap)
            choice = self._best(node, most)
            if choice is None or choice.price != price:  # the node has changed since
                continue
            for where, gain in self._stop(node, choice):
                missing -= gain
                if later := self._best(where, most):
                    heapq.heappush(heap, (later.price, where))
        return True

    def _follow(self, work: Workload) -> None:
        """Clear the nodes on which a gang with segments would lie if everything that can stop did."""
        reach = np.where(self.area, self.room.reachable.counts.of(self.shape), 0)
        for node, tasks in (place_tasks(self.room.ent.layout, work, reach) or {}).items():
            while (missing := int(tasks - self.fits[node])) > 0 and (choice := self._best(int(node), missing)):
                self._stop(int(node), choice)

    def _best(self, node: int, missing: int) -> Choice | None:
        """The cheapest way to gain some of the missing tasks on a node."""
        counted = tuple((kind, len(rows)) for kind, rows in self._residents(node))
        return cheapest(self._free(node), counted, self.shape, missing)

    def _residents(self, node: int) -> tuple[tuple[Kind, tuple[int, ...]], ...]:
        if node not in self.touched:
            return self.room.residents.on(node)
        residents, allowed = self.room.residents.by_node[node], self.may_stop or (lambda _: True)
        return by_kind({row: kind for row, kind in residents.items() if row not in self.stops and allowed(row)})

    def _free(self, node: int) -> Triple:
        free = self.room.free[:, node]
        gpus, cpus, memory = (free + self.freed[node] if node in self.freed else free).tolist()
        return gpus, cpus, memory

    def _stop(self, node: int, choice: Choice) -> list[tuple[int, int]]:
        """Carry out a choice; the nodes of the set that it touches, and the tasks gained on each."""
        changed: set[int] = set()
        for (_, rows), count in zip(self._residents(node), choice.counts, strict=True):
            for row in rows[:count]:
                self.stops.add(row)
                nodes, use = self.room.use(row, self.room.placement[row])
                for position, where in enumerate(nodes.tolist()):
                    self.freed[where] = self.freed.get(where, 0) + use[:, position]
                changed.update(nodes.tolist())
        self.touched |= changed
        return [(where, self._refit(where)) for where in sorted(changed) if self.area[where]]

    def _refit(self, node: int) -> int:
        """Count the tasks that fit on a node anew; returns how many more they are."""
        before, now = int(self.fits[node]), fit(self._free(node), self.shape)
        self.fits[node] = now
        return now - before

    def _take_back(self, placement: Mapping[int, int]) -> None:
        """Take back stops that the placement does not need, the largest first."""
        spare = {node: self.room.free[:, node] + freed for node, freed in self.freed.items()}
        for node, tasks in placement.items():
            if node in spare:
                spare[node] = spare[node] - np.array(self.shape, dtype=np.int64) * tasks
        for row in sorted(self.stops, key=lambda stop: (-int(self.room.ent.works.gpus[stop]), stop)):
            nodes, use = self.room.use(row, self.room.placement[row])
            if all((spare[node] >= use[:, position]).all() for position, node in enumerate(nodes.tolist())):
                self.stops.discard(row)
                for position, node in enumerate(nodes.tolist()):
                    spare[node] = spare[node] - use[:, position]

    def _idled(self, placement: Mapping[int, int]) -> int:
        freed = sum(int(self.room.ent.works.gpus[row]) for row in self.stops)
        used = (max(0, tasks * self.shape[0] - max(0, int(self.room.free[0, node]))) for node, tasks in placement.items())
        return freed - sum(used)


def _ascending(prices: IntArray, skip: set[int]) -> Iterator[tuple[int, int]]:
    """Prices and nodes, cheapest first, but for nodes to skip; then (NOTHING, -1) for ever. Often only the first is needed."""
    if prices.size:
        first = int(prices.argmin())
        if first not in skip and prices[first] < NOTHING:
            yield int(prices[first]), first
        for node in np.argsort(prices, kind="stable").tolist():
            if prices[node] >= NOTHING:
                break
            if node != first and node not in skip:
                yield int(prices[node]), node
    while True:
        yield NOTHING, -1
