"""The state after a decision as far as further starts and stops change it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import numpy as np

from allocator.domain import Unfunded, Workload
from allocator.entitlement.alike import start_classes
from allocator.entitlement.model import Entitlement
from allocator.entitlement.tree import ROOT
from allocator.topology import IntArray, pool_order
from allocator.verify.after import AfterState, placement_arrays
from allocator.verify.lane import Lane
from allocator.verify.places import Places, TaskCounts, masks_of
from allocator.verify.prices import Prices, Residents


class Mode(Enum):
    """How a workload starts."""

    EXPRESS = "express"
    CHARGED = "charged"
    UNCHARGED = "uncharged"


_MODES = (Mode.UNCHARGED, Mode.CHARGED, Mode.EXPRESS)


@dataclass(frozen=True, slots=True)
class Refusal:
    """The rule that keeps a workload from starting, and why in plain words."""

    rule: str
    detail: str


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
    refusals
        Why none of those that are `alike` could start on free GPUs, by their number, with the version it holds for.
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
        self.shapes = after.shapes
        self.masks = masks_of(after.ent)
        self._residents: Residents | None = None
        self._prices: Prices | None = None
        self.modes: dict[int, Mode] = {}
        self.refusals: dict[int, tuple[int, Refusal]] = {}
        self.clearings: dict[tuple[object, ...], tuple[int, Cleared | None]] = {}
        self._pools: dict[tuple[str, ...], list[int]] = {}
        self.lane = Lane(after.ent)
        self._admit_all(after)
        self.places = Places(after.ent.layout, TaskCounts(self.free))
        self.reachable = Places(after.ent.layout, TaskCounts(self.reach))

    @cached_property
    def alike(self) -> list[int]:
        """By row, equal numbers for workloads that may start in the same ways."""
        numbers: list[int] = start_classes(self.ent).tolist()
        return numbers

    @property
    def residents(self) -> Residents:
        """Unallocated work that could be stopped, by node; counted when it is first asked for, and kept up to date then."""
        if self._residents is None:
            self._residents = Residents([{} for _ in self.ent.layout.names])
            for row in self._unallocated:
                self._residents.add(row, int(self.ent.works.gpus[row]), *self.use(row, self.placement[row]))
        return self._residents

    @property
    def prices(self) -> Prices:
        """What it costs to make room on each node."""
        if self._prices is None:
            self._prices = Prices(self.free, self.residents, self.ent.layout.capacity)
        return self._prices

    def work(self, row: int) -> Workload:
        """The workload of a row."""
        return self.ent.snapshot.workloads[row]

    def pools(self, row: int) -> list[int]:
        """Pools that the workload accepts, best first."""
        accepted = self.work(row).pools
        if accepted not in self._pools:
            self._pools[accepted] = pool_order(self.ent.layout, self.work(row))
        return self._pools[accepted]

    def mode(self, row: int, pool: int) -> Mode | Refusal:
        """How the workload would start in a pool if there were room, or what forbids it."""
        work = self.work(row)
        if self.ent.works.express[row]:
            full = self.lane.over(pool, work.gpus) or self.lane.crowded(work.user, 1)
            return Refusal("express", full) if full else Mode.EXPRESS
        if self.ent.works.unallocated[row]:
            return Mode.UNCHARGED
        if self.funded(row, pool):
            return Mode.CHARGED
        if work.unfunded is Unfunded.RUN:
            return Mode.UNCHARGED
        cost = self.cost(row, pool)
        return Refusal("funding", f"its promise of {cost} GPU-seconds is not funded, and it does not run unfunded")

    def cost(self, row: int, pool: int) -> int:
        """GPU-seconds that a promise to this workload takes in a pool."""
        return self.ent.cost(row, pool)

    def funded(self, row: int, pool: int) -> bool:
        """Whether every vertex that funds can still make the promise."""
        cost = self.cost(row, pool)
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
        residents = self.residents
        self.placement[row], self.modes[row] = placement, mode
        self._hold(row, 1)
        self._book(row, self._pool(placement), mode, 1)
        nodes, use = self.use(row, placement)
        self.free[:, nodes] -= use
        if mode is Mode.UNCHARGED:
            residents.add(row, int(self.ent.works.gpus[row]), nodes, use)
        else:
            self.reach[:, nodes] -= use
            self.reachable.changed(nodes, grew=False)
        self._changed(nodes, grew=False)

    def stop(self, row: int, *, refund: bool = False) -> None:
        """Add a stop, or take a start of this decision back (`refund`: its new promise is not made after all)."""
        residents = self.residents
        placement, mode = self.placement.pop(row), self.modes.pop(row)
        self._hold(row, -1)
        if refund or mode is Mode.EXPRESS:
            self._book(row, self._pool(placement), mode, -1)
        nodes, use = self.use(row, placement)
        self.free[:, nodes] += use
        if self._resident(row, placement):
            residents.remove(row, nodes)
        else:
            self.reach[:, nodes] += use
            self.reachable.changed(nodes, grew=True)
        self._changed(nodes, grew=True)

    def promote(self, row: int) -> None:
        """Add a promotion: the work is charged from now on and cannot be stopped for others."""
        placement, self.modes[row] = self.placement[row], Mode.CHARGED
        self._book(row, self._pool(placement), Mode.CHARGED, 1)
        nodes, use = self.use(row, placement)
        if self._resident(row, placement):
            self.residents.remove(row, nodes)
            self.reach[:, nodes] -= use
            self.reachable.changed(nodes, grew=False)
        self._changed(nodes, grew=False)

    def use(self, row: int, placement: Mapping[int, int]) -> tuple[IntArray, IntArray]:
        """Nodes, and the GPUs, CPUs and GiB that the workload uses on them (3, number of those nodes)."""
        return placement_arrays(self.shapes[:, row], placement)

    def _admit_all(self, after: AfterState) -> None:
        """Take in what runs after the decision."""
        running = after.running
        mode = np.where(after.express, 2, after.charged)
        rows = running.nonzero()[0]
        self.modes = dict(zip(rows.tolist(), map(_MODES.__getitem__, mode[rows].tolist()), strict=True))
        for row in (running & (after.express | after.started | after.promoted)).nonzero()[0].tolist():
            self._book(row, int(after.pool[row]), self.modes[row], 1)
        unallocated = running & (mode == 0) & (after.started | self.ent.works.stoppable)
        self._unallocated = unallocated.nonzero()[0].tolist()
        num_nodes = len(self.ent.layout.names)
        own = unallocated & ~after.started
        self.reach += after.before.on_nodes(own, num_nodes) + after.new.on_nodes(unallocated & after.started, num_nodes)

    def _book(self, row: int, pool: int, mode: Mode, sign: int) -> None:
        """Count a new promise against the budgets of the path, or an express run against the lane; `sign` -1 takes it back."""
        if mode is Mode.EXPRESS:
            (self.lane.enter if sign > 0 else self.lane.leave)(row, pool)
        elif mode is Mode.CHARGED and pool >= 0:
            for vertex in self._funders(row):
                self.left[vertex, pool] -= sign * self.cost(row, pool)

    def _funders(self, row: int) -> tuple[int, ...]:
        leaf = int(self.ent.works.leaf[row])
        return self.ent.tree.funding_path(leaf) if leaf >= 0 else ()

    def _hold(self, row: int, sign: int) -> None:
        for vertex in (ROOT, *self.ent.tree.path(int(self.ent.works.leaf[row]))):
            self.held[vertex] += sign * int(self.ent.works.gpus[row])

    def _pool(self, placement: Mapping[int, int]) -> int:
        return int(self.ent.layout.pool[next(iter(placement))])

    def _resident(self, row: int, placement: Mapping[int, int]) -> bool:
        """Whether the workload counts as unallocated work that could be stopped."""
        return row in self.residents.by_node[next(iter(placement))]

    def _changed(self, nodes: IntArray, *, grew: bool) -> None:
        self.places.changed(nodes, grew=grew)
        if self._prices is not None:
            self._prices.changed(nodes)
