"""The rows about nodes that drain and about allocations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from allocator.domain import AllocationRow, DrainRow, Node, NodeState
from allocator.entitlement.model import NO_BUDGET, Entitlement
from allocator.entitlement.tree import BudgetTree
from allocator.explain.after import After
from allocator.topology import once


def drain_rows(ent: Entitlement, after: After) -> tuple[DrainRow, ...]:
    """One row for each node that drains or will: whether it is empty, when it will be, and whose promises it waits for."""
    nodes = [node for node in ent.snapshot.cluster.nodes if node.state is NodeState.DRAIN or node.drain_deadline is not None]
    rows_on = _rows_on(ent, after, nodes)
    return tuple(_drain_row(ent, after, node, rows_on[node.name]) for node in sorted(nodes, key=lambda node: node.name))


def _rows_on(ent: Entitlement, after: After, nodes: Sequence[Node]) -> dict[str, list[int]]:
    """What runs on these nodes after the decision, by node."""
    found: dict[str, list[int]] = {node.name: [] for node in nodes}
    wanted = np.zeros(len(ent.layout.names), dtype=np.bool_)
    wanted[[ent.layout.index[name] for name in found]] = True
    chosen = wanted[after.entry_node]
    for row, node in zip(after.entry_row[chosen].tolist(), after.entry_node[chosen].tolist(), strict=True):
        found[ent.layout.names[node]].append(row)
    return found


def _drain_row(ent: Entitlement, after: After, node: Node, rows: Sequence[int]) -> DrainRow:
    works, now = ent.snapshot.workloads, ent.snapshot.now
    promised = sorted((int(after.release[row]), works[row].id) for row in rows if after.release[row] > 0)
    return DrainRow(
        node=node.name,
        drained=not rows,
        free_at=_free_at(node, rows, [until for until, _ in promised], now),
        waits_for=tuple(key for _, key in promised),
    )


def _free_at(node: Node, rows: Sequence[int], promises: Sequence[int], now: int) -> int | None:
    """The instant at which nothing is left on the node, if nothing ends by itself.

    Off a node in state drain work goes when its promise ends; an announced drain removes nothing before its deadline.
    """
    if not rows:
        return now
    announced = node.state is NodeState.UP and node.drain_deadline is not None
    return node.drain_deadline if announced else max(promises, default=None)


def allocation_rows(ent: Entitlement, after: After) -> tuple[AllocationRow, ...]:
    """One row for each vertex but the root and each pool, orphans included, by id and pool."""
    market, tree = ent.market, ent.tree
    cells = [(tree.ids[vertex], vertex, pool) for vertex in range(1, len(tree.ids)) for pool in range(len(ent.layout.pools))]
    share, budget, usage, entitled, before, held = (
        table.tolist() for table in (_shares(tree), market.budget, market.usage, market.entitled, after.before, after.held)
    )
    return tuple(
        AllocationRow(
            id=name,
            pool=ent.layout.pools[pool],
            share=share[vertex][pool],
            budget_gpu_seconds=None if budget[vertex][pool] == NO_BUDGET else budget[vertex][pool],
            usage_gpu_seconds=usage[vertex][pool],
            entitled_milli=entitled[vertex][pool],
            gpus_before=before[vertex][pool],
            gpus_after=held[vertex][pool],
        )
        for name, vertex, pool in sorted(cells)
    )


@once
def _shares(tree: BudgetTree) -> npt.NDArray[np.float64]:
    """Path shares as floats, shape (num_vertices, num_pools)."""
    return tree.share.astype(np.float64)
