"""What every allocation is owed, and what the contract says of every workload: pure functions of the snapshot."""

from allocator.entitlement.costs import (
    Score,
    express_cost,
    fragmentation_cost,
    idle_cost,
    round_half_up,
    spread_cost,
    spread_costs,
    whole_before,
)
from allocator.entitlement.curve import Curve
from allocator.entitlement.entitle import entitle
from allocator.entitlement.model import NO_BUDGET, Entitlement, Forced, Market, WorkTable
from allocator.entitlement.spreads import SpreadCosts
from allocator.entitlement.tree import BudgetTree

__all__ = [
    "NO_BUDGET",
    "BudgetTree",
    "Curve",
    "Entitlement",
    "Forced",
    "Market",
    "Score",
    "SpreadCosts",
    "WorkTable",
    "entitle",
    "express_cost",
    "fragmentation_cost",
    "idle_cost",
    "round_half_up",
    "spread_cost",
    "spread_costs",
    "whole_before",
]
