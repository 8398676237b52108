"""What arrangements are made from."""

from __future__ import annotations

from dataclasses import dataclass

from allocator.domain import Snapshot
from allocator.entitlement.contract import Contract
from allocator.entitlement.model import Market
from allocator.entitlement.places import Places
from allocator.entitlement.tree import BudgetTree
from allocator.topology import BoolArray, IntArray, Layout


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """What arrangements are made from; arrays of shape (num_workloads,).

    `first_submit`, shape (num_vertices, num_pools), is that of the demand. `gang` marks large gangs, `since` their
    `entitled_since`, `promise` the seconds of a start, `patient` what waits for victims that are leaving, `lost_cost` what a
    stop would cost.
    """

    snapshot: Snapshot
    layout: Layout
    tree: BudgetTree
    contract: Contract
    places: Places
    market: Market
    first_submit: IntArray
    gang: BoolArray
    since: IntArray
    promise: IntArray
    placeable: BoolArray
    patient: BoolArray
    lost_cost: IntArray
