"""Room for a gang whose GPUs are there in sum, but not in one domain: who lies in the way moves, or stops if that may be.

The same for a single unit and a node: an exchange that no rounding has found.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from allocator.epoch.problem import EpochProblem, holdings
from allocator.models.greedy.constraints import may_start
from allocator.models.greedy.objective import Curves, value_of_state
from allocator.models.greedy.placement import place
from allocator.models.greedy.variables import State, units_that_fit
from allocator.topology.layout import BoolArray, IntArray

MOST_DOMAINS = 3
"""Domains that are tried for one gang, or nodes for one unit, those that are cheapest to clear."""


class Clearing:
    """Victims that may move or stop, by node: entry i is victim `_victim[i]`, which holds `_need[:, i]` of node `_node[i]`."""

    def __init__(self, problem: EpochProblem, curves: Curves) -> None:
        self._problem, self._curves = problem, curves
        victims, gain = problem.victims, np.zeros(len(problem.victims.work), dtype=np.int64)
        moves = problem.offers.victim >= 0
        np.maximum.at(gain, problem.offers.victim[moves], problem.offers.gain[moves])
        self._cost = victims.cost - gain
        open_to = victims.licensed | (gain > 0)
        held = holdings(victims)
        chosen = open_to[held.victim]
        by_node = np.lexsort((held.victim, victims.cost[held.victim], held.node))
        entries = by_node[chosen[by_node]]
        self._victim, self._node, self._need = held.victim[entries], held.node[entries], held.need[:, entries]
        self._unallocated = ~victims.charged[self._victim]

    def start(self, state: State, j: int, most: float | None = None) -> bool:
        """Start a gang in a domain that is cleared for it, or a single unit on a node, if that is worth what it costs: if the
        decision is worth less than `most` then, or if None than now."""
        if not may_start(state, j):
            return False
        most = value_of_state(state, self._curves) if most is None else most
        return self._start(state, j, self._stays(state), most)

    def start_over_unallocated(self, state: State, j: int) -> bool:
        """Start it, where that costs least, whatever it costs: beside all charged work."""
        return may_start(state, j) and self._start(state, j, self._stays(state) & self._unallocated, math.inf)

    def _start(self, state: State, j: int, clears: BoolArray, most: float) -> bool:
        """Start it by what entries of `clears` hold, if the decision is worth less than `most` then."""
        ways = self._nodes if state.tables.units[j] == 1 else self._domains
        return any(self._try(state, j, rows, most) for rows in ways(state, j, clears))

    def _stays(self, state: State) -> BoolArray:
        """Entries of victims that have not been stopped, shape (num_entries,)."""
        stops = np.zeros(len(self._cost), dtype=np.bool_)
        stops[list(state.stopped)] = True
        return ~stops[self._victim]

    def _nodes(self, state: State, j: int, clears: BoolArray) -> Iterator[list[int]]:
        """Victims that make room for one unit on a node, the cheapest of the node; nobody where there is room.

        They are compared by what their stops cost: where one unit finds no room, who moves finds none either, as a rule.
        """
        shapes, s = self._problem.shapes, state.tables.shape[j]
        need, open_to = shapes.need[:, s], shapes.open_to[s]
        if place(state, j) is not None:
            yield []
        victim, node = self._victim[clears], self._node[clears]
        first = node.searchsorted(node)
        room = state.free[:, node] + _sum_of_own(self._need[:, clears], first)
        cost = _sum_of_own(self._problem.victims.cost[victim], first)
        enough = (open_to[node] & (room >= need[:, np.newaxis]).all(axis=0)).nonzero()[0]
        least = enough[np.diff(node[enough], prepend=-1) > 0]
        for end in least[np.lexsort((least, cost[least]))][:MOST_DOMAINS].tolist():
            yield victim[first[end] : end + 1].tolist()

    def _domains(self, state: State, j: int, clears: BoolArray) -> Iterator[list[int]]:
        """Victims whose places make a domain large enough, the cheapest domains first."""
        offers, shapes, s = self._problem.offers, self._problem.shapes, state.tables.shape[j]
        cleared, cost = state.free.copy(), np.zeros(state.free.shape[1], dtype=np.int64)
        for row, own in zip(cleared, self._need, strict=True):
            np.add.at(row, self._node[clears], own[clears])
        np.add.at(cost, self._node[clears], self._cost[self._victim[clears]])
        now = units_that_fit(state.free, shapes.need[:, s], shapes.open_to[s])
        gained = units_that_fit(cleared, shapes.need[:, s], shapes.open_to[s]) - now
        level, units = int(offers.required[j]), int(offers.units[j])
        domain = self._problem.node_domain[level] if level >= 0 else np.zeros_like(now)
        room, most = (np.bincount(domain, weights=amount) for amount in (now, now + gained))
        inside = np.flatnonzero((gained > 0) & (most >= units)[domain])
        inside = inside[np.lexsort((cost[inside] / gained[inside], domain[inside]))]
        part, number = domain[inside], gained[inside]
        # From the cheapest node on, until they hold what is missing.
        before = np.cumsum(number) - number
        before -= before[np.searchsorted(part, part)]
        taken = inside[before < np.maximum(units - room[part], 1)]
        total = np.zeros(len(most), dtype=np.int64)
        np.add.at(total, domain[taken], cost[taken])
        enough = np.flatnonzero(most >= units)
        for found in enough[np.lexsort((enough, total[enough]))][:MOST_DOMAINS].tolist():
            clear = np.zeros(len(now), dtype=np.bool_)
            clear[taken[domain[taken] == found]] = True
            yield np.unique(self._victim[clears & clear[self._node]]).tolist()

    def _try(self, state: State, j: int, rows: Sequence[int], most: float) -> bool:
        """Stop the victims, start the gang, keep who still fits and restart who may move; undo it all if the decision
        is not worth less than `most` then."""
        promoted = [u for r in rows if (u := state.tables.promotion_of.get(r)) in state.promoted and u is not None]
        for r in rows:
            state.stop(r)
        placement = place(state, j)
        if placement is not None:
            state.start(j, placement)
            if self._settle(state, rows) and value_of_state(state, self._curves) < most:
                return True
            state.take_back(j)
        for r in rows:
            if r in state.stopped:
                state.keep(r)
        for u in promoted:
            state.promote(u)
        return False

    def _settle(self, state: State, rows: Sequence[int]) -> bool:
        """Keep who still fits and restart who may move; whether all that has no licence to stop has a place."""
        for r in sorted(rows, key=lambda r: (state.tables.licensed[r], -int(self._cost[r]), r)):
            if state.fits(r):
                state.keep(r)
                continue
            ways = ((j, found) for j in state.tables.restarts.get(r, ()) if may_start(state, j) and (found := place(state, j)))
            restart = next(ways, None)
            if restart is not None:
                state.start(*restart)
            elif not state.tables.licensed[r]:
                return False
        return True


def _sum_of_own(amount: IntArray, first: IntArray) -> IntArray:
    """Running sums along the last axis, each beginning anew at `first`, the first entry of the same group; same shape."""
    total = np.cumsum(amount, axis=-1)
    before = np.concatenate([np.zeros_like(total[..., :1]), total], axis=-1)
    return np.asarray(total - before[..., first])
