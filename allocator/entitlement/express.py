"""The express lane: short small work that is always funded, a few GPUs at a time, filled in queue order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set

import numpy as np

from allocator.domain import ExpressLane, Policy, Snapshot, Workload
from allocator.entitlement.contract import Contract
from allocator.topology import BoolArray, IntArray

LEAST_ROOM = 8
"""GPUs that the lane of even the smallest pool has."""


def lane_room(contract: Contract, installed: IntArray, policy: Policy) -> IntArray:
    """GPUs that the lane of each pool had left just before `now`, shape (num_pools,)."""
    share = policy.express.pool_share
    limit = np.maximum(LEAST_ROOM, installed * share.numerator // share.denominator)
    rows = _in_lane(contract).nonzero()[0]
    taken = np.zeros_like(limit)
    np.add.at(taken, contract.held_pool[rows], contract.held_gpus[rows])
    room: IntArray = np.maximum(limit - taken, 0)
    return room


def lane_candidates(
    contract: Contract,
    queue: IntArray,
    home: IntArray,
    placeable: BoolArray,
    room: IntArray,
    snapshot: Snapshot,
    reserved: Set[str],
) -> BoolArray:
    """Mark the workloads that the lane has room for, one after the other in queue order, shape (num_workloads,).

    One that does not fit what is left is passed over, and so is a gang that a reservation is kept for (ids): it keeps that.
    What has started at this very instant outside the lane was no candidate before either.
    `queue` lists rows; `placeable` is True where a start that is promised its min runtime fits the healthy cluster.
    """
    works, lane = snapshot.workloads, snapshot.policy.express
    chosen = np.zeros(len(works), dtype=bool)
    left = room.tolist()
    by_user = Counter(works[row].user for row in _in_lane(contract).nonzero()[0].tolist())
    short = (contract.min_runtime > 0) & (contract.min_runtime <= lane.min_runtime)  # few are left to be looked at one by one
    for row in queue[(short & contract.waiting_before & placeable)[queue]].tolist():
        work, gpus, pool = works[row], int(contract.gpus[row]), home[row]
        if not open_to(work, lane) or work.id in reserved or by_user[work.user] >= lane.per_user or gpus > left[pool]:
            continue
        chosen[row] = True
        by_user[work.user] += 1
        left[pool] -= gpus
    return chosen


def _in_lane(contract: Contract) -> BoolArray:
    """True for runs that held GPUs of the lane just before `now` and need not leave."""
    in_lane: BoolArray = contract.express_before
    return in_lane


def open_to(work: Workload, lane: ExpressLane) -> bool:
    """Whether the lane is open to it: it is short and small, its user is known, and no decision has stopped it."""
    small = 0 < work.min_runtime <= lane.min_runtime and work.gpus <= lane.gpus
    fresh = work.preempted == 0 and (work.stopped is None or not work.stopped.begun) and (work.run is None or work.run.express)
    return small and fresh and work.user is not None
