"""From fractions to a decision: what is mostly chosen is carried out as far as it fits, and the rest is filled by rate."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

import numpy as np

from allocator.epoch.afterthoughts import misplaced
from allocator.epoch.problem import EpochProblem
from allocator.models.greedy.constraints import may_promote, may_start
from allocator.models.greedy.linear import FloatArray
from allocator.models.greedy.objective import Curves, gain_of_keep, gain_of_start, loss_of_return
from allocator.models.greedy.placement import place
from allocator.models.greedy.variables import State, Tables, units_that_fit
from allocator.topology.layout import GPUS, IntArray

MOSTLY = 0.5
"""The part from which on a start counts as chosen."""

A_LITTLE = 0.2
"""The part from which on a victim leaves; who turns out not to be in the way stays after all."""


class Rounding:
    """Rounds fractions of one problem."""

    def __init__(self, problem: EpochProblem) -> None:
        self.problem, self.tables, self.curves = problem, Tables(problem), Curves(problem)
        offers = problem.offers
        need = problem.shapes.need[GPUS, offers.shape]
        # Whole nodes before parts, large before small; of equals charged work first: it may stand where charged work stood.
        self._order = np.lexsort((np.arange(len(need)), ~offers.charged, -offers.gpus, -need))
        self.lanes = lanes_of(problem)
        self._wants = [(self.tables.shape[members[0]], self.tables.units[members[0]]) for members in self.lanes]

    def carry_out(self, chosen: FloatArray) -> State:
        """A feasible decision near the fractions (offers, then victims, then promotions)."""
        state = State(self.problem, self.tables)
        num_offers, num_victims = len(self.problem.offers.work), len(self.problem.victims.work)
        starts, stops, promotions = np.split(chosen, [num_offers, num_offers + num_victims])
        for r in np.flatnonzero(stops > A_LITTLE).tolist():
            state.stop(r)
        self._promote(state, np.flatnonzero(promotions > MOSTLY).tolist())
        for j in self._order[starts[self._order] >= MOSTLY].tolist():
            self._start(state, j)
        self._keep_back(state)
        self._promote(state, range(len(promotions)))
        self._fill(state)
        return state

    def _start(self, state: State, j: int) -> bool:
        if not may_start(state, j):
            return False
        placement = place(state, j)
        if placement is None:
            return False
        state.start(j, placement)
        return True

    def _promote(self, state: State, rows: Iterable[int]) -> None:
        """Promote who stays, as far as funds go."""
        victim = self.problem.promotions.victim
        for u in rows:
            if u not in state.promoted and int(victim[u]) not in state.stopped and may_promote(state, u):
                state.promote(u)

    def _keep_back(self, state: State) -> None:
        """Ensures minimal: whoever is not in the way stays, the dearest first."""
        gpus = self.tables.victim_gpus
        rate = {r: gain_of_keep(state, self.curves, r) / gpus[r] for r in state.stopped}
        for r in sorted(rate, key=lambda r: (-rate[r], r)):
            if state.fits(r):
                state.keep(r)

    def _fill(self, state: State) -> None:
        """Start what fits and saves something, the best rate first; rates only fall while work starts."""
        room = self._room(state)
        open_lanes = (lane for lane, (shape, units) in enumerate(self._wants) if room[shape] >= units)
        heap = [claim for lane in open_lanes if (claim := self._claim(state, lane, 0))]
        heapq.heapify(heap)
        while heap:
            rate, lane, at = heapq.heappop(heap)
            fresh = self._claim(state, lane, at)
            if fresh is None:
                continue
            if fresh[0] > rate and heap and fresh > heap[0]:
                heapq.heappush(heap, fresh)
            elif self._start(state, self.lanes[lane][fresh[2]]) and (after := self._claim(state, lane, fresh[2] + 1)):
                heapq.heappush(heap, after)

    def _room(self, state: State) -> list[int]:
        """Units of each shape that the free nodes could take."""
        shapes = self.problem.shapes
        most = int(state.free[GPUS].max(initial=0))
        return [
            int(units_that_fit(state.free, shapes.need[:, s], shapes.open_to[s]).sum()) if shapes.need[GPUS, s] <= most else 0
            for s in range(len(shapes.pool))
        ]

    def _claim(self, state: State, lane: int, at: int) -> tuple[float, int, int] | None:
        """The rate (negative, best first) of the next of a lane that waits."""
        members, work = self.lanes[lane], self.tables.work
        while at < len(members) and work[members[at]] in state.started_work:
            at += 1
        if at == len(members):
            return None
        gain = gain_of_start(state, self.curves, members[at])
        return (-gain / self.tables.gpus[members[at]], lane, at) if gain > 0 else None

    def mend(self, state: State) -> None:
        """Ensures charged_first: who would fit beside charged work alone stays, and uncharged work there gives way."""
        while wrong := misplaced(self.problem, state.solution()):
            for r in wrong:
                self._clear_for(state, r)
                if state.fits(r):
                    state.keep(r)
            self._keep_back(state)

    def _clear_for(self, state: State, r: int) -> None:
        """Take back uncharged starts, then stop uncharged victims, until a victim fits where it was."""
        nodes = set(self.problem.victims.nodes[r].tolist())
        starts = [j for j, placement in state.starts.items() if not self.tables.charged[j] and not nodes.isdisjoint(placement)]
        for j in sorted(starts, key=lambda j: (loss_of_return(state, self.curves, j), j)):
            if self._in_the_way(state, r, list(state.starts[j])):
                state.take_back(j)
        for v, own in enumerate(self.problem.victims.nodes):
            if v != r and v not in state.stopped and not state.is_charged(v) and self._in_the_way(state, r, own.tolist()):
                state.stop(v)

    def _in_the_way(self, state: State, r: int, nodes: Sequence[int]) -> bool:
        """Whether a victim lacks room on any of these nodes."""
        own = self.problem.victims.nodes[r]
        short = own[(state.free[:, own] < self.problem.victims.need[r]).any(axis=0)]
        return not set(short.tolist()).isdisjoint(nodes)


def lanes_of(problem: EpochProblem) -> list[list[int]]:
    """Offers that differ in nothing but their rank, in order: one lane per queue and kind of offer."""
    offers = problem.offers
    kinds: tuple[IntArray, ...] = (
        offers.queue, offers.shape, offers.promise_cost, offers.units, offers.required, offers.segment_level,
    )  # fmt: skip
    lanes: dict[tuple[int, ...], list[int]] = {}
    for j, kind in enumerate(zip(*(column.tolist() for column in kinds), strict=True)):
        lanes.setdefault(kind, []).append(j)
    return list(lanes.values())
