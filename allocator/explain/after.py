"""What runs once a decision has been carried out, and until when promises hold it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from allocator.domain import Decision
from allocator.entitlement.columns import NONE
from allocator.entitlement.forced import UNFORCED
from allocator.entitlement.model import Entitlement
from allocator.topology import NEVER, BoolArray, IntArray, shape_of


@dataclass(frozen=True, slots=True, eq=False)
class After:
    """The state after a decision; rows are those of the canonical snapshot.

    Attributes
    ----------
    row
        Row by id of the workload.
    placement
        Node name -> tasks, of every row that runs.
    pool
        Pool in which a row runs, -1 where it does not, shape (num_workloads,).
    release
        The instant from which the GPUs of a row may be had: the end of its promise, a drain deadline before that, or the
        end of its notice. 0 where it may be stopped at any time, shape (num_workloads,).
    entry_row, entry_node
        One entry for each workload and node it lies on, shape (num_entries,).
    use
        GPUs, CPUs and GiB of each entry, shape (3, num_entries).
    before, held
        GPUs by vertex and pool, charged or not: in the snapshot, and afterwards. Shape (num_vertices, num_pools).
    promised
        GPU-seconds that the decision promises at each vertex and pool, express starts apart.
    leaves, comes
        Stopped by an earlier decision and still there; started by an earlier decision for later. Shape (num_workloads,).
    """

    row: Mapping[str, int]
    placement: Mapping[int, Mapping[str, int]]
    pool: IntArray
    release: IntArray
    entry_row: IntArray
    entry_node: IntArray
    use: IntArray
    before: IntArray
    held: IntArray
    promised: IntArray
    leaves: BoolArray
    comes: BoolArray

    @property
    def running(self) -> BoolArray:
        """Which rows run, shape (num_workloads,)."""
        return self.pool >= 0

    def used(self, rows: BoolArray, num_nodes: int) -> IntArray:
        """GPUs, CPUs and GiB that the chosen rows use on each node, shape (3, num_nodes).

        What is leaving and what is ordered for later may share a place: the larger of the two counts.
        """
        leaves, comes = rows & self.leaves, rows & self.comes
        if leaves.any() and comes.any():
            both = np.maximum(self._sum(leaves, num_nodes), self._sum(comes, num_nodes))
            return self._sum(rows & ~leaves & ~comes, num_nodes) + both
        return self._sum(rows, num_nodes)

    def _sum(self, rows: BoolArray, num_nodes: int) -> IntArray:
        chosen = rows[self.entry_row]
        nodes = self.entry_node[chosen]
        return np.stack([_add_up(nodes, amounts[chosen], num_nodes) for amounts in self.use])


def build_after(ent: Entitlement, decision: Decision) -> After:
    """Carry out the starts, stops, promotions and renewals of a decision, in arrays."""
    row = ent.columns.index
    placement = _placements(ent, decision, row)
    entry_row, entry_node, use = _entries(ent, placement)
    pool = np.full(len(row), -1, dtype=np.int64)
    pool[entry_row] = ent.layout.pool[entry_node]
    return After(
        row=row,
        placement=placement,
        pool=pool,
        release=_release(ent, decision, row, entry_row, entry_node),
        entry_row=entry_row,
        entry_node=entry_node,
        use=use,
        before=_held(ent, np.where(ent.works.running, ent.works.run_pool, -1)),
        held=_held(ent, pool),
        promised=_promised(ent, decision, row, pool),
        leaves=ent.works.terminating,
        comes=ent.works.ordered & (ent.works.forced == UNFORCED),
    )


def _placements(ent: Entitlement, decision: Decision, row: Mapping[str, int]) -> dict[int, Mapping[str, int]]:
    stopped = {stop.workload for stop in decision.preemptions}
    running = ((index, ent.snapshot.workloads[index]) for index in ent.works.running.nonzero()[0].tolist())
    kept = {index: work.run.placement for index, work in running if work.run is not None and work.id not in stopped}
    return kept | {row[start.workload]: start.placement for start in decision.starts}


def _entries(ent: Entitlement, placement: Mapping[int, Mapping[str, int]]) -> tuple[IntArray, IntArray, IntArray]:
    works, index = ent.snapshot.workloads, ent.layout.index
    cells = [
        (row, index[name], *(tasks * amount for amount in shape_of(works[row])))
        for row, nodes in placement.items()
        for name, tasks in nodes.items()
    ]
    columns = np.array(cells, dtype=np.int64).reshape(-1, 5).T
    return columns[0], columns[1], columns[2:]


def _release(
    ent: Entitlement, decision: Decision, row: Mapping[str, int], entry_row: IntArray, entry_node: IntArray
) -> IntArray:
    works, now = ent.works, ent.snapshot.now
    release = np.where(works.protected, works.protected_until, 0)
    for stop in decision.preemptions:
        release[row[stop.workload]] = 0
    for start in decision.starts:
        release[row[start.workload]] = start.protected_until or 0
    for promotion in decision.promotions:
        release[row[promotion.workload]] = promotion.protected_until
    for renewal in decision.renewals:
        release[row[renewal.workload]] = renewal.protected_until
    release = np.where(ent.columns.leaves == NONE, release, ent.columns.leaves)
    deadline = np.full(len(row), NEVER, dtype=np.int64)
    np.minimum.at(deadline, entry_row, ent.layout.deadline[entry_node])
    release = np.minimum(release, deadline)
    return np.where(release > now, release, 0)


def _held(ent: Entitlement, pool: IntArray) -> IntArray:
    """GPUs by vertex and pool of what runs in these pools, subtrees included."""
    works = ent.works
    held = np.zeros(ent.market.held.shape, dtype=np.int64)
    rows = ((pool >= 0) & (works.leaf >= 0)).nonzero()[0]
    np.add.at(held, (works.leaf[rows], pool[rows]), works.gpus[rows])
    total: IntArray = ent.tree.sum_up(held)
    return total


def _promised(ent: Entitlement, decision: Decision, row: Mapping[str, int], pool: IntArray) -> IntArray:
    works = ent.works
    charged = [row[start.workload] for start in decision.starts if start.charged and not start.express]
    rows = np.array([*charged, *(row[promotion.workload] for promotion in decision.promotions)], dtype=np.int64)
    rows = rows[works.leaf[rows] >= 0]
    promised = np.zeros(ent.market.held.shape, dtype=np.int64)
    rows = rows[works.prepaid[rows] != pool[rows]]
    np.add.at(promised, (works.leaf[rows], pool[rows]), works.promise_cost[rows])
    total: IntArray = ent.tree.sum_up(promised)
    return total


def _add_up(node: IntArray, amount: IntArray, num_nodes: int) -> IntArray:
    # Sums stay below 2**53, where doubles are exact.
    return np.bincount(node, weights=amount, minlength=num_nodes).astype(np.int64)
