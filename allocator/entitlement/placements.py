"""Where runs lie: the entries that everything about nodes is added up from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from allocator.entitlement.columns import Columns
from allocator.topology import GPUS, BoolArray, IntArray, Layout


@dataclass(frozen=True, slots=True, eq=False)
class Placements:
    """Where runs lie, one entry for each node of each run, and of each run that was stopped at `now` if that is known; by row,
    and then by node.

    Attributes
    ----------
    row, node, tasks, gpus
        The workload, the node, and its tasks and GPUs there. Shape (num_entries,).
    before
        True if it lay there just before `now`.
    present
        True if it lies there now.
    """

    row: IntArray
    node: IntArray
    tasks: IntArray
    gpus: IntArray
    before: BoolArray
    present: BoolArray

    def of(self, row: int) -> tuple[IntArray, IntArray]:
        """Nodes on which a workload lies now, ascending, and its tasks there."""
        start, stop = np.searchsorted(self.row, (row, row + 1))
        here = slice(start, stop) if self.present[start:stop].all() else start + self.present[start:stop].nonzero()[0]
        return self.node[here], self.tasks[here]

    def on_nodes(self, rows: BoolArray, shape: IntArray, num_nodes: int) -> IntArray:
        """GPUs, CPUs and GiB that these workloads hold where they lie now, shape (3, num_nodes).

        `rows` has shape (num_workloads,), `shape` is that of their tasks, shape (3, num_workloads).
        """
        held = np.zeros((len(shape), num_nodes), dtype=np.int64)
        chosen = (self.present & rows[self.row]).nonzero()[0]
        if not len(chosen):
            return held
        row, node, tasks = self.row[chosen], self.node[chosen], self.tasks[chosen]
        for total, each in zip(held, shape[:, row], strict=True):
            if each.any():
                np.add.at(total, node, each * tasks)
        return held

    def in_turn(self, rows: BoolArray, leaves: BoolArray, comes: BoolArray, shape: IntArray, num_nodes: int) -> IntArray:
        """The same, where what is leaving and what is ordered for later may share a place: the larger of the two counts
        (`commitment`). `leaves` and `comes` have shape (num_workloads,); nothing is both.
        """
        stays, first, then = (self.on_nodes(rows & part, shape, num_nodes) for part in (~leaves & ~comes, leaves, comes))
        return stays + np.maximum(first, then)

    def of_all(self, rows: IntArray) -> list[tuple[IntArray, IntArray]]:
        """The same for each of some workloads, ascending."""
        row, node, tasks = self.row[self.present], self.node[self.present], self.tasks[self.present]
        bounds = zip(*(np.searchsorted(row, rows, side=side).tolist() for side in ("left", "right")), strict=True)
        return [(node[start:stop], tasks[start:stop]) for start, stop in bounds]


def read_placements(columns: Columns, layout: Layout, now: int) -> Placements:
    """Where work lies now, and where it lay just before; by row and node."""
    index, numbering = layout.index, columns.numbering.node
    row, number, tasks = columns.cells
    node = np.array([index.get(name, -1) for name in numbering], dtype=np.int64)[number]
    if node.min(initial=0) < 0:
        raise KeyError(next(name for name, own in numbering.items() if own == number[node.argmin()]))
    present = np.ones(len(row), dtype=bool)
    stops = _cells_of_stops(columns, layout, now)
    if len(stops):
        row, node, tasks = np.concatenate([[row, node, tasks], np.array(stops, dtype=np.int64).T], axis=1)
        present = np.arange(len(row)) < len(present)
    order = np.lexsort((present, tasks, node, row))
    row, node, tasks, present = row[order], node[order], tasks[order], present[order]
    waited = starts_now_or_later(columns, now)
    return Placements(row, node, tasks, tasks * columns.shape[GPUS, row], ~(present & waited[row]), present)


def _cells_of_stops(columns: Columns, layout: Layout, now: int) -> list[tuple[int, int, int]]:
    """Row, node and tasks where work lay that was stopped at `now`, as far as that is known and the nodes still exist."""
    index = layout.index
    stops = ((row, columns.works[row].stopped) for row in (columns.stopped_at == now).nonzero()[0].tolist())
    return [
        (row, index[name], tasks)
        for row, stop in stops
        if stop is not None and stop.placement is not None
        for name, tasks in stop.placement.items()
        if name in index
    ]


def starts_now_or_later(columns: Columns, now: int) -> BoolArray:
    """Runs that start at `now` by decision, or later: just before `now` they waited, shape (num_workloads,)."""
    stated = columns.start
    found: BoolArray = columns.running & (stated >= now) & ((stated > now) | (columns.granted_at == now) | ~columns.charged)
    return found
