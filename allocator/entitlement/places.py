"""Where in the budget tree each workload counts, and what people should know about that."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass

import numpy as np

from allocator.entitlement.columns import Columns
from allocator.entitlement.contract import Contract
from allocator.entitlement.tree import ROOT, BudgetTree
from allocator.topology import BoolArray, IntArray, Layout

NO_LEAF = -1
"""Leaf of a workload that cannot be decided."""

NO_POOL = -1
"""Home of a workload that accepts no pool of the cluster."""


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Where each workload counts; arrays of shape (num_workloads,).

    Attributes
    ----------
    leaf
        Vertex; NO_LEAF for waiting work of an allocation that is unknown or has children.
    orphan
        True for work that runs (or was stopped at `now`) under an allocation that is unknown or has children.
    home
        Pool: where the work held GPUs just before `now`, else the first that it names, NO_POOL if none of them exists.
        Work that names no pool counts in the largest.
    """

    leaf: IntArray
    orphan: BoolArray
    home: IntArray


def stray_allocations(columns: Columns, leaves: Set[str], now: int) -> list[str]:
    """Allocations that work which runs (or was stopped at `now`) names although they are no leaves of the budgets."""
    names, ran = list(columns.numbering.allocation), columns.running | (columns.taken_off_at == now)
    return sorted({names[number] for number in set(columns.allocation[ran].tolist())} - leaves)


def find_places(layout: Layout, tree: BudgetTree, contract: Contract, installed: IntArray) -> Places:
    """Leaf and home pool of every workload. `installed` are the GPUs of each pool, shape (num_pools,)."""
    leaf, orphan = _leaves(tree, contract)
    return Places(leaf=leaf, orphan=orphan, home=_home_pools(contract, layout, installed))


def _leaves(tree: BudgetTree, contract: Contract) -> tuple[IntArray, BoolArray]:
    columns = contract.columns
    leaf = columns.by_allocation(tree.leaf_of)
    orphan = np.isin(leaf, list(tree.orphans.values())) if tree.orphans else np.zeros(len(leaf), dtype=bool)
    leaf[orphan & ~contract.running & ~contract.stopped_now] = NO_LEAF
    return leaf, orphan & (leaf != NO_LEAF)


def _home_pools(contract: Contract, layout: Layout, installed: IntArray) -> IntArray:
    columns, number = contract.columns, {name: idx for idx, name in enumerate(layout.pools)}
    largest = int(np.argmax(installed)) if len(installed) else NO_POOL

    def first(pools: tuple[str, ...]) -> int:
        return next((number[name] for name in pools if name in number), NO_POOL) if pools else largest

    return np.where(contract.held_before, contract.held_pool, columns.by_pools(first))


def warnings_of(tree: BudgetTree, layout: Layout, leaf: IntArray, alarm: BoolArray) -> Iterator[str]:
    """What people should know about budgets and promises; `alarm` is True for pools whose promises fill them."""
    for stray in tree.orphans:
        yield f"work of {stray!r} runs, which is no leaf of the budgets: it keeps its promise under a vertex of share zero"
    for vertex in sorted(set(leaf.tolist()) - {NO_LEAF}):
        if not tree.funding_path(vertex) and vertex not in tree.orphans.values():
            yield f"no vertex on the path of {tree.ids[vertex]!r} holds a budget: its work is always funded"
    for pool, name in enumerate(layout.pools):
        top = list(tree.children[ROOT])
        if top and not any(tree.weight[top, pool]):
            yield f"all shares of pool {name!r} are zero: everything runs unallocated"
        if alarm[pool]:
            yield f"promises fill pool {name!r}: nobody can be given what is owed before one ends"
