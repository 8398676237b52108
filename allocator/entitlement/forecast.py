"""When large gangs that are not entitled yet will be, if things go on as they are."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from allocator.entitlement.claim import ledger_of
from allocator.entitlement.model import Entitlement
from allocator.entitlement.tree import ObjectArray
from allocator.entitlement.usage import effective_window
from allocator.entitlement.waterfill import MILLI, hand_out
from allocator.topology import IntArray

HORIZONS = tuple(3600 * hours // 4 for hours in (1, 2, 4, 8, 12, 16, 24, 32, 48, 72, 96, 144, 192, 288, 480, 672))
"""Spans in seconds at which the forecast looks; one that falls between two of them is given as the later."""


def forecast(ent: Entitlement, rows: list[int]) -> Mapping[int, int]:
    """For each of these gangs that is owed half its size by some horizon: that instant.

    Whoever holds charged GPUs goes on holding them, what was used leaves the window at an even pace, and nobody arrives or
    ends. A forecast, not a promise.
    """
    if not rows:
        return {}
    pools = sorted({int(ent.works.home[row]) for row in rows})
    found: dict[int, int] = {}
    for span, owed in zip(HORIZONS, _owed_in_all(ent, pools), strict=True):
        ledger = ledger_of(ent, np.array(rows), owed)
        for place, row in enumerate(rows):
            if row not in found and ledger.owes_half_of(place):
                found[row] = ent.snapshot.now + span
    return found


def _owed_in_all(ent: Entitlement, pools: list[int]) -> list[IntArray]:
    """What everybody is owed in these pools after each span, in 1/1000 GPU, shape (num_vertices, num_pools) each.

    All spans are filled at once, side by side as if they were pools.
    """
    market, policy, tree = ent.market, ent.snapshot.policy, ent.tree
    window, num = effective_window(policy), len(HORIZONS)
    usage, held, demand = (values[:, pools] for values in (market.usage, market.held, market.demand))
    spans = [min(span, window) for span in HORIZONS]
    later = np.hstack([usage - usage * span // window + held * span for span in spans])
    weight: ObjectArray = np.tile(tree.weight[:, pools], num)
    wanted, capacity = np.tile(demand, num), np.tile(market.schedulable[pools], num)
    nothing = np.zeros_like(wanted)
    owed = hand_out(tree, weight, MILLI * capacity, later, nothing, wanted, policy.horizon, nothing)
    in_all = np.zeros((num, *market.owed.shape), dtype=np.int64)
    in_all[:, :, pools] = np.hsplit(owed, num)
    return list(in_all)
