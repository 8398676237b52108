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
        here = slice(start, stop) if self.present[start:stop].all() else start + np.flatnonzero(self.present[start:stop])
        return self.node[here], self.tasks[here]

    def of_all(self, rows: IntArray) -> list[tuple[IntArray, IntArray]]:
        """The same for each of some workloads, ascending."""
        chosen = self.present & np.isin(self.row, rows)
        cuts = np.searchsorted(self.row[chosen], rows[1:])
        nodes, tasks = (np.split(column[chosen], cuts) for column in (self.node, self.tasks))
        return list(zip(nodes, tasks, strict=True)) if len(rows) else []


def read_placements(columns: Columns, layout: Layout, now: int) -> Placements:
    """Where work lies now, and where it lay just before; by row and node."""
    cells: list[tuple[int, int, int, bool]] = []
    index, stopped_now = layout.index, columns.stopped_at == now
    for row in np.flatnonzero(columns.running | stopped_now).tolist():
        run, stop = columns.works[row].run, columns.works[row].stopped
        if run is not None:
            cells += [(row, index[name], tasks, True) for name, tasks in run.placement.items()]
        if stopped_now[row] and stop is not None and stop.placement is not None:
            cells += [(row, index[name], tasks, False) for name, tasks in stop.placement.items() if name in index]
    rows, nodes, counts, now_there = np.array(sorted(cells), dtype=np.int64).reshape(-1, 4).T
    present = now_there != 0
    waited = starts_now_or_later(columns, now)
    return Placements(rows, nodes, counts, counts * columns.shape[GPUS, rows], ~(present & waited[rows]), present)


def starts_now_or_later(columns: Columns, now: int) -> BoolArray:
    """Runs that start at `now` by decision, or later: just before `now` they waited, shape (num_workloads,)."""
    stated = columns.start
    found: BoolArray = columns.running & (stated >= now) & ((stated > now) | (columns.granted_at == now) | ~columns.charged)
    return found
