"""Where in the budget tree each workload counts, and what people should know about that."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from allocator.domain import Snapshot, Workload
from allocator.entitlement.contract import Contract
from allocator.entitlement.tree import ROOT, BudgetTree
from allocator.topology import BoolArray, IntArray, Layout

Key = TypeVar("Key")

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


def stray_allocations(snapshot: Snapshot) -> list[str]:
    """Allocations that running work names although they are unknown or have children."""
    parents = {vertex.parent for vertex in snapshot.budgets}
    leaves = {vertex.id for vertex in snapshot.budgets if vertex.id not in parents}
    return sorted({work.allocation for work in snapshot.workloads if _ran(work, snapshot.now)} - leaves)


def _ran(work: Workload, now: int) -> bool:
    """Whether the work runs, or was stopped at `now`."""
    return work.run is not None or (work.stopped is not None and work.stopped.at == now)


def find_places(layout: Layout, tree: BudgetTree, contract: Contract, installed: IntArray) -> Places:
    """Leaf and home pool of every workload. `installed` are the GPUs of each pool, shape (num_pools,)."""
    leaf, orphan = _leaves(tree, contract)
    return Places(leaf=leaf, orphan=orphan, home=_home_pools(contract, layout, installed))


def _leaves(tree: BudgetTree, contract: Contract) -> tuple[IntArray, BoolArray]:
    columns = contract.columns
    leaf = _by_number(columns.numbering.allocation, tree.leaf_of, columns.allocation)
    orphan = np.isin(leaf, list(tree.orphans.values()))
    leaf[orphan & ~contract.running & ~contract.stopped_now] = NO_LEAF
    return leaf, orphan & (leaf != NO_LEAF)


def _home_pools(contract: Contract, layout: Layout, installed: IntArray) -> IntArray:
    columns, number = contract.columns, {name: idx for idx, name in enumerate(layout.pools)}
    largest = int(np.argmax(installed)) if len(installed) else NO_POOL

    def first(pools: tuple[str, ...]) -> int:
        return next((number[name] for name in pools if name in number), NO_POOL) if pools else largest

    accepted = _by_number(columns.numbering.pools, first, columns.pools)
    return np.where(contract.held_before, contract.held_pool, accepted)


def _by_number(numbering: Mapping[Key, int], answer: Callable[[Key], int], numbers: IntArray) -> IntArray:
    """The answer for each row, asked once for each number."""
    answers = np.fromiter(map(answer, numbering), np.int64, len(numbering))
    return answers[numbers]


def warnings_of(tree: BudgetTree, layout: Layout, leaf: IntArray, alarm: BoolArray) -> Iterator[str]:
    """What people should know about budgets and promises; `alarm` is True for pools whose promises fill them."""
    for stray in tree.orphans:
        yield f"work of {stray!r} runs, which is no leaf of the budgets: it keeps its promise under a vertex of share zero"
    for vertex in np.unique(leaf[leaf != NO_LEAF]).tolist():
        if not tree.funding_path(vertex) and vertex not in tree.orphans.values():
            yield f"no vertex on the path of {tree.ids[vertex]!r} holds a budget: its work is always funded"
    for pool, name in enumerate(layout.pools):
        top = list(tree.children[ROOT])
        if top and not any(tree.weight[top, pool]):
            yield f"all shares of pool {name!r} are zero: everything runs unallocated"
        if alarm[pool]:
            yield f"promises fill pool {name!r}: nobody can be given what is owed before one ends"
