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
from allocator.topology import GPUS, IntArray, once
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
    held = after.held_charged
    return sum(curve.value(int(held[place])) for place, curve in after.ent.market.curves.items())


def _idle(after: AfterState) -> int:
    """GPUs of accepting nodes that no task uses."""
    idle = np.maximum(after.free[GPUS], 0)[after.ent.layout.accepting]
    return idle_cost(after.ent.snapshot.policy) * int(idle.sum())


def _spread(after: AfterState) -> int:
    """Domains that gangs touch beyond the fewest possible."""
    total = int(spread_of_runs(after.ent)[after.kept & ~after.started].sum())
    for row in np.flatnonzero(after.started & (after.pool >= 0)).tolist():
        placement = after.placement[row]
        if len(placement) > 1:
            total += spread_cost(after.ent, row, np.array(list(placement), dtype=np.int64))
    return total


def _fragmentation(after: AfterState) -> int:
    """GPUs placed in, or left free of, what was wholly free just before now: the smaller number of the two."""
    layout, total = after.ent.layout, 0
    used = after.used[GPUS]
    for level, whole in enumerate(whole_before(after.ent)):
        shape = whole.shape
        place = layout.domain[level], layout.pool
        placed = _sum_at(place, used, shape)
        left = _sum_at(place, layout.capacity[GPUS], shape) - placed
        total += int(np.maximum(np.minimum(placed, left), 0)[whole].sum())
    return fragmentation_cost(after.ent.snapshot.policy) * total


def _sum_at(place: tuple[IntArray, IntArray], values: IntArray, shape: tuple[int, ...]) -> IntArray:
    total = np.zeros(shape, dtype=np.int64)
    np.add.at(total, place, values)
    return total
