"""How much GPU time every vertex has used: charged and uncharged, inside the window or decayed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from allocator.domain import Policy, Snapshot, UsageRecord
from allocator.entitlement.tree import BudgetTree, frozen
from allocator.topology.layout import BoolArray, IntArray

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


def window_usage(snapshot: Snapshot, tree: BudgetTree, pools: Sequence[str], now: int) -> tuple[IntArray, IntArray]:
    """Charged and uncharged usage of every vertex: its records, the work that runs, and all of its subtree.

    Records count for the vertex they name, inner ones included; those of unknown allocations are ignored. Records with one
    id count the union of their intervals; where they overlap and disagree, the one that started first counts. What ends
    after `now` is cut there. A run counts from its start, a promoted one from `charged_since` (a record holds the time
    before); without a start, or with one that is still to come, it has used nothing.

    Returns
    -------
    Two arrays of GPU-seconds, shape (num_vertices, num_pools), read-only. Where usage decays, each vertex is rounded once,
    so that an inner vertex may differ by the roundings from the sum of its children.
    """
    half_life = snapshot.policy.half_life
    records = _until(_record_spells(snapshot.usage, tree, pools), now)
    spells = _join([_without_overlap(records), _until(_run_spells(snapshot, tree, pools, now), now)])
    if half_life is None:
        spells = _since(spells, now - snapshot.policy.window)
    amount = _measure(spells, half_life, now)
    shape = (len(tree), len(pools))
    sums = (tree.sum_up(_by_vertex(spells.take(kind), amount[kind], shape)) for kind in (spells.charged, ~spells.charged))
    charged, uncharged = (frozen(total if half_life is None else _rounded(total)) for total in sums)
    return charged, uncharged


def _record_spells(records: Sequence[UsageRecord], tree: BudgetTree, pools: Sequence[str]) -> _Spells:
    """Records of known allocations and pools."""
    vertex_of = {name: vertex for name, vertex in tree.index.items() if tree.orphans.get(name) != vertex}
    pool_of = {name: pool for pool, name in enumerate(pools)}
    group_of: dict[str | None, int] = {None: NO_ID}
    rows = [
        (
            vertex_of[one.allocation], pool_of[one.pool], one.gpus, one.start, one.end, one.charged,
            group_of.setdefault(one.id, len(group_of)),
        )
        for one in records
        if one.allocation in vertex_of and one.pool in pool_of
    ]  # fmt: skip
    vertex, pool, gpus, start, end, charged, group = np.array(rows, dtype=np.int64).reshape(-1, 7).T
    return _Spells(vertex, pool, gpus, start, end, charged != 0, group)


def _run_spells(snapshot: Snapshot, tree: BudgetTree, pools: Sequence[str], now: int) -> _Spells:
    """What running work uses up to now, a promoted run from its promotion on; those still to begin end before they start."""
    pool_of = {name: pool for pool, name in enumerate(pools)}
    pool_of_node = {node.name: pool_of[node.pool] for node in snapshot.cluster.nodes if node.pool in pool_of}
    rows: list[tuple[int, int, int, int, int, bool]] = []
    for work in snapshot.workloads:
        run = work.run
        if run is None or run.start_time is None or (vertex := tree.leaf_of(work.allocation)) < 0:
            continue
        begin = run.start_time
        if run.charged and run.charged_since is not None:
            begin = max(begin, run.charged_since)
        rows.append((vertex, pool_of_node[next(iter(run.placement))], work.gpus, begin, now, run.charged))
    vertices, pool, gpus, start, end, charged = np.array(rows, dtype=np.int64).reshape(-1, 6).T
    return _Spells(vertices, pool, gpus, start, end, charged.astype(np.bool_), np.full(len(rows), NO_ID, dtype=np.int64))


def _until(spells: _Spells, now: int) -> _Spells:
    """Cut at `now`; drop what is left empty."""
    return _between(spells, spells.start, np.minimum(spells.end, now))


def _since(spells: _Spells, window_start: int) -> _Spells:
    """Cut at the beginning of the window; drop what is left empty."""
    return _between(spells, np.maximum(spells.start, window_start), spells.end)


def _between(spells: _Spells, start: IntArray, end: IntArray) -> _Spells:
    """The same spells with other ends, without those that are empty."""
    return replace(spells, start=start, end=end).take(start < end)


def _join(parts: Sequence[_Spells]) -> _Spells:
    return _Spells(*(np.concatenate([getattr(part, name) for part in parts]) for name in _Spells.__slots__))


def _without_overlap(spells: _Spells) -> _Spells:
    """Shorten the spells of each id so that no second counts twice; those without an id stay as they are."""
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


def _by_vertex(spells: _Spells, amount: IntArray, shape: tuple[int, int]) -> IntArray:
    total = np.zeros(shape, dtype=np.int64)
    np.add.at(total, (spells.vertex, spells.pool), amount)
    return total
