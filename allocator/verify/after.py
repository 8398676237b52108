"""The state after a decision as arrays, built once and shared by all rules, by the score and by the room."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from allocator.entitlement.forced import UNFORCED
from allocator.entitlement.fresh import ordinary_starts
from allocator.entitlement.model import Entitlement
from allocator.topology import UNLIMITED, BoolArray, IntArray, once

_MOST = UNLIMITED << 4
"""Bound on what one entry uses: above every capacity, and small enough that no sum leaves 64 bits."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A start: node index -> tasks, and how it runs."""

    placement: Mapping[int, int]
    charged: bool
    express: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """Tasks on nodes as a list, one entry per workload and node; all arrays have shape (num_entries,).

    `use` are the GPUs, CPUs and GiB of the entry, shape (3, num_entries).
    """

    row: IntArray
    node: IntArray
    tasks: IntArray
    use: IntArray

    def of(self, row: int) -> slice:
        """The entries of a workload, where they stand in the order of the rows."""
        start, stop = np.searchsorted(self.row, (row, row + 1)).tolist()
        return slice(start, stop)

    def on_nodes(self, mask: BoolArray, num_nodes: int) -> IntArray:
        """What the workloads of the mask use on each node, shape (3, num_nodes)."""
        used = np.zeros((3, num_nodes), dtype=np.int64)
        chosen = mask[self.row].nonzero()[0]
        if not len(chosen):
            return used
        node = self.node[chosen]
        for total, use in zip(used, self.use[:, chosen], strict=True):
            if use.any():
                np.add.at(total, node, use)
        return used


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class AfterState:
    """What holds once a decision is carried out. Row masks have shape (num_workloads,), node arrays (3, num_nodes).

    Attributes
    ----------
    kept, stopped, started, promoted
        Running before and after; running before and stopped; started (perhaps after a stop); promoted in place.
    charged, express, pool
        How and where work runs afterwards; False and -1 where it does not.
    shapes
        GPUs, CPUs and GiB per task, shape (3, num_workloads).
    before, new
        Entries of all runs of the snapshot, and of the starts.
    placement
        Node index -> tasks of what runs afterwards, by row.
    used
        Resources on each node.
    held, held_charged
        GPUs by vertex and pool, shape (num_vertices, num_pools).
    """

    ent: Entitlement
    kept: BoolArray
    stopped: BoolArray
    started: BoolArray
    promoted: BoolArray
    charged: BoolArray
    express: BoolArray
    pool: IntArray
    shapes: IntArray
    before: Entries
    new: Entries
    placement: Mapping[int, Mapping[int, int]]
    used: IntArray
    held: IntArray
    held_charged: IntArray

    @property
    def running(self) -> BoolArray:
        """True where work runs afterwards."""
        return self.kept | self.started

    @property
    def free(self) -> IntArray:
        """What no task uses, shape (3, num_nodes); negative where a node is over-full."""
        return self.ent.layout.capacity - self.used

    @property
    def used_kept(self) -> IntArray:
        """What work uses that was kept and had not started at `now`, shape (3, num_nodes)."""
        return used_by_runs(self.ent, self.before, self.kept & ~ordinary_starts(self.ent))

    @property
    def used_express(self) -> IntArray:
        """What express starts use, shape (3, num_nodes)."""
        return self.new.on_nodes(self.started & self.express, len(self.ent.layout.names))

    @property
    def voluntary(self) -> BoolArray:
        """True for stops that were a choice."""
        forced: BoolArray = self.ent.works.forced != UNFORCED
        return self.stopped & ~forced


def build_after(
    ent: Entitlement, stops: Collection[int], starts: Mapping[int, Placed], promotions: Collection[int]
) -> AfterState:
    """The state after stops, starts and promotions, given by workload row. Nothing is checked here."""
    num_works, num_nodes = len(ent.snapshot.workloads), len(ent.layout.names)
    stopped, promoted, started = (_mask(rows, num_works) for rows in (stops, promotions, starts))
    kept = ent.works.running & ~stopped
    runs, shapes, before = placements_before(ent), ent.columns.shape, _entries_before(ent)
    new = _entries({row: start.placement for row, start in starts.items()}, shapes)
    charged = (kept & ent.works.charged) | promoted
    express = kept & ent.columns.express
    pool = np.where(kept, ent.works.run_pool, -1)
    for row, start in starts.items():
        charged[row], express[row] = start.charged, start.express
        pool[row] = _pool_of(ent, start.placement)
    running = kept | started
    held, num_pools = _by_vertex(ent, running, charged, pool), len(ent.layout.pools)
    return AfterState(
        ent=ent,
        kept=kept,
        stopped=stopped & ent.works.running,
        started=started,
        promoted=promoted,
        charged=charged,
        express=express,
        pool=pool,
        shapes=shapes,
        before=before,
        new=new,
        placement={row: nodes for row, nodes in runs.items() if kept[row]} | {row: s.placement for row, s in starts.items()},
        used=used_by_runs(ent, before, kept) + new.on_nodes(started, num_nodes),
        held=held[:, :num_pools],
        held_charged=held[:, num_pools:],
    )


def used_by_runs(ent: Entitlement, before: Entries, mask: BoolArray) -> IntArray:
    """What the runs of the mask use on each node, shape (3, num_nodes): what is leaving and what is ordered for later may
    share a place, so that the larger of the two counts."""
    num_nodes, works = len(ent.layout.names), ent.works
    leaves, comes = mask & works.terminating, mask & works.ordered
    if not (leaves.any() or comes.any()):
        return before.on_nodes(mask, num_nodes)
    both = np.maximum(before.on_nodes(leaves, num_nodes), before.on_nodes(comes, num_nodes))
    return before.on_nodes(mask & ~leaves & ~comes, num_nodes) + both


@once
def _entries_before(ent: Entitlement) -> Entries:
    """Entries of all runs of the snapshot."""
    places = ent.placements
    here = places.present
    row, node, tasks = places.row[here], places.node[here], places.tasks[here]
    return Entries(row, node, tasks, np.minimum(ent.columns.shape[:, row] * tasks, _MOST))


def placement_arrays(shape: IntArray, placement: Mapping[int, int]) -> tuple[IntArray, IntArray]:
    """Nodes of a placement, and the GPUs, CPUs and GiB used on them, shape (3, number of those nodes)."""
    nodes = np.fromiter(placement.keys(), np.int64, len(placement))
    tasks = np.fromiter(placement.values(), np.int64, len(placement))
    return nodes, np.minimum(shape[:, None] * tasks, _MOST)


@once
def placements_before(ent: Entitlement) -> dict[int, dict[int, int]]:
    """Node index -> tasks of all runs of the snapshot, by row."""
    before = _entries_before(ent)
    found: dict[int, dict[int, int]] = {}
    for row, node, tasks in zip(before.row.tolist(), before.node.tolist(), before.tasks.tolist(), strict=True):
        found.setdefault(row, {})[node] = tasks
    return found


def _entries(placements: Mapping[int, Mapping[int, int]], shapes: IntArray) -> Entries:
    cells = [(row, node, tasks) for row, nodes in placements.items() for node, tasks in nodes.items()]
    row, node, tasks = np.array(cells, dtype=np.int64).reshape(-1, 3).T
    return Entries(row, node, tasks, np.minimum(shapes[:, row] * tasks, _MOST))


def _mask(rows: Collection[int], size: int) -> BoolArray:
    mask = np.zeros(size, dtype=np.bool_)
    mask[np.fromiter(rows, dtype=np.int64, count=len(rows))] = True
    return mask


def _pool_of(ent: Entitlement, placement: Mapping[int, int]) -> int:
    node = next(iter(placement), None)
    return -1 if node is None else int(ent.layout.pool[node])


def _by_vertex(ent: Entitlement, mask: BoolArray, charged: BoolArray, pool: IntArray) -> IntArray:
    """GPUs of the given work by vertex and pool, and beside them those of the charged of it."""
    num_vertices, num_pools = ent.market.held.shape
    held = np.zeros((num_vertices, 2 * num_pools), dtype=np.int64)
    present = mask & (ent.works.leaf >= 0) & (pool >= 0)
    for first, chosen in ((0, present), (num_pools, present & charged)):
        rows = chosen.nonzero()[0]
        np.add.at(held, (ent.works.leaf[rows], first + pool[rows]), ent.works.gpus[rows])
    return ent.tree.sum_up(held)
