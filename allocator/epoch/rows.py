"""Rows over many variables: funding, gpu_limit and the unfairness of every vertex."""

from __future__ import annotations

import numpy as np

from allocator.entitlement import Entitlement
from allocator.entitlement.forced import UNFORCED
from allocator.epoch.problem import FundingRow, LimitRow, Offers, Promotions, ShareTerm, Victims
from allocator.topology.layout import BoolArray, IntArray

Key = tuple[int, int]
Members = dict[Key, IntArray]

_NOBODY = np.zeros(0, dtype=np.int64)


def _members(ent: Entitlement, leaf: IntArray, pool: IntArray, which: IntArray, funding: bool = False) -> Members:
    """Indices by (vertex, pool) for every vertex on the path of each row's leaf, ascending."""
    if not len(which):
        return {}
    order = which[np.lexsort((pool[which], leaf[which]))]
    same = (np.diff(leaf[order]) == 0) & (np.diff(pool[order]) == 0)
    parts: dict[Key, list[IntArray]] = {}
    for rows in np.split(order, (~same).nonzero()[0] + 1):
        vertex, market = int(leaf[rows[0]]), int(pool[rows[0]])
        for above in ent.tree.funding_path(vertex) if funding else ent.tree.path(vertex):
            parts.setdefault((above, market), []).append(rows)
    return {key: np.sort(np.concatenate(rows)) for key, rows in parts.items()}


def _all(rows: IntArray) -> IntArray:
    return np.arange(len(rows))


def funding_rows(ent: Entitlement, offers: Offers, promotions: Promotions) -> tuple[FundingRow, ...]:
    """One row for each funding vertex and pool where the promises on offer exceed what is available."""
    ordinary = (offers.charged & (offers.promise_cost > 0)).nonzero()[0]
    from_offers = _members(ent, offers.leaf, offers.pool, ordinary, funding=True)
    from_promotions = _members(ent, promotions.leaf, promotions.pool, _all(promotions.work), funding=True)
    rows = []
    for vertex, pool in sorted(from_offers.keys() | from_promotions.keys()):
        own, promoted = from_offers.get((vertex, pool), _NOBODY), from_promotions.get((vertex, pool), _NOBODY)
        available = int(ent.market.available[vertex, pool])
        if int(offers.promise_cost[own].sum() + promotions.promise_cost[promoted].sum()) > available:
            rows.append(FundingRow(vertex=vertex, pool=pool, available=available, offers=own, promotions=promoted))
    return tuple(rows)


def limit_rows(ent: Entitlement, offers: Offers, victims: Victims) -> tuple[LimitRow, ...]:
    """One row for each vertex with a gpu_limit that the offers under it could break."""
    limited = (ent.tree.gpu_limit >= 0).nonzero()[0]
    if not len(limited):
        return ()
    all_offers = _members(ent, offers.leaf, np.zeros_like(offers.pool), _all(offers.work))
    all_victims = _members(ent, victims.leaf, np.zeros_like(victims.pool), _all(victims.work))
    holding = ent.works.running & (ent.works.forced == UNFORCED)
    kept, charged = _held(ent, holding), _held(ent, holding & (ent.works.charged | ~ent.works.stoppable))
    rows = []
    for vertex in map(int, limited):
        own, stopped = all_offers.get((vertex, 0), _NOBODY), all_victims.get((vertex, 0), _NOBODY)
        if len(own) and kept[vertex] + offers.gpus[own].sum() > ent.tree.gpu_limit[vertex]:
            rows.append(
                LimitRow(
                    vertex=vertex, limit=int(ent.tree.gpu_limit[vertex]),
                    kept=int(kept[vertex] - victims.gpus[stopped].sum()),
                    kept_charged=int(charged[vertex] - victims.gpus[stopped[victims.charged[stopped]]].sum()),
                    offers=own, victims=stopped,
                )
            )  # fmt: skip
    return tuple(rows)


def _held(ent: Entitlement, rows: BoolArray) -> IntArray:
    """GPUs over all pools of the given work and of gangs whose reservation is due, by vertex."""
    own = np.zeros(len(ent.tree.ids), dtype=np.int64)
    chosen = (rows | ent.works.due).nonzero()[0]
    np.add.at(own, ent.works.leaf[chosen], ent.works.gpus[chosen])
    held: IntArray = ent.tree.sum_up(own)
    return held


def share_terms(ent: Entitlement, offers: Offers, victims: Victims, promotions: Promotions) -> tuple[ShareTerm, ...]:
    """The unfairness of every vertex and pool that contributes and that this decision can change."""
    charged = offers.charged.nonzero()[0]
    from_offers = _members(ent, offers.leaf, offers.pool, charged)
    from_victims = _members(ent, victims.leaf, victims.pool, victims.charged.nonzero()[0])
    from_promotions = _members(ent, promotions.leaf, promotions.pool, _all(promotions.work))
    base = charged_now(ent)
    touched = from_offers.keys() | from_victims.keys() | from_promotions.keys()
    return tuple(
        ShareTerm(
            vertex=vertex, pool=pool, curve=ent.market.curves[vertex, pool], base=int(base[vertex, pool]),
            offers=from_offers.get((vertex, pool), _NOBODY), victims=from_victims.get((vertex, pool), _NOBODY),
            promotions=from_promotions.get((vertex, pool), _NOBODY),
        )
        for vertex, pool in sorted(ent.market.curves.keys() & touched)
    )  # fmt: skip


def charged_now(ent: Entitlement) -> IntArray:
    """GPUs of charged runs that no forced stop ends and of gangs whose reservation is due, by vertex and pool."""
    works = ent.works
    rows = (works.running & works.charged & (works.forced == UNFORCED)).nonzero()[0]
    own = np.zeros_like(ent.market.held)
    np.add.at(own, (works.leaf[rows], works.run_pool[rows]), works.gpus[rows])
    due = works.due.nonzero()[0]
    np.add.at(own, (works.leaf[due], works.prepaid[due]), works.gpus[due])
    return ent.tree.sum_up(own)
