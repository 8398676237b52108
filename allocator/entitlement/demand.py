"""What everybody wants: the queue, and held GPUs, floors and demand up the tree."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from allocator.entitlement.contract import Contract
from allocator.entitlement.forced import UNFORCED
from allocator.entitlement.places import Places
from allocator.entitlement.tree import NO_LIMIT, BudgetTree
from allocator.topology import GPUS, BoolArray, IntArray, Layout

NO_SUBMIT = 1 << 62
"""Submit time where nothing is wanted."""


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """GPUs by vertex and pool just before `now`; arrays of shape (num_vertices, num_pools).

    `held` counts charged work, `floor` what promises hold, `demand` both and what waits with funds, within the limits.
    `first_submit` is the earliest submit time of what is counted, NO_SUBMIT where nothing is.
    """

    held: IntArray
    floor: IntArray
    demand: IntArray
    first_submit: IntArray


def installed_gpus(layout: Layout) -> IntArray:
    """GPUs of all nodes of each pool, shape (num_pools,)."""
    return _sum_by_pool(layout.pool, layout.capacity[GPUS], layout)


def schedulable_gpus(layout: Layout, contract: Contract) -> IntArray:
    """GPUs of each pool that can be handed out: of nodes that accept work, and what promises keep on draining nodes."""
    open_nodes = _sum_by_pool(layout.pool, layout.capacity[GPUS] * layout.accepting, layout)
    places = contract.placements
    stays = contract.protected & (contract.forced == UNFORCED)
    kept = places.present & ~layout.accepting[places.node] & stays[places.row]
    return open_nodes + _sum_by_pool(layout.pool[places.node[kept]], places.gpus[kept], layout)


def _sum_by_pool(pool: IntArray, values: IntArray, layout: Layout) -> IntArray:
    total = np.zeros(len(layout.pools), dtype=np.int64)
    np.add.at(total, pool, values)
    return total


def queue_order(contract: Contract, leaf: IntArray, members: BoolArray) -> IntArray:
    """Rows of the queue, first to last: by submit time, then id; a leaf fills its own places by priority.

    Rows are sorted by id, so a stable sort breaks ties by id.
    """
    rows = members.nonzero()[0]
    by_submit = rows[contract.submit[rows].argsort(kind="stable")]
    priority = contract.priority[by_submit]
    if not len(rows) or priority.min() == priority.max():
        return by_submit
    place = np.arange(len(rows))
    places_of_leaf = np.argsort(leaf[by_submit], kind="stable")
    by_priority = np.lexsort((place, -priority, leaf[by_submit]))
    order = np.empty_like(by_submit)
    order[places_of_leaf] = by_submit[by_priority]
    return order


def add_up(contract: Contract, places: Places, funded: BoolArray, tree: BudgetTree, num_pools: int) -> Demand:
    """Held GPUs, floors and demand of every vertex. `funded` marks what counts beyond charged work."""
    shape = (len(tree), num_pools)
    held = _by_leaf(contract.charged_before, contract.held_gpus, places, shape)
    floor = _by_leaf(contract.protected_before, contract.held_gpus, places, shape)
    wanted = held + _by_leaf(funded, contract.gpus, places, shape)
    counted = (funded | contract.charged_before).nonzero()[0]
    first_submit = np.full(shape, NO_SUBMIT, dtype=np.int64)
    np.minimum.at(first_submit, (places.leaf[counted], places.home[counted]), contract.submit[counted])
    total = tree.sum_up(np.concatenate([held, floor, wanted], axis=1))
    held, floor, demand = total[:, :num_pools], total[:, num_pools : 2 * num_pools], total[:, 2 * num_pools :]
    if np.any(tree.gpu_limit != NO_LIMIT):
        demand = _limited(tree, wanted, floor)
    return Demand(held=held, floor=floor, demand=demand, first_submit=tree.least_of(first_submit))


def _by_leaf(counts: BoolArray, gpus: IntArray, places: Places, shape: tuple[int, int]) -> IntArray:
    total = np.zeros(shape, dtype=np.int64)
    rows = counts.nonzero()[0]
    np.add.at(total, (places.leaf[rows], places.home[rows]), gpus[rows])
    return total


def _limited(tree: BudgetTree, own: IntArray, floor: IntArray) -> IntArray:
    """Subtree sums of `own`, where no vertex passes on more than its GPU limit."""
    wanted = own.copy()
    for level in reversed(tree.sets):
        wanted[level.rows] = _within_limits(wanted[level.rows], floor[level.rows], tree.gpu_limit[level.rows])
        wanted[level.parents] += np.add.reduceat(wanted[level.rows], level.starts, axis=0)
    return wanted


def _within_limits(wanted: IntArray, floor: IntArray, limit: IntArray) -> IntArray:
    """Cap by the GPU limits of the vertices, but never below what promises hold."""
    capped = np.where(limit[:, np.newaxis] == NO_LIMIT, wanted, np.minimum(wanted, limit[:, np.newaxis]))
    return np.maximum(capped, floor)
