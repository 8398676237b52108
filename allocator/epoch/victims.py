"""Victims and promotions: what may happen to running work by choice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from allocator.domain import Workload
from allocator.entitlement import Entitlement
from allocator.entitlement.costs import express_cost, idle_cost, spread_costs
from allocator.epoch.offers import Batch, fundable_alone
from allocator.epoch.problem import Promotions, Victims
from allocator.topology.fit import shape_of
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
    rows = np.flatnonzero(works.stoppable & (~works.charged | works.licensed | needed))
    nodes = tuple(_nodes_of(ent, int(row)) for row in rows)
    return Victims(
        work=rows.astype(np.int64),
        pool=works.run_pool[rows],
        leaf=works.leaf[rows],
        gpus=works.gpus[rows],
        charged=works.charged[rows],
        licensed=works.licensed[rows] | ~works.charged[rows],
        cost=np.array([_stop_cost(ent, int(row)) for row in rows], dtype=np.int64),
        nodes=nodes,
        need=tuple(needs_on(ent, int(row), own) for row, own in zip(rows, nodes, strict=True)),
    )


def _nodes_of(ent: Entitlement, row: int) -> IntArray:
    run = ent.snapshot.workloads[row].run
    assert run is not None
    return np.array(sorted(ent.layout.index[name] for name in run.placement), dtype=np.int64)


def needs_on(ent: Entitlement, row: int, nodes: IntArray) -> IntArray:
    """GPUs, CPUs and GiB that a running workload holds on the given nodes, shape (3, len(nodes))."""
    work = ent.snapshot.workloads[row]
    assert work.run is not None
    tasks = np.array([work.run.placement[ent.layout.names[node]] for node in nodes], dtype=np.int64)
    return np.array(shape_of(work), dtype=np.int64)[:, None] * tasks[None, :]


def spread_of(ent: Entitlement, row: int, work: Workload) -> int:
    """What the domains touched by a running gang beyond the fewest cost, in 1/1000 GPU-second."""
    if work.tasks == 1:
        return 0
    cost, fewest = spread_costs(ent, row, int(ent.works.run_pool[row]))
    nodes = _nodes_of(ent, row)
    touched = np.array([len(np.unique(domains)) for domains in ent.layout.domain[:, nodes]], dtype=np.int64)
    return int(np.sum(cost * np.maximum(touched - fewest, 0)))


def _stop_cost(ent: Entitlement, row: int) -> int:
    works, policy = ent.works, ent.snapshot.policy
    waits = int(works.order_cost[row]) + (express_cost(policy, int(works.gpus[row])) if works.express[row] else 0)
    idles = idle_cost(policy) * int(works.gpus[row])
    return int(works.lost_cost[row]) + waits + idles - spread_of(ent, row, ent.snapshot.workloads[row])


def build_promotions(ent: Entitlement, victims: Victims) -> Promotions:
    """Uncharged runs that could be funded alone and whose promise ends before any drain of their nodes
    and in time for every reservation."""
    works = ent.works
    rows = [int(row) for row in np.flatnonzero(works.promotable) if _may_be_promoted(ent, int(row))]
    victim = {int(row): r for r, row in enumerate(victims.work)}
    index = np.array(rows, dtype=np.int64)
    return Promotions(
        work=index,
        pool=works.run_pool[index],
        leaf=works.leaf[index],
        gpus=works.gpus[index],
        victim=np.array([victim.get(row, -1) for row in rows], dtype=np.int64),
        promise_cost=works.gpus[index] * works.promise[index],
    )


def _may_be_promoted(ent: Entitlement, row: int) -> bool:
    cost = int(ent.works.gpus[row] * ent.works.promise[row])
    if not fundable_alone(ent, row, int(ent.works.run_pool[row]), cost):
        return False
    until = ent.snapshot.now + int(ent.works.promise[row])
    return bool(np.all(ent.layout.promise_by[_nodes_of(ent, row)] >= until))
