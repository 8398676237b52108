"""What a fleet delivers, and the smallest fleet that delivers what is required: pure functions of arrays.

A pool of C GPUs with demand d, which adds up to D, and shares b, which add up to 1, delivers to project v

    x_v = min(most(D / C) * d_v, level * b_v)

where the level is the largest one at which the x_v add up to no more than `served(D / C) * D`: the fair share that entitlement
evens out over a window. `delivered` is the only place that knows it; `needed` inverts it.
"""

from __future__ import annotations

import numpy as np

from allocator.planning.question import Floats, Ints
from allocator.planning.utilisation import Utilisation

TOLERANCE = 1e-9
"""Shares that are closer than this to what is required have met it."""


def delivered(gpus: Floats | Ints, demand: Floats, shares: Floats, utilisation: Utilisation) -> Floats:
    """GPUs that each project gets on average.

    Parameters
    ----------
    gpus
        Of the pool, shape (...).
    demand
        Shape (..., V).
    shares
        Shape (V,). A project without a share is owed nothing and not counted on to get anything.
    """
    size = np.asarray(gpus, dtype=np.float64)[..., None]
    asked = np.where(shares > 0, demand, 0.0)
    total = asked.sum(-1, keepdims=True)
    load = np.divide(total, size, out=np.full(np.broadcast_shapes(total.shape, size.shape), np.inf), where=size > 0)
    wanted = utilisation.most(load) * asked
    level = _level((utilisation.served(load) * total)[..., 0], wanted, shares)[..., None]
    # An infinite level gives whoever has a share all that is wanted; without a share nothing is wanted here.
    return np.minimum(wanted, level * np.where(shares > 0, shares, 1.0))


def delivered_share(gpus: Floats | Ints, demand: Floats, owed: Floats, shares: Floats, utilisation: Utilisation) -> Floats:
    """What is delivered of what is owed, cut at 1; 1 where nothing is owed. Shapes as in `delivered`."""
    got = delivered(gpus, demand, shares, utilisation)
    return np.minimum(1.0, np.divide(got, owed, out=np.ones(got.shape), where=owed > 0))


def needed(demand: Floats, owed: Floats, shares: Floats, required: Floats, utilisation: Utilisation) -> Ints:
    """The least GPUs with which every project gets its required share of what it is owed, shape (...).

    More GPUs deliver no less, so that bisection finds them.
    """
    # At the lowest load that was measured everybody gets the same, and as much as anybody may be promised.
    high = np.ceil(np.where(shares > 0, demand, 0).sum(-1) / utilisation.loads[0]).astype(np.int64) + 1
    low = np.zeros_like(high)
    while np.any(low < high):
        middle = (low + high) // 2
        enough = np.all(delivered_share(middle, demand, owed, shares, utilisation) >= required - TOLERANCE, axis=-1)
        low, high = np.where(enough, low, np.minimum(middle + 1, high)), np.where(enough, middle, high)
    return np.asarray(high)


def _level(capacity: Floats, wanted: Floats, shares: Floats) -> Floats:
    """The level at which min(wanted, level * shares) adds up to the capacity, infinite where it never does; shape (...)."""
    steps = np.divide(wanted, shares, out=np.full(wanted.shape, np.inf), where=shares > 0)
    order = np.argsort(steps, axis=-1, kind="stable")
    steps = np.take_along_axis(steps, order, -1)
    sorted_wants = np.take_along_axis(wanted, order, -1)
    weights = np.broadcast_to(shares, wanted.shape)
    weights = np.take_along_axis(weights, order, -1)
    before = np.cumsum(sorted_wants, -1) - sorted_wants
    open_weight = np.cumsum(weights[..., ::-1], -1)[..., ::-1]
    levels = np.divide(capacity[..., None] - before, open_weight, out=np.full(wanted.shape, np.inf), where=open_weight > 0)
    # It lies in the first step that it does not pass; the later ones only give less.
    found = np.max(np.where(levels <= steps, levels, -np.inf), axis=-1)
    return np.where(np.isneginf(found), np.inf, found)
