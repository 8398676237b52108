"""The state after a decision as far as further starts and stops change it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from allocator.domain import Unfunded, Workload
from allocator.entitlement.model import Entitlement
from allocator.topology import IntArray, pool_order
from allocator.verify.after import AfterState, placement_arrays, shape_array
from allocator.verify.lane import Lane
from allocator.verify.places import Masks, Places, TaskCounts


class Mode(Enum):
    """How a workload starts."""

    EXPRESS = "express"
    CHARGED = "charged"
    UNCHARGED = "uncharged"


@dataclass(frozen=True, slots=True)
class Refusal:
    """The rule that keeps a workload from starting, and why in plain words."""

    rule: str
    detail: str


Kind = tuple[int, tuple[int, int, int]]
"""What unallocated work on a node is like: GPUs of the whole workload, and what it uses on the node."""


@dataclass(slots=True, eq=False)
class Residents:
    """Unallocated work that could be stopped: by node, its kinds and the rows of each kind, in order."""

    by_node: list[dict[int, Kind]]
    memo: dict[int, tuple[tuple[Kind, tuple[int, ...]], ...]] = field(default_factory=dict)

    def add(self, row: int, gpus: int, nodes: IntArray, use: IntArray) -> None:
        """The workload can be stopped where it lies."""
        for node, amounts in zip(nodes.tolist(), use.T.tolist(), strict=True):
            self.by_node[node][row] = (gpus, tuple(amounts))
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


@dataclass(frozen=True, slots=True)
class Cleared:
    """A placement, the rows that have to stop for it, and how many of the GPUs freed by them the start leaves idle."""

    placement: Mapping[int, int]
    stops: tuple[int, ...]
    idled: int


class Room:
    """The state after a decision, kept up to date while starts and stops are added to it.

    Attributes
    ----------
    free
        GPUs, CPUs and GiB that no task uses, shape (3, num_nodes).
    reach
        The same plus what unallocated work uses that could be stopped.
    left
        GPU-seconds that a vertex can still promise, shape (num_vertices, num_pools).
    held
        GPUs that a vertex holds over all pools, shape (num_vertices,).
    placement
        Node index -> tasks of what runs, by workload row.
    clearings
        What was found by `clear_for`, by what was asked, with the version it holds for.
    """

    def __init__(self, after: AfterState) -> None:
        self.ent: Entitlement = after.ent
        self.free: IntArray = after.free
        self.reach: IntArray = self.free.copy()
        self.left: IntArray = after.ent.market.available.copy()
        self.held: IntArray = after.held.sum(axis=1)
        self.placement: dict[int, Mapping[int, int]] = dict(after.placement)
        self.shapes = shape_array(after.ent)
        self.masks = Masks(after.ent.layout)
        self.residents = Residents([{} for _ in after.ent.layout.names])
        self.modes: dict[int, Mode] = {}
        self.clearings: dict[tuple[object, ...], tuple[int, Cleared | None]] = {}
        self.lane = Lane(after.ent)
        for row in np.flatnonzero(after.running).tolist():
            self._admit(row, after)
        self.places = Places(after.ent.layout, TaskCounts(self.free))
        self.reachable = Places(after.ent.layout, TaskCounts(self.reach))

    def _admit(self, row: int, after: AfterState) -> None:
        """Take in one workload that runs after the decision."""
        new = bool(after.started[row] or after.promoted[row])
        mode = Mode.EXPRESS if after.express[row] else Mode.CHARGED if after.charged[row] else Mode.UNCHARGED
        self.modes[row] = mode
        pool = int(after.pool[row])
        if mode is Mode.CHARGED and new:
            self._pay(row, pool, 1)
        if mode is Mode.EXPRESS:
            self.lane.enter(row, pool)
        if mode is Mode.UNCHARGED and (after.started[row] or after.ent.works.stoppable[row]):
            self._yielding(row, after.placement[row], 1)

    def work(self, row: int) -> Workload:
        """The workload of a row."""
        return self.ent.snapshot.workloads[row]

    def pools(self, row: int) -> list[int]:
        """Pools that the workload accepts, best first."""
        return pool_order(self.ent.layout, self.work(row))

    def mode(self, row: int, pool: int) -> Mode | Refusal:
        """How the workload would start in a pool if there were room, or what forbids it."""
        work = self.work(row)
        if self.ent.works.express[row]:
            full = self.lane.over(pool, work.gpus) or self.lane.crowded(work.user, 1)
            return Refusal("express", full) if full else Mode.EXPRESS
        if work.min_runtime == 0:
            return Mode.UNCHARGED
        if self.funded(row, pool):
            return Mode.CHARGED
        if work.unfunded is Unfunded.RUN:
            return Mode.UNCHARGED
        return Refusal("funding", f"its promise of {self.cost(row)} GPU-seconds is not funded, and it does not run unfunded")

    def cost(self, row: int) -> int:
        """GPU-seconds that a promise to this workload takes."""
        return int(self.ent.works.gpus[row]) * int(self.ent.works.promise[row])

    def funded(self, row: int, pool: int) -> bool:
        """Whether every vertex that funds can still make the promise."""
        cost = self.cost(row)
        return all(int(self.left[vertex, pool]) >= cost for vertex in self._funders(row))

    def binding(self, row: int, gone: Collection[int] = ()) -> int:
        """The vertex nearest to the leaf whose GPU limit a start would break after some stops, -1 if none."""
        tree, works = self.ent.tree, self.ent.works
        for vertex in tree.path(int(works.leaf[row])):
            limit = int(tree.gpu_limit[vertex])
            if 0 <= limit < self._held_with(row, vertex, gone):
                return vertex
        return -1

    def limit(self, row: int, gone: Collection[int] = ()) -> Refusal | None:
        """The refusal that goes with `binding`."""
        vertex = self.binding(row, gone)
        if vertex < 0:
            return None
        held, limit = self._held_with(row, vertex, gone), int(self.ent.tree.gpu_limit[vertex])
        return Refusal("gpu_limit", f"{self.ent.tree.ids[vertex]} would hold {held} GPUs, its limit is {limit}")

    def _held_with(self, row: int, vertex: int, gone: Collection[int]) -> int:
        tree, works = self.ent.tree, self.ent.works
        freed = sum(int(works.gpus[stop]) for stop in gone if vertex in tree.path(int(works.leaf[stop])))
        return int(self.held[vertex]) - freed + int(works.gpus[row])

    def barred(self, row: int) -> Refusal | None:
        """Why the workload cannot start whatever is free."""
        if row in self.placement:
            return Refusal("gang", "runs already")
        if not self.ent.works.candidate[row]:
            return Refusal("commitment", "is no candidate now: it was stopped at this instant, or can never be placed")
        return None

    def until(self, row: int, mode: Mode) -> int | None:
        """The end of the promise of a start now; None where none is made."""
        return None if mode is Mode.UNCHARGED else self.ent.snapshot.now + int(self.ent.works.promise[row])

    def start(self, row: int, placement: Mapping[int, int], mode: Mode) -> None:
        """Add a start."""
        pool = int(self.ent.layout.pool[next(iter(placement))])
        self.placement[row] = placement
        self.modes[row] = mode
        self._hold(row, 1)
        if mode is Mode.CHARGED:
            self._pay(row, pool, 1)
        if mode is Mode.EXPRESS:
            self.lane.enter(row, pool)
        self._use(row, placement, 1)
        if mode is Mode.UNCHARGED:
            self._yielding(row, placement, 1)
        self._changed(placement, grew=False)

    def stop(self, row: int, *, refund: bool = False) -> None:
        """Add a stop, or take a start of this decision back (`refund`: its new promise is not made after all)."""
        placement, mode = self.placement.pop(row), self.modes.pop(row)
        pool = int(self.ent.layout.pool[next(iter(placement))])
        self._hold(row, -1)
        if mode is Mode.CHARGED and refund:
            self._pay(row, pool, -1)
        if mode is Mode.EXPRESS:
            self.lane.leave(row, pool)
        if row in self.residents.by_node[next(iter(placement))]:
            self._yielding(row, placement, -1)
        self._use(row, placement, -1)
        self._changed(placement, grew=True)

    def promote(self, row: int) -> None:
        """Add a promotion: the work is charged from now on and cannot be stopped for others."""
        placement = self.placement[row]
        self.modes[row] = Mode.CHARGED
        self._pay(row, int(self.ent.layout.pool[next(iter(placement))]), 1)
        if row in self.residents.by_node[next(iter(placement))]:
            self._yielding(row, placement, -1)
        self._changed(placement, grew=False)

    def _funders(self, row: int) -> tuple[int, ...]:
        leaf = int(self.ent.works.leaf[row])
        return self.ent.tree.funding_path(leaf) if leaf >= 0 else ()

    def _pay(self, row: int, pool: int, sign: int) -> None:
        for vertex in self._funders(row) if pool >= 0 else ():
            self.left[vertex, pool] -= sign * self.cost(row)

    def _hold(self, row: int, sign: int) -> None:
        for vertex in self.ent.tree.path(int(self.ent.works.leaf[row])):
            self.held[vertex] += sign * int(self.ent.works.gpus[row])

    def use(self, row: int, placement: Mapping[int, int]) -> tuple[IntArray, IntArray]:
        """Nodes, and the GPUs, CPUs and GiB that the workload uses on them (3, number of those nodes)."""
        return placement_arrays(self.shapes[:, row], placement)

    def _use(self, row: int, placement: Mapping[int, int], sign: int) -> None:
        nodes, use = self.use(row, placement)
        self.free[:, nodes] -= sign * use
        self.reach[:, nodes] -= sign * use

    def _yielding(self, row: int, placement: Mapping[int, int], sign: int) -> None:
        nodes, use = self.use(row, placement)
        self.reach[:, nodes] += sign * use
        if sign > 0:
            self.residents.add(row, int(self.ent.works.gpus[row]), nodes, use)
        else:
            self.residents.remove(row, nodes)

    def _changed(self, placement: Mapping[int, int], *, grew: bool) -> None:
        nodes = np.fromiter(placement.keys(), np.int64, len(placement))
        self.places.changed(nodes, grew=grew)
        self.reachable.changed(nodes, grew=grew)
