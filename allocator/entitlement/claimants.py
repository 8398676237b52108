"""Who counts in the demand beyond charged work, and who could start at all."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

import numpy as np

from allocator.domain import Reason, Snapshot
from allocator.entitlement.columns import NONE, Columns
from allocator.entitlement.contract import Contract
from allocator.entitlement.demand import queue_order
from allocator.entitlement.express import lane_candidates, lane_room
from allocator.entitlement.funding import Funds, fund_in_order, promise_costs, promises
from allocator.entitlement.healthy import Health, HealthCheck
from allocator.entitlement.places import NO_LEAF, NO_POOL, Places
from allocator.entitlement.tree import BudgetTree
from allocator.topology import BoolArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Claimants:
    """Arrays of shape (num_workloads,) unless stated; names as in `WorkTable` mean the same.

    Attributes
    ----------
    placeable
        Can be decided, and fits the nodes that accept work now.
    lane_room
        GPUs that the express lane of each pool had left just before `now`, shape (num_pools,).
    """

    promise: IntArray
    placeable: BoolArray
    impossible: Mapping[int, tuple[str, str]]
    express: BoolArray
    funded: BoolArray
    lane_room: IntArray


def read_claimants(
    snapshot: Snapshot, tree: BudgetTree, contract: Contract, places: Places, installed: IntArray, funds: Funds,
    reserved: Set[str], check: HealthCheck,
) -> Claimants:  # fmt: skip
    """Walk the queue: what cannot be placed is out, the express lane comes first, the rest is funded in order.

    `reserved` are the ids of gangs that reservations are kept for; `check` knows the nodes as they are now.
    """
    works, policy = snapshot.workloads, snapshot.policy
    # What counts as demand must not change with the promises of this very instant, so it asks for those before them.
    promise = promises(contract, places, tree, funds.available_before, policy)
    health, kind = check.judge_all(works, contract.columns.request, promise)
    impossible = _impossible(snapshot, places, health, kind)
    decidable = ~_mask(list(impossible), len(works)) & (places.leaf != NO_LEAF) & (places.home != NO_POOL)
    wants = contract.waiting_before | ~contract.charged_before
    queue = queue_order(contract, places.leaf, decidable & wants & ~contract.unallocated)
    fits_promise = np.array([verdict.fits_promise for verdict in health], dtype=bool)[kind]
    room = lane_room(contract, installed, policy)
    express = lane_candidates(contract, queue, places.home, fits_promise, room, snapshot, reserved)
    walk = _latched_first(contract.columns, snapshot.now, queue[(fits_promise & ~express)[queue]])
    funded = fund_in_order(tree, funds.available_before, walk, places, promise_costs(contract, promise))
    return Claimants(
        promise=promises(contract, places, tree, funds.available, policy),
        placeable=decidable & np.array([verdict.fits for verdict in health], dtype=bool)[kind],
        impossible=impossible,
        express=express,
        funded=express | _mask(funded, len(works)),
        lane_room=room,
    )


def _latched_first(columns: Columns, now: int, queue: IntArray) -> IntArray:
    """The queue with the gangs in front that latched before now: a reservation holds their funds."""
    mark = columns.entitled_since[queue]
    later = (mark == NONE) | (mark >= now)
    return queue[np.argsort(later, kind="stable")]


def _impossible(snapshot: Snapshot, places: Places, health: list[Health], kind: IntArray) -> dict[int, tuple[str, str]]:
    """What can never start as it is, with reason and detail: work that is no leaf's, and what fits no healthy cluster."""
    hopeless = np.array([verdict.impossible is not None for verdict in health], dtype=bool)[kind]
    found = ((row, health[kind[row]].impossible) for row in hopeless.nonzero()[0].tolist())
    never = {row: why for row, why in found if why is not None}
    for row in (places.orphan | (places.leaf == NO_LEAF)).nonzero()[0].tolist():
        allocation = snapshot.workloads[row].allocation
        detail = f"allocation {allocation!r} is unknown or has children; name a leaf of the budgets"
        never[row] = (Reason.INVALID_REQUEST.value, detail)
    return never


def _mask(rows: list[int] | IntArray, num: int) -> BoolArray:
    mask = np.zeros(num, dtype=bool)
    mask[np.asarray(rows, dtype=np.int64)] = True
    return mask
