"""Budgets and what is left of them: GPU-seconds by vertex and pool."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from allocator.domain import Policy
from allocator.entitlement.contract import Contract, ordinary_promise
from allocator.entitlement.forced import UNFORCED
from allocator.entitlement.model import NO_BUDGET
from allocator.entitlement.places import NO_LEAF, NO_POOL, Places
from allocator.entitlement.tree import BudgetTree
from allocator.entitlement.usage import effective_window
from allocator.topology import BoolArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Funds:
    """Arrays of shape (num_vertices, num_pools), as in `Market`."""

    budget: IntArray
    outstanding: IntArray
    available: IntArray
    available_before: IntArray


def read_funds(contract: Contract, places: Places, tree: BudgetTree, budget: IntArray, usage: IntArray, now: int) -> Funds:
    """What protected runs are still promised of their budgets, and what is left for new promises.

    `available_before` is what was left before the promises made at `now`.
    """
    counts = contract.protected & (contract.forced == UNFORCED)
    num_pools = budget.shape[1]
    outstanding = _outstanding(contract, places.leaf, counts, tree, num_pools, now)
    old, both = outstanding[:, :num_pools], outstanding[:, num_pools:]
    before, after = (np.where(budget == NO_BUDGET, 0, np.maximum(0, budget - usage - promised)) for promised in (old, both))
    return Funds(budget=budget, outstanding=both, available=after, available_before=before)


def budgets(tree: BudgetTree, installed: IntArray, policy: Policy) -> IntArray:
    """Budget of each vertex, NO_BUDGET where it does not fund: its part of the window behind and the promises ahead."""
    span = effective_window(policy) + policy.protection_cap
    budget = np.full(tree.share.shape, NO_BUDGET, dtype=np.int64)
    for vertex in tree.funds.nonzero()[0].tolist():
        for pool, gpus in enumerate(installed.tolist()):
            share = tree.path_share(vertex, pool)
            budget[vertex, pool] = share.numerator * gpus * span // share.denominator
    return budget


def _outstanding(contract: Contract, leaf: IntArray, counts: BoolArray, tree: BudgetTree, num_pools: int, now: int) -> IntArray:
    """GPU-seconds that these runs are still promised, by subtree: without the promises made at `now`, and with them.

    Shape (num_vertices, 2 * num_pools).
    """
    rows = counts.nonzero()[0]
    left = contract.protected_until[rows] - np.maximum(now, contract.start[rows])
    owed, old = contract.gpus[rows] * np.maximum(left, 0), ~contract.new_promise[rows]
    total = np.zeros((len(tree), 2 * num_pools), dtype=np.int64)
    np.add.at(total, (leaf[rows], num_pools + contract.run_pool[rows]), owed)
    np.add.at(total, (leaf[rows[old]], contract.run_pool[rows[old]]), owed[old])
    return tree.sum_up(total)


def promises(contract: Contract, places: Places, tree: BudgetTree, available: IntArray, policy: Policy) -> IntArray:
    """Seconds promised to each workload if it is started or promoted, 0 for unallocated work, shape (num_workloads,).

    Work on its last try is promised its whole run, unless that alone costs more than some vertex of its path has left; assured
    work is promised it in any case. No promise is shorter than the ordinary one.
    """
    promise = ordinary_promise(contract.min_runtime, policy)
    leaf, home = places.leaf, places.home
    for row in ((contract.whole_run > promise) & (leaf != NO_LEAF) & (home != NO_POOL)).nonzero()[0].tolist():
        cost = int(contract.gpus[row] * contract.whole_run[row])
        if contract.assured[row] or all(cost <= available[vertex, home[row]] for vertex in tree.funding_path(leaf[row])):
            promise[row] = contract.whole_run[row]
    return promise


def promise_costs(contract: Contract, promise: IntArray) -> IntArray:
    """GPU-seconds that these promises draw on budgets when they are made, shape (num_workloads,): nothing for assured work."""
    return np.where(contract.assured, 0, contract.gpus * promise)


def fund_in_order(tree: BudgetTree, available: IntArray, order: IntArray, places: Places, cost: IntArray) -> IntArray:
    """Those of the rows in `order` that are funded one after the other; one that is not funded is skipped.

    `cost` is in GPU-seconds by row, in the home pool; every funding vertex on the path of a leaf has to agree.
    """
    num_pools = available.shape[1]
    left: list[int] = available.ravel().tolist()
    paths: dict[tuple[int, int], list[int]] = {}
    refused: dict[tuple[int, int], int] = {}  # the least price: what is left only falls
    funded = []
    columns = (order.tolist(), zip(places.leaf[order].tolist(), places.home[order].tolist(), strict=True), cost[order].tolist())
    for row, place, price in zip(*columns, strict=True):
        if price >= refused.get(place, price + 1):
            continue
        path = paths.get(place)
        if path is None:
            path = paths[place] = [above * num_pools + place[1] for above in tree.funding_path(place[0])]
        if any(left[account] < price for account in path):
            refused[place] = price
            continue
        for account in path:
            left[account] -= price
        funded.append(row)
    return np.array(funded, dtype=np.int64)
