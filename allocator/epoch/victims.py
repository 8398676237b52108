"""Victims and promotions: what may happen to running work by choice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from allocator.entitlement import Entitlement
from allocator.entitlement.costs import express_cost, idle_cost, spread_of_runs
from allocator.epoch.offers import Batch, fundable_alone
from allocator.epoch.problem import Promotions, Victims
from allocator.topology.layout import IntArray


def build_victims(ent: Entitlement, batches: Sequence[Batch]) -> Victims:
    """All stoppable work that some start could have a licence to stop.

    Charged work without a licence is a victim only where an express start might need its place, or where it may move.
    """
    works = ent.works
    express = {draft.pool for batch in batches for draft in batch.drafts if draft.express}
    needed = np.isin(works.run_pool, sorted(express))
    for batch in batches:
        needed[batch.rows] |= works.movable[batch.rows]
    rows = (works.stoppable & (~works.charged | works.licensed | needed)).nonzero()[0]
    held = ent.placements.of_all(rows)
    nodes = tuple(own for own, _ in held)
    shapes = ent.columns.shape
    return Victims(
        work=rows.astype(np.int64),
        pool=works.run_pool[rows],
        leaf=works.leaf[rows],
        gpus=works.gpus[rows],
        charged=works.charged[rows],
        licensed=works.licensed[rows] | ~works.charged[rows],
        cost=_stop_costs(ent, rows),
        nodes=nodes,
        need=tuple(shapes[:, row, None] * tasks for row, (_, tasks) in zip(rows.tolist(), held, strict=True)),
    )


def _stop_costs(ent: Entitlement, rows: IntArray) -> IntArray:
    """What it costs to stop each of these runs, in 1/1000 GPU-second, but for the unfairness; shape (num_rows,)."""
    works, policy = ent.works, ent.snapshot.policy
    gpus, express = works.gpus[rows], works.express[rows]
    cost = works.lost_cost[rows] + works.order_cost[rows] + idle_cost(policy) * gpus - spread_of_runs(ent)[rows]
    for size in np.unique(gpus[express]).tolist():
        cost[express & (gpus == size)] += express_cost(policy, size)
    return np.asarray(cost, dtype=np.int64)


def build_promotions(ent: Entitlement, victims: Victims) -> Promotions:
    """Uncharged runs that could be funded alone and whose promise ends before any drain of their nodes
    and in time for every reservation."""
    works = ent.works
    rows = [int(row) for row in works.promotable.nonzero()[0] if _may_be_promoted(ent, int(row))]
    victim = {int(row): r for r, row in enumerate(victims.work)}
    index = np.array(rows, dtype=np.int64)
    return Promotions(
        work=index,
        pool=works.run_pool[index],
        leaf=works.leaf[index],
        gpus=works.gpus[index],
        victim=np.array([victim.get(row, -1) for row in rows], dtype=np.int64),
        promise_cost=works.promise_cost[index],
    )


def _may_be_promoted(ent: Entitlement, row: int) -> bool:
    cost = int(ent.works.promise_cost[row])
    if not fundable_alone(ent, row, int(ent.works.run_pool[row]), cost):
        return False
    until = ent.snapshot.now + int(ent.works.promise[row])
    return bool(np.all(ent.layout.promise_by[ent.placements.of(row)[0]] >= until))
