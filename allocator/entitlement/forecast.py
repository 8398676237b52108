"""When large gangs that are not entitled yet will be, if things go on as they are."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from allocator.entitlement.model import Entitlement
from allocator.entitlement.usage import effective_window
from allocator.entitlement.waterfill import MILLI, fill
from allocator.topology import IntArray

HORIZONS = tuple(3600 * hours // 4 for hours in (1, 2, 4, 8, 12, 16, 24, 32, 48, 72, 96, 144, 192, 288, 480, 672))
"""Spans in seconds at which the forecast looks; one that falls between two of them is given as the later."""


def forecast(ent: Entitlement, rows: list[int]) -> Mapping[int, int]:
    """For each of these gangs that is owed half its size by some horizon: that instant.

    Whoever holds charged GPUs goes on holding them, what was used leaves the window at an even pace, and nobody arrives or
    ends. A forecast, not a promise.
    """
    found: dict[int, int] = {}
    for span in HORIZONS if rows else ():
        left = [row for row in rows if row not in found]
        if not left:
            break
        owed = _owed_in(ent, span)
        found |= {row: ent.snapshot.now + span for row in left if _owes_half(ent, owed, row)}
    return found


def _owed_in(ent: Entitlement, span: int) -> IntArray:
    """What everybody is owed after a span, in 1/1000 GPU, shape (num_vertices, num_pools)."""
    market, policy, tree = ent.market, ent.snapshot.policy, ent.tree
    window = effective_window(policy)
    leaving = market.usage * min(span, window) // window
    usage = market.usage - leaving + market.held * min(span, window)
    floors = np.zeros_like(market.floor)
    first = np.zeros_like(market.demand)
    return fill(tree, MILLI * market.schedulable, usage, floors, market.demand, policy.horizon, first).entitled


def _owes_half(ent: Entitlement, owed: IntArray, row: int) -> bool:
    """Whether every vertex that has a say is owed half the gang beyond what it holds."""
    leaf, pool = int(ent.works.leaf[row]), int(ent.works.home[row])
    judges = ent.tree.funding_path(leaf) or (leaf,)
    half = MILLI * int(ent.works.gpus[row])
    return all(2 * int(owed[v, pool] - MILLI * ent.market.held[v, pool]) >= half for v in judges)
