"""Which waiting workloads are entitled: half a gang is the rounding, and large gangs latch."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np

from allocator.domain import Policy, Workload
from allocator.entitlement.claim import Claims, Ledger
from allocator.entitlement.contract import Contract
from allocator.entitlement.tree import BudgetTree, ObjectArray
from allocator.entitlement.waterfill import MILLI
from allocator.topology import BoolArray, IntArray

NO_MARK = 0
"""`entitled_since` of a workload that has not latched."""


def mark_entitled(
    works: Sequence[Workload], contract: Contract, claims: Claims, tree: BudgetTree, policy: Policy, now: int
) -> tuple[BoolArray, IntArray]:
    """Which rows are entitled, and since when (seconds, NO_MARK where the mark does not latch), shape (num_workloads,) each.

    Rows are looked at one after the other, those that latched before first; each one that is entitled counts as held for
    those after it.
    """
    entitled = np.zeros(len(works), dtype=bool)
    since = np.full(len(works), NO_MARK, dtype=np.int64)
    if not len(claims.counted):
        return entitled, since
    ledger = Ledger(tree, claims)
    latched = _latched(works, contract, claims, now)
    order = _in_order(contract, claims, tree, policy)
    for row, mark in latched:
        ledger.take(row)
        entitled[row] = True
        since[row] = mark
    credit: dict[int, tuple[int, int]] = {}
    for row in order.tolist():
        if entitled[row]:
            continue
        owed_half = ledger.owes_half_of(row)
        waiting_gang = bool(claims.gang[row] and contract.waiting_before[row])
        if waiting_gang:
            credit[row] = ledger.credit(row)
        if not (owed_half or claims.express[row]):
            continue
        ledger.take(row)
        entitled[row] = True
        since[row] = now if waiting_gang and owed_half else NO_MARK
    for row in _first_of_split(claims, entitled, credit, tree):
        entitled[row] = True
        since[row] = now
    return entitled, since


def _latched(works: Sequence[Workload], contract: Contract, claims: Claims, now: int) -> list[tuple[int, int]]:
    """Large gangs that have been entitled since before `now` and still have funds, and since when."""
    rows = claims.counted[(claims.gang & contract.waiting_before)[claims.counted]].tolist()
    marks = ((row, works[row].entitled_since) for row in rows)
    return [(row, mark) for row, mark in marks if mark is not None and mark < now]


def _in_order(contract: Contract, claims: Claims, tree: BudgetTree, policy: Policy) -> IntArray:
    """The counted rows by level of their leaf, lowest first, then submit time, then id."""
    rows = claims.counted
    rank = level_ranks(claims.leaf[rows], claims.home[rows], claims.usage + policy.horizon * claims.held, tree.share)
    order: IntArray = rows[np.lexsort((rows, contract.submit[rows], rank))]
    return order


def level_ranks(leaf: IntArray, pool: IntArray, amount: IntArray, share: ObjectArray) -> IntArray:
    """Rank of amount / path share at the leaf and pool of each row, equal for equal levels, shape (num_rows,).

    `amount` and `share` are by vertex and pool. A leaf without share is at an infinite level, after all others.
    """
    if len(leaf) < 2:
        return np.zeros(len(leaf), dtype=np.int64)
    num_pools = share.shape[1]
    places, row2place = np.unique(leaf * num_pools + pool, return_inverse=True)
    amounts, shares = amount.ravel()[places].tolist(), share.ravel()[places].tolist()
    levels = [_level(of, part) for of, part in zip(amounts, shares, strict=True)]
    rough = sorted(range(len(levels)), key=lambda place: float(levels[place] or 0))
    # Sorting by float first leaves few exact comparisons to make; the exact order decides.
    exact = sorted(rough, key=lambda place: (levels[place] is None, levels[place] or 0))
    rank = np.zeros(len(levels), dtype=np.int64)
    for before, place in pairwise(exact):
        rank[place] = rank[before] + (levels[place] != levels[before])
    ranks: IntArray = rank[row2place]
    return ranks


def _level(amount: int, share: Fraction) -> Fraction | None:
    """Amount per share, None for infinity."""
    return Fraction(amount * share.denominator, share.numerator) if share else None


def _first_of_split(claims: Claims, entitled: BoolArray, credit: dict[int, tuple[int, int]], tree: BudgetTree) -> list[int]:
    """Where several large gangs wait in a pool and none is entitled: the first, if together they are owed half of it.

    `credit` lists the gangs in their order, each with what its lowest vertex was owed when its turn came.
    """
    chosen = []
    for pool in range(claims.owed.shape[1]):
        waiting = [row for row in credit if claims.home[row] == pool]
        latched = claims.gang & entitled & (claims.home == pool)
        if len(waiting) < 2 or latched.any():
            continue
        shares: dict[int, int] = {}
        for row in waiting:
            vertex, amount = credit[row]
            shares[vertex] = max(shares.get(vertex, 0), amount)
        tops = [vertex for vertex in shares if not shares.keys() & set(tree.path(vertex)[1:])]
        if 2 * sum(shares[vertex] for vertex in tops) >= MILLI * int(claims.gpus[waiting[0]]):
            chosen.append(waiting[0])
    return chosen
