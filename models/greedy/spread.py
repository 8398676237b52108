"""What touching domains costs a gang in any decision: a fact that tightens the relaxation."""

from __future__ import annotations

import numpy as np

from allocator.epoch.problem import EpochProblem, holdings
from allocator.models.greedy.variables import units_that_fit
from allocator.topology.layout import IntArray


def least_spread(problem: EpochProblem) -> IntArray:
    """What the domains that each offer touches cost at least, were all victims gone and it alone, shape (num_offers,).

    On every level the domains with most room are taken first; none of them can hold more.
    """
    offers, shapes = problem.offers, problem.shapes
    room = problem.free.copy()
    holdings(problem.victims).add_to(room)
    least = np.zeros(len(offers.work), dtype=np.int64)
    gangs = np.flatnonzero((offers.units > 1) & (offers.spread > 0).any(axis=1))
    for s in np.unique(offers.shape[gangs]).tolist():
        own = gangs[offers.shape[gangs] == s]
        units = units_that_fit(room, shapes.need[:, s], shapes.open_to[s])
        for level, domain in enumerate(problem.node_domain):
            held = np.cumsum(-np.sort(-np.bincount(domain, weights=units).astype(np.int64)))
            touched = np.searchsorted(held, offers.units[own]) + 1
            least[own] += offers.spread[own, level] * np.maximum(touched - offers.fewest[own, level], 0)
    return least
