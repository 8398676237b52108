"""Which unallocated work would have to stop so that a gang fits: node by node, fewest idled GPUs first."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from math import prod

import numpy as np

from allocator.domain import Workload
from allocator.topology import IntArray, Shape, place_tasks, shape_of
from allocator.verify.room_state import Cleared, Kind, Mode, Room, by_kind

Triple = tuple[int, int, int]
Price = tuple[int, int, int]
"""Idled GPUs per task gained (scaled), idled GPUs, tasks gained (negative: more is better)."""

_MAX_CHOICES = 256
"""More ways than this to stop the residents of one node are not looked at one by one."""

_MAX_AREAS = 32
"""Once something was found, no more domains than this are looked at for something better."""

_SCALE = 5040
"""Idled GPUs per task are compared in this fraction of a GPU, so that no float orders nodes."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Stops on one node: tasks gained, GPUs idled, and how many residents of each kind stop."""

    gain: int
    idled: int
    counts: tuple[int, ...]

    @property
    def price(self) -> Price:
        """The order in which choices are taken."""
        return (self.idled * _SCALE // self.gain, self.idled, -self.gain)


def clear_for(room: Room, row: int, pool: int, mode: Mode, may_stop: Callable[[int], bool] | None = None) -> Cleared | None:
    """The cheapest way found to make room in one pool; None where all stops together do not do.

    `may_stop` narrows the work that may be stopped.
    """
    if may_stop is not None:
        return _search(room, row, pool, mode, may_stop)
    key = (room.masks.demand_of(room.work(row)), pool, room.masks.horizon(room.until(row, mode)))
    known = room.clearings.get(key)
    if known is None or known[0] != room.reachable.version:
        known = room.clearings[key] = (room.reachable.version, _search(room, row, pool, mode, None))
    return known[1]


def _search(room: Room, row: int, pool: int, mode: Mode, may_stop: Callable[[int], bool] | None) -> Cleared | None:
    """Look at one set of nodes after the other."""
    work, until = room.work(row), room.until(row, mode)
    if room.reachable.find(work, pool, until, room.masks) is None:
        return None
    best: Cleared | None = None
    for count, nodes in enumerate(_areas(room, work, np.flatnonzero(room.masks.of(work, pool, until)))):
        if best is not None and (best.idled == 0 or (count >= _MAX_AREAS and best.idled <= work.gpus)):
            break
        found = _Clearing(room, row, nodes, may_stop).run()
        if found is not None and (best is None or found.idled < best.idled):
            best = found
    return best


def _areas(room: Room, work: Workload, nodes: IntArray) -> Iterator[IntArray]:
    """Sets of nodes of which the gang needs one: all, or the domains of the required level that could be cleared for it.

    Domains in which most tasks fit as it is come first.
    """
    layout, level = room.ent.layout, work.topology.required
    if level is None or not nodes.size:
        yield nodes
        return
    domain = layout.domain[layout.levels.index(level), nodes]
    size, shape = int(domain.max()) + 1, shape_of(work)
    could, fits = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    np.add.at(could, domain, np.minimum(room.reachable.counts.of(shape)[nodes], work.tasks))
    np.add.at(fits, domain, np.minimum(room.places.counts.of(shape)[nodes], work.tasks))
    for which in np.argsort(-fits, kind="stable").tolist():
        if could[which] >= work.tasks:
            yield nodes[domain == which]


@dataclass(slots=True, eq=False)
class _Clearing:
    """One attempt inside one set of nodes: `stops` so far, `freed` by them and `fits` (tasks) by node."""

    room: Room
    row: int
    nodes: IntArray
    may_stop: Callable[[int], bool] | None
    shape: Shape = field(init=False)
    stops: set[int] = field(default_factory=set)
    freed: dict[int, IntArray] = field(default_factory=dict)
    fits: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.shape = shape_of(self.room.work(self.row))

    def run(self) -> Cleared | None:
        """Stop residents until the gang fits, place it, and take back what need not stop after all."""
        work = self.room.work(self.row)
        tasks = self.room.places.counts.of(self.shape)[self.nodes]
        self.fits = dict(zip(self.nodes.tolist(), tasks.tolist(), strict=True))
        if work.topology.segment is None:
            self._gather(work.tasks)
        else:
            self._follow(work)
        placement = place_tasks(self.room.ent.layout, work, self._tasks(self.fits))
        if placement is None:
            return None
        self._take_back(placement)
        return Cleared(placement, tuple(sorted(self.stops)), self._idled(placement))

    def _tasks(self, fits: Mapping[int, int]) -> IntArray:
        room = np.zeros(len(self.room.ent.layout.names), dtype=np.int64)
        room[np.fromiter(fits.keys(), np.int64, len(fits))] = np.fromiter(fits.values(), np.int64, len(fits))
        return room

    def _gather(self, tasks: int) -> None:
        """Gain tasks node by node, cheapest first, until enough fit."""
        missing = tasks - sum(self.fits.values())
        heap = [(choice.price, node) for node in self.fits if missing > 0 and (choice := self._best(node, missing))]
        heapq.heapify(heap)
        while missing > 0 and heap:
            price, node = heapq.heappop(heap)
            choice = self._best(node, missing)
            if choice is None:
                continue
            if choice.price != price:  # the node has changed since, or fewer tasks are missing
                heapq.heappush(heap, (choice.price, node))
                continue
            for touched, gain in self._stop(node, choice):
                missing -= gain
                if later := self._best(touched, missing):
                    heapq.heappush(heap, (later.price, touched))

    def _follow(self, work: Workload) -> None:
        """Clear the nodes on which a gang with segments would lie if everything that can stop did."""
        reach = self.room.reachable.counts.of(self.shape)[self.nodes]
        room = self._tasks(dict(zip(self.nodes.tolist(), reach.tolist(), strict=True)))
        for node, tasks in (place_tasks(self.room.ent.layout, work, room) or {}).items():
            while (missing := tasks - self.fits[node]) > 0 and (choice := self._best(node, missing)):
                self._stop(node, choice)

    def _best(self, node: int, missing: int) -> Choice | None:
        """The cheapest way to gain some of the missing tasks on a node."""
        kinds = self._residents(node)
        if missing <= 0 or not kinds:
            return None
        counted = tuple((kind, len(rows)) for kind, rows in kinds)
        found = [choice for choice in _choices(self._free(node), counted, self.shape) if choice.gain <= missing]
        return min(found, key=lambda choice: choice.price, default=None)

    def _residents(self, node: int) -> tuple[tuple[Kind, tuple[int, ...]], ...]:
        if not self.stops and self.may_stop is None:
            return self.room.residents.on(node)
        residents = self.room.residents.by_node[node]
        allowed = self.may_stop or (lambda _: True)
        return by_kind({row: kind for row, kind in residents.items() if row not in self.stops and allowed(row)})

    def _free(self, node: int) -> Triple:
        free = self.room.free[:, node]
        gpus, cpus, memory = (free + self.freed[node] if node in self.freed else free).tolist()
        return gpus, cpus, memory

    def _stop(self, node: int, choice: Choice) -> Iterator[tuple[int, int]]:
        """Carry out a choice; yields the nodes of this set that it touches and the tasks gained on each."""
        touched: set[int] = set()
        for (_, rows), count in zip(self._residents(node), choice.counts, strict=True):
            for row in rows[:count]:
                self.stops.add(row)
                nodes, use = self.room.use(row, self.room.placement[row])
                for position, where in enumerate(nodes.tolist()):
                    self.freed[where] = self.freed.get(where, 0) + use[:, position]
                touched.update(nodes.tolist())
        return iter([(where, self._refit(where)) for where in sorted(touched) if where in self.fits])

    def _refit(self, node: int) -> int:
        """Count the tasks that fit on a node anew; returns how many more they are."""
        before, self.fits[node] = self.fits[node], _fit(self._free(node), self.shape)
        return self.fits[node] - before

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


def _fit(free: Triple, shape: Shape) -> int:
    """Tasks of a shape that fit into what is free."""
    return max(0, min(amount // each for amount, each in zip(free, shape, strict=True) if each))


@lru_cache(maxsize=1 << 14)
def _choices(free: Triple, kinds: tuple[tuple[Kind, int], ...], shape: Shape) -> tuple[Choice, ...]:
    """For every number of tasks that can be gained on a node, the stops that idle least."""
    before, best = _fit(free, shape), dict[int, tuple[int, int, tuple[int, ...]]]()
    for counts in _ways(tuple(number for _, number in kinds)):
        total = sum(kind[0] * count for (kind, _), count in zip(kinds, counts, strict=True))
        gpus, cpus, memory = (
            amount + sum(kind[1][resource] * count for (kind, _), count in zip(kinds, counts, strict=True))
            for resource, amount in enumerate(free)
        )
        for tasks in range(before + 1, _fit((gpus, cpus, memory), shape) + 1):
            option = (total - max(0, tasks * shape[0] - max(0, free[0])), total, counts)
            best[tasks] = min(best.get(tasks, option), option)
    return tuple(Choice(tasks - before, best[tasks][0], best[tasks][2]) for tasks in sorted(best))


def _ways(numbers: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """How many residents of each kind may stop: all combinations, or one more at a time where those are too many."""
    if prod(number + 1 for number in numbers) <= _MAX_CHOICES:
        yield from product(*(range(number + 1) for number in numbers))
        return
    counts = [0] * len(numbers)
    for kind, number in enumerate(numbers):
        for _ in range(number):
            counts[kind] += 1
            yield tuple(counts)
