"""The score of a decision, recomputed from the state after it."""

from __future__ import annotations

import numpy as np

from allocator.entitlement.costs import (
    Score,
    express_cost,
    fragmentation_cost,
    idle_cost,
    spread_cost,
    spread_of_runs,
    whole_before,
)
from allocator.topology import GPUS, IntArray, Layout, once
from allocator.verify.after import AfterState


@once
def score_of(after: AfterState) -> Score:
    """The terms of the objective in 1/1000 GPU-second."""
    works, waits = after.ent.works, ~after.running
    gpus = works.gpus[works.express & waits].tolist()
    return Score(
        unfairness=_unfairness(after),
        express=sum(express_cost(after.ent.snapshot.policy, size) for size in gpus),
        idle=_idle(after),
        lost_work=int(works.lost_cost[after.stopped].sum()),
        spread=_spread(after),
        fragmentation=_fragmentation(after),
        order=int(works.order_cost[waits].sum()),
    )


def _unfairness(after: AfterState) -> int:
    """The deviation curves at the charged GPUs of each vertex."""
    held = after.held_charged.tolist()
    return sum(curve.value(held[vertex][pool]) for (vertex, pool), curve in after.ent.market.curves.items())


def _idle(after: AfterState) -> int:
    """GPUs of accepting nodes that no task uses."""
    idle = np.maximum(after.free[GPUS], 0)[after.ent.layout.accepting]
    return idle_cost(after.ent.snapshot.policy) * int(idle.sum())


def _spread(after: AfterState) -> int:
    """Domains that gangs touch beyond the fewest possible."""
    total = int(spread_of_runs(after.ent)[after.kept & ~after.started].sum())
    for row in (after.started & (after.pool >= 0)).nonzero()[0].tolist():
        placement = after.placement[row]
        if len(placement) > 1:
            total += spread_cost(after.ent, row, np.array(list(placement), dtype=np.int64))
    return total


def _fragmentation(after: AfterState) -> int:
    """GPUs placed in, or left free of, what was wholly free just before now: the smaller number of the two."""
    layout, total = after.ent.layout, 0
    used = after.used[GPUS]
    for level, whole in enumerate(whole_before(after.ent)):
        if whole.any():
            placed = _sum_by_domain(layout, level, used)
            left = _capacity_of_domains(layout, level) - placed
            total += int(np.maximum(np.minimum(placed, left), 0)[whole].sum())
    return fragmentation_cost(after.ent.snapshot.policy) * total


def _capacity_of_domains(layout: Layout, level: int) -> IntArray:
    """GPUs of each domain of a level by pool, shape (num_domains, num_pools)."""
    return layout.remembered(("capacity", level), lambda: _sum_by_domain(layout, level, layout.capacity[GPUS]))


def _sum_by_domain(layout: Layout, level: int, values: IntArray) -> IntArray:
    """Values by node, added up by domain and pool."""
    total = np.zeros((len(layout.domain_paths[level]), len(layout.pools)), dtype=np.int64)
    np.add.at(total, (layout.domain[level], layout.pool), values)
    return total
