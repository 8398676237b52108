"""How much GPU time every vertex has used: charged and uncharged, inside the window or decayed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from allocator.domain import Policy, Snapshot, UsageRecord
from allocator.entitlement.columns import NONE
from allocator.entitlement.contract import Contract, read_contract
from allocator.entitlement.tree import BudgetTree, frozen
from allocator.topology import BoolArray, IntArray, build_layout

FRACTION_BITS = 20
"""Decayed GPU-seconds are added up in units of 2**-20, so that neither order nor splitting moves the sum."""

NO_ID = -1
"""Group of the records without an id: each counts."""


@dataclass(frozen=True, slots=True, eq=False)
class _Spells:
    """GPUs held by one vertex in one pool from `start` to `end`, many times, as arrays of shape (num_spells,).

    `group` numbers the ids of records, NO_ID where there is none.
    """

    vertex: IntArray
    pool: IntArray
    gpus: IntArray
    start: IntArray
    end: IntArray
    charged: BoolArray
    group: IntArray

    def take(self, chosen: IntArray | BoolArray) -> _Spells:
        """The chosen spells, in the order of the choice."""
        return _Spells(*(getattr(self, name)[chosen] for name in self.__slots__))


def effective_window(policy: Policy) -> int:
    """The window of the budget and of the debt limit in seconds: `window`, or half_life / ln 2 where usage decays."""
    return policy.window if policy.half_life is None else round(policy.half_life / math.log(2))


def window_usage(
    snapshot: Snapshot, tree: BudgetTree, pools: Sequence[str], now: int, contract: Contract | None = None
) -> tuple[IntArray, IntArray]:
    """Charged and uncharged usage of every vertex: its records, the work that runs, and all of its subtree.

    Records count for the vertex they name, inner ones included; those of unknown allocations are ignored. Records with one
    id count the union of their intervals; where they overlap and disagree, the one that started first counts. What ends
    after `now` is cut there. A run counts from its start, a promoted one from `charged_since` (a record holds the time
    before); without a start, or with one that is still to come, it has used nothing. `contract` is that of the snapshot.

    Returns
    -------
    Two arrays of GPU-seconds, shape (num_vertices, num_pools), read-only. Where usage decays, each vertex is rounded once,
    so that an inner vertex may differ by the roundings from the sum of its children.
    """
    half_life, num_pools = snapshot.policy.half_life, len(pools)
    contract = read_contract(snapshot, build_layout(snapshot)) if contract is None else contract
    records = _without_overlap(_until(_record_spells(snapshot.usage, tree, pools), now))
    spells = _join([records, _until(_run_spells(contract, tree), now)])
    if half_life is None:
        spells = _since(spells, now - snapshot.policy.window)
    own = np.zeros((len(tree), 2 * num_pools), dtype=np.int64)
    np.add.at(own, (spells.vertex, spells.pool + num_pools * ~spells.charged), _measure(spells, half_life, now))
    total = tree.sum_up(own)
    if half_life is not None:
        total = _rounded(total)
    return frozen(total[:, :num_pools]), frozen(total[:, num_pools:])


def _record_spells(records: Sequence[UsageRecord], tree: BudgetTree, pools: Sequence[str]) -> _Spells:
    """Records of known allocations and pools."""
    vertex_of, orphans = tree.index, tree.orphans
    pool_of = {name: pool for pool, name in enumerate(pools)}
    group_of: dict[str | None, int] = {None: NO_ID}
    rows = [
        (
            place, market, one.gpus, one.start, one.end, one.charged,
            NO_ID if one.id is None else group_of.setdefault(one.id, len(group_of)),
        )
        for one in records
        if (place := vertex_of.get(one.allocation, -1)) >= 0
        and (market := pool_of.get(one.pool, -1)) >= 0
        and not (orphans and orphans.get(one.allocation) == place)
    ]  # fmt: skip
    vertex, pool, gpus, start, end, charged, group = np.array(rows, dtype=np.int64).reshape(-1, 7).T
    return _Spells(vertex, pool, gpus, start, end, charged != 0, group)


def _run_spells(contract: Contract, tree: BudgetTree) -> _Spells:
    """What running work uses up to now, a promoted run from its promotion on; those still to begin end before they start."""
    columns = contract.columns
    leaf = columns.by_allocation(tree.leaf_of)
    rows = (columns.running & (columns.start != NONE) & (leaf >= 0)).nonzero()[0]
    start, charged = columns.start[rows], columns.charged[rows]
    begin = np.where(charged, np.maximum(start, columns.charged_since[rows]), start)  # NONE is before everything
    end, group = np.full(len(rows), contract.now), np.full(len(rows), NO_ID)
    return _Spells(leaf[rows], contract.run_pool[rows], columns.gpus[rows], begin, end, charged, group)


def _until(spells: _Spells, now: int) -> _Spells:
    """Cut at `now`; drop what is left empty."""
    return _between(spells, spells.start, np.minimum(spells.end, now))


def _since(spells: _Spells, window_start: int) -> _Spells:
    """Cut at the beginning of the window; drop what is left empty."""
    return _between(spells, np.maximum(spells.start, window_start), spells.end)


def _between(spells: _Spells, start: IntArray, end: IntArray) -> _Spells:
    """The same spells with other ends, without those that are empty."""
    left, cut = start < end, replace(spells, start=start, end=end)
    return cut if left.all() else cut.take(left)


def _join(parts: Sequence[_Spells]) -> _Spells:
    return _Spells(*(np.concatenate([getattr(part, name) for part in parts]) for name in _Spells.__slots__))


def _without_overlap(spells: _Spells) -> _Spells:
    """Shorten the spells of each id so that no second counts twice; those without an id stay as they are."""
    if np.all(spells.group == NO_ID):
        return spells
    copies = np.bincount(spells.group - NO_ID, minlength=1)[spells.group - NO_ID]
    alone = (spells.group == NO_ID) | (copies == 1)
    shared = spells.take(~alone)
    # Every field is a key, so that the order of the records never shows.
    keys = (shared.pool, shared.vertex, -shared.gpus, -shared.end, ~shared.charged, shared.start, shared.group)
    shared = shared.take(np.lexsort(keys))
    # How far the id is covered before each spell: a running maximum that starts anew with each id, because every id is
    # lifted above all ends of the one before it.
    _, number = np.unique(shared.group, return_inverse=True)
    lift = number * (int(np.ptp(shared.end)) + 1 if len(shared.end) else 1)
    covered = np.maximum.accumulate(shared.end + lift) - lift
    follows = np.concatenate([[False], number[1:] == number[:-1]])[: len(number)]
    start = np.where(follows, np.maximum(shared.start, np.roll(covered, 1)), shared.start)
    return _join([spells.take(alone), _between(shared, start, shared.end)])


def _measure(spells: _Spells, half_life: int | None, now: int) -> IntArray:
    """GPU-seconds of each spell; with a half-life, decayed and in units of 2**-FRACTION_BITS."""
    if half_life is None:
        return spells.gpus * (spells.end - spells.start)
    return spells.gpus * (_decayed(spells.end, half_life, now) - _decayed(spells.start, half_life, now))


def _decayed(until: IntArray, half_life: int, now: int) -> IntArray:
    """Decayed seconds from the beginning of time until an instant, in units of 2**-FRACTION_BITS.

    Rounded here, before any sum: differences telescope, so that splitting a spell changes nothing.
    """
    scale = half_life / math.log(2) * (1 << FRACTION_BITS)
    return np.rint(scale * np.exp2((until - now) / half_life)).astype(np.int64)


def _rounded(total: IntArray) -> IntArray:
    """Whole GPU-seconds of sums in units of 2**-FRACTION_BITS."""
    return (total + (1 << (FRACTION_BITS - 1))) >> FRACTION_BITS
