"""What a decision tells people, where it can be checked: who waits, which nodes are empty, what allocations hold."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from allocator.domain import AllocationRow
from allocator.entitlement.model import NO_BUDGET
from allocator.topology import GPUS, IntArray
from allocator.verify.case import Case
from allocator.verify.verdict import Violation


def explained(case: Case) -> Iterator[Violation]:
    """Ensures that explanations, where they are given, are of what the decision does."""
    yield from _waiting_rows(case)
    yield from _drain_rows(case)
    yield from _allocation_rows(case)


def _waiting_rows(case: Case) -> Iterator[Violation]:
    """Ensures that `waiting` names what waits, all of it, each once, and with the mark of its entitlement."""
    if not case.rows.waiting:
        return
    since = {
        case.id(row): int(case.ent.works.entitled_since[row]) or None for row in (~case.after.running).nonzero()[0].tolist()
    }
    waits = since.keys() | {rejection.workload for rejection in case.ent.snapshot.rejected}
    said: set[str] = set()
    for row in case.rows.waiting:
        if row.workload not in waits:
            yield Violation("document", row.workload, "stands in waiting, but does not wait")
        elif row.workload in said:
            yield Violation("document", row.workload, "stands in waiting more than once")
        elif row.entitled_since != since.get(row.workload):
            detail = f"is said to be entitled since {row.entitled_since}, not {since.get(row.workload)}"
            yield Violation("document", row.workload, detail)
        said.add(row.workload)
    for name in sorted(waits - said):
        yield Violation("document", name, "waits, but does not stand in waiting")


def _drain_rows(case: Case) -> Iterator[Violation]:
    """Ensures that a node is called drained when nothing runs on it."""
    index = case.ent.layout.index
    for row in case.rows.drains:
        if row.node not in index:
            yield Violation("document", row.node, "stands in drains, but is no node of the cluster")
        elif row.drained != (not case.after.used[GPUS, index[row.node]]):
            yield Violation("document", row.node, f"is {'not ' if row.drained else ''}drained")


def _allocation_rows(case: Case) -> Iterator[Violation]:
    """Ensures that the figures of allocations are those of snapshot and decision."""
    if not case.rows.allocations:
        return
    tree, market, pools = case.ent.tree, case.ent.market, case.ent.layout.pools
    columns = (market.budget, market.usage, market.entitled, _held_before(case), case.after.held)
    budget, usage, entitled, before, held = (table.tolist() for table in columns)
    true = {
        (name, pools[pool]): AllocationRow(
            id=name,
            pool=pools[pool],
            share=0.0,
            budget_gpu_seconds=None if budget[vertex][pool] == NO_BUDGET else budget[vertex][pool],
            usage_gpu_seconds=usage[vertex][pool],
            entitled_milli=entitled[vertex][pool],
            gpus_before=before[vertex][pool],
            gpus_after=held[vertex][pool],
        )
        for vertex, name in enumerate(tree.ids)
        for pool in range(len(pools))
        if vertex not in tree.orphans.values()
    }
    for row in case.rows.allocations:
        right = true.get((row.id, row.pool))
        if right is None:
            if row.id not in tree.orphans:
                yield Violation("document", row.id, f"stands in allocations, but holds no part of pool {row.pool}")
            continue
        for key in ("budget_gpu_seconds", "usage_gpu_seconds", "entitled_milli", "gpus_before", "gpus_after"):
            if row.id not in tree.orphans and getattr(row, key) != getattr(right, key):
                detail = f"{key} in {row.pool} is {getattr(right, key)}, not {getattr(row, key)}"
                yield Violation("document", row.id, detail)


def _held_before(case: Case) -> IntArray:
    """GPUs of all runs of the snapshot, by vertex and pool."""
    works = case.ent.works
    rows = (works.running & (works.leaf >= 0)).nonzero()[0]
    held = np.zeros(case.ent.market.held.shape, dtype=np.int64)
    np.add.at(held, (works.leaf[rows], works.run_pool[rows]), works.gpus[rows])
    total: IntArray = case.ent.tree.sum_up(held)
    return total
