"""Who is owed how many GPUs: water-filling with memory."""

from __future__ import annotations

from dataclasses import dataclass

from allocator.entitlement.tree import BudgetTree, ObjectArray
from allocator.topology.layout import BoolArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class FillResult:
    """What every vertex is owed, by vertex and pool; arrays of shape (num_vertices, num_pools), read-only.

    Attributes
    ----------
    entitled
        1/1000 GPU. That of the root is what the pool hands out: its capacity, at most all demand, at least all floors.
    level
        Level of the set of siblings that a vertex belongs to, a `Fraction`; None where no sibling of positive weight has
        demand, and for the root. GPU-seconds per unit of weight.
    interior
        True where the level alone decides (`entitled` lies between floor and demand and was rounded from
        `(level * weight - usage) / horizon`).
    alarm
        True where the promises of a pool reach its capacity and somebody wants more, shape (num_pools,).
    """

    entitled: IntArray
    level: ObjectArray
    interior: BoolArray
    alarm: BoolArray


def fill(
    tree: BudgetTree,
    capacity_milli: IntArray,
    usage: IntArray,
    floor: IntArray,
    demand: IntArray,
    horizon: int,
    first_submit: IntArray,
) -> FillResult:
    """Hand out the capacity of every pool, top-down through the tree."""
    raise NotImplementedError
