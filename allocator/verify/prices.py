"""What it costs to gain room on one node by stopping unallocated work there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from math import prod

import numpy as np

from allocator.topology import GPUS, IntArray, Shape

Triple = tuple[int, int, int]
"""GPUs, CPUs and GiB."""

Kind = tuple[int, Triple]
"""What unallocated work on a node is like: GPUs of the whole workload, and what it uses on the node."""

NOTHING = 1 << 62
"""The price where nothing can be gained."""

_MAX_WAYS = 256
"""More ways than this to stop the residents of one node are not looked at one by one."""

_SCALE = 840
"""Idled GPUs per task are compared in this fraction of a GPU, so that no float orders nodes."""

_IDLED_BITS, _GAIN_BITS, _STOPS_BITS = 19, 7, 7
"""Room for the parts of a price in one number of 62 bits; larger parts count as the largest."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Stops on one node: tasks gained, GPUs idled, and how many residents of each kind stop."""

    gain: int
    idled: int
    counts: tuple[int, ...]

    @property
    def price(self) -> int:
        """The order in which choices are taken: GPUs idled per task, GPUs idled, the larger gain, fewer stops."""
        price = self.idled * _SCALE // self.gain
        losses = (1 << _GAIN_BITS) - 1 - self.gain
        for part, bits in ((self.idled, _IDLED_BITS), (losses, _GAIN_BITS), (sum(self.counts), _STOPS_BITS)):
            price = price << bits | min(max(part, 0), (1 << bits) - 1)
        return price


@dataclass(slots=True, eq=False)
class Residents:
    """Unallocated work that could be stopped: by node, its kinds and the rows of each kind, in order."""

    by_node: list[dict[int, Kind]]
    memo: dict[int, tuple[tuple[Kind, tuple[int, ...]], ...]] = field(default_factory=dict)

    def add(self, row: int, gpus: int, nodes: IntArray, use: IntArray) -> None:
        """The workload can be stopped where it lies."""
        for node, (units, cpus, memory) in zip(nodes.tolist(), use.T.tolist(), strict=True):
            self.by_node[node][row] = (gpus, (units, cpus, memory))
            self.memo.pop(node, None)

    def remove(self, row: int, nodes: IntArray) -> None:
        """The workload has gone, or is charged now."""
        for node in nodes.tolist():
            self.by_node[node].pop(row, None)
            self.memo.pop(node, None)

    def on(self, node: int) -> tuple[tuple[Kind, tuple[int, ...]], ...]:
        """Kinds on a node, smallest first, each with its rows."""
        if node not in self.memo:
            self.memo[node] = by_kind(self.by_node[node])
        return self.memo[node]


def by_kind(residents: Mapping[int, Kind]) -> tuple[tuple[Kind, tuple[int, ...]], ...]:
    """Rows grouped by kind, both in order."""
    kinds: dict[Kind, list[int]] = {}
    for row in sorted(residents):
        kinds.setdefault(residents[row], []).append(row)
    return tuple((kind, tuple(kinds[kind])) for kind in sorted(kinds))


@dataclass(slots=True, eq=False)
class _Table:
    """Prices of one shape by node, true as of a position in the log of changes."""

    prices: IntArray
    seen: int


@dataclass(slots=True, eq=False)
class Prices:
    """Prices of all nodes, counted anew only where something has changed.

    `free` (3, num_nodes) and `residents` belong to somebody else, who tells of every change. `log` lists the nodes changed.
    """

    free: IntArray
    residents: Residents
    capacity: IntArray
    log: list[int] = field(default_factory=list)
    tables: dict[tuple[Shape, int], _Table] = field(default_factory=dict)

    def changed(self, nodes: IntArray) -> None:
        """Take note that room or residents of some nodes have changed."""
        if self.tables:
            self.log.extend(nodes.tolist())

    def most(self, shape: Shape, missing: int) -> int:
        """The number of missing tasks that matters on one node: no more than an empty node takes."""
        return min(missing, int(self.capacity[GPUS].max(initial=0)) // shape[GPUS])

    def of(self, shape: Shape, missing: int) -> IntArray:
        """Price of the best choice on each node where that many tasks are missing, shape (num_nodes,); not to be changed."""
        key = (shape, self.most(shape, missing))
        table = self.tables.get(key)
        if table is None:
            occupied = [node for node, rows in enumerate(self.residents.by_node) if rows]
            table = self.tables[key] = _Table(np.full(self.free.shape[1], NOTHING, dtype=np.int64), len(self.log))
            self._count(table, key, occupied)
        elif table.seen < len(self.log):
            self._count(table, key, sorted(set(self.log[table.seen :])))
            table.seen = len(self.log)
        return table.prices

    def _count(self, table: _Table, key: tuple[Shape, int], nodes: list[int]) -> None:
        free = self.free[:, nodes].T.tolist()
        for node, (gpus, cpus, memory) in zip(nodes, free, strict=True):
            counted = tuple((kind, len(rows)) for kind, rows in self.residents.on(node))
            choice = cheapest((gpus, cpus, memory), counted, *key)
            table.prices[node] = NOTHING if choice is None else choice.price


@lru_cache(maxsize=1 << 16)
def cheapest(free: Triple, kinds: tuple[tuple[Kind, int], ...], shape: Shape, missing: int) -> Choice | None:
    """The best choice on a node where that many tasks are missing, None if none can be gained."""
    if not kinds:
        return None
    found = (choice for choice in _choices(free, kinds, shape) if choice.gain <= missing)
    return min(found, key=lambda choice: choice.price, default=None)


def fit(free: Triple, shape: Shape) -> int:
    """Tasks of a shape that fit into what is free."""
    return max(0, min(amount // each for amount, each in zip(free, shape, strict=True) if each))


@lru_cache(maxsize=1 << 14)
def _choices(free: Triple, kinds: tuple[tuple[Kind, int], ...], shape: Shape) -> tuple[Choice, ...]:
    """For every number of tasks that can be gained on a node, the stops that idle least."""
    before, best = fit(free, shape), dict[int, tuple[int, int, int, tuple[int, ...]]]()
    for counts in _ways(tuple(number for _, number in kinds)):
        total = sum(kind[0] * count for (kind, _), count in zip(kinds, counts, strict=True))
        gpus, cpus, memory = (
            amount + sum(kind[1][resource] * count for (kind, _), count in zip(kinds, counts, strict=True))
            for resource, amount in enumerate(free)
        )
        for tasks in range(before + 1, fit((gpus, cpus, memory), shape) + 1):
            option = (total - max(0, tasks * shape[GPUS] - max(0, free[GPUS])), total, sum(counts), counts)
            best[tasks] = min(best.get(tasks, option), option)
    return tuple(Choice(tasks - before, best[tasks][0], best[tasks][3]) for tasks in sorted(best))


def _ways(numbers: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """How many residents of each kind may stop: all combinations, or one more at a time where those are too many."""
    if prod(number + 1 for number in numbers) <= _MAX_WAYS:
        yield from product(*(range(number + 1) for number in numbers))
        return
    counts = [0] * len(numbers)
    for kind, number in enumerate(numbers):
        for _ in range(number):
            counts[kind] += 1
            yield tuple(counts)
