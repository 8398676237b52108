"""From fractions to a decision: what is mostly chosen is carried out as far as it fits, and the rest is filled by rate."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence, Set

import numpy as np

from allocator.entitlement.alike import number_classes
from allocator.epoch.afterthoughts import overlooked, plain_claims
from allocator.epoch.problem import EpochProblem
from allocator.models.greedy.clearing import Clearing
from allocator.models.greedy.constraints import may_start
from allocator.models.greedy.news import FloatArray
from allocator.models.greedy.objective import Curves, gain_of_start, value_of_state
from allocator.models.greedy.placement import place
from allocator.models.greedy.repair import keep_back, promote, repair
from allocator.models.greedy.variables import State, Tables, units_that_fit
from allocator.topology.layout import GPUS, IntArray

MOSTLY = 0.5
"""The part from which on a start counts as chosen."""

MOST_EXCHANGES = 16
"""Starts for which room is made at the end."""

MOST_FAILURES = 4
"""Lanes for whose next start no room is worth making, until no more exchanges are looked for."""

A_LITTLE = 0.2
"""The part from which on a victim leaves; who turns out not to be in the way stays after all."""


class Rounding:
    """Rounds fractions of one problem."""

    def __init__(self, problem: EpochProblem) -> None:
        self.problem, self.tables, self.curves = problem, Tables(problem), Curves(problem)
        self._clearing = Clearing(problem, self.curves)
        offers = problem.offers
        need = problem.shapes.need[GPUS, offers.shape]
        # Whole nodes before parts, what has to lie in one domain before what may lie anywhere, large before small; of equals
        # charged work first: it may stand where charged work stood; then what moves: it may have no licence to wait.
        tied = np.where(offers.units > 1, offers.required, -1)
        self._order = np.lexsort((np.arange(len(need)), offers.victim < 0, ~offers.charged, -offers.gpus, -tied, -need))
        self.lanes = lanes_of(problem)
        self._wants = [(self.tables.shape[members[0]], self.tables.units[members[0]]) for members in self.lanes]

    def carry_out(self, chosen: FloatArray) -> State:
        """A feasible decision near the fractions (offers, then victims, then promotions)."""
        state = State(self.problem, self.tables)
        num_offers, num_victims = len(self.problem.offers.work), len(self.problem.victims.work)
        starts, stops, promotions = np.split(chosen, [num_offers, num_offers + num_victims])
        for r in np.flatnonzero(stops > A_LITTLE).tolist():
            state.stop(r)
        promote(state, np.flatnonzero(promotions > MOSTLY).tolist())
        wanted = self._order[starts[self._order] >= MOSTLY].tolist()
        moves = {self.tables.victim[j] for j in wanted}
        self._take_places(state, [j for j in wanted if self.tables.express[j] and self.tables.units[j] == 1], moves)
        for j in wanted:
            if not self._start(state, j) and self.tables.units[j] > 1:
                self._clearing.start(state, j)
        keep_back(state, self.curves)
        promote(state)
        self._fill(state)
        return state

    def mend(self, state: State) -> None:
        """Ensures what single starts and stops do not see; see `repair`."""
        if repair(state, self.curves):
            self._fill(state)

    def exchange(self, state: State) -> bool:
        """Start charged work that is worth more than the cheapest stops that make room for it, the best rate first; whether
        there was any."""
        charged = (lane for lane, members in enumerate(self.lanes) if self.tables.charged[members[0]])
        found, failures = 0, 0
        for claim in sorted(claim for lane in charged if (claim := self._claim(state, lane, 0))):
            following: tuple[float, int, int] | None = claim
            while following and found < MOST_EXCHANGES and may_start(state, j := self.lanes[following[1]][following[2]]):
                if not self._clearing.start(state, j):
                    failures += 1
                    break
                found, following = found + 1, self._claim(state, following[1], following[2] + 1)
            if failures == MOST_FAILURES:
                break
        return found > 0

    def start_overlooked(self, state: State) -> bool:
        """Ensures unallocated_last: entitled work starts where that costs least, even if it costs more than waiting; whether
        any does."""
        claims = plain_claims(self.problem)
        waiting = overlooked(self.problem, state.solution(), claims) if claims else []
        rate = {j: gain_of_start(state, self.curves, j) / self.tables.gpus[j] for j in waiting}
        order = sorted(waiting, key=lambda j: (-rate[j], j))
        started = [j for j in order if self._clearing.start_over_unallocated(state, j)]
        if started:
            self.mend(state)
        return bool(started)

    def at_less_cost(self, state: State) -> State:
        """The decision with single units elsewhere, where others stop for them that cost less; the dearest stops first."""
        best, value = state, value_of_state(state, self.curves)
        for j in self._units_with_stops(state)[:MOST_EXCHANGES]:
            other = best.copy()
            other.take_back(j)
            keep_back(other, self.curves)
            if len(other.stopped) < len(best.stopped) and self._clearing.start(other, j, value):
                best, value = other, value_of_state(other, self.curves)
        return best

    def _units_with_stops(self, state: State) -> list[int]:
        """Single units that start on nodes where others stop, but what only moves; that with the dearest of these first."""
        cost: dict[int, int] = {}
        for r in state.stopped:
            for node in self.problem.victims.nodes[r].tolist():
                cost[node] = cost.get(node, 0) + self.tables.victim_cost[r]
        starts = ((j, next(iter(placement))) for j, placement in state.starts.items() if len(placement) == 1)
        units, victim = self.tables.units, self.tables.victim
        of = {j: cost[node] for j, node in starts if node in cost and units[j] == 1 and victim[j] < 0}
        return sorted(of, key=lambda j: (-of[j], j))

    def _take_places(self, state: State, express: Iterable[int], moves: Set[int]) -> None:
        """Put express starts where charged work without a licence leaves, until it would not fit there: they are its only
        excuse, if it does not move."""
        for r in sorted(r for r in state.stopped - moves if not self.problem.victims.licensed[r]):
            nodes = self.problem.victims.nodes[r].tolist()
            ways = ((j, node) for j in express for node in nodes if may_start(state, j) and state.takes(j, node))
            while state.fits(r) and (found := next(ways, None)):
                state.start(found[0], {found[1]: 1})
            if state.fits(r):
                state.keep(r)

    def _start(self, state: State, j: int) -> bool:
        if not may_start(state, j):
            return False
        placement = place(state, j)
        if placement is None:
            return False
        state.start(j, placement)
        return True

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


def lanes_of(problem: EpochProblem) -> list[list[int]]:
    """Offers that differ in nothing but their rank, in order: one lane per queue and kind of offer."""
    offers = problem.offers
    kinds: tuple[IntArray, ...] = (
        offers.queue, offers.shape, offers.promise_cost, offers.units, offers.required, offers.segment_level,
    )  # fmt: skip
    lane = number_classes(*kinds)
    order = np.argsort(lane, kind="stable")
    lanes: list[list[int]] = [own.tolist() for own in np.split(order, np.flatnonzero(np.diff(lane[order])) + 1) if len(own)]
    return sorted(lanes)


def places_in_lanes(lanes: Sequence[Sequence[int]], num_offers: int) -> tuple[IntArray, IntArray]:
    """The lane of each offer and its place there, both of shape (num_offers,)."""
    lane, at = np.zeros(num_offers, dtype=np.int64), np.zeros(num_offers, dtype=np.int64)
    for number, members in enumerate(lanes):
        lane[members], at[members] = number, np.arange(len(members))
    return lane, at
