"""Greedy: promotions, then the best start per GPU, on free nodes or in exchange for cheaper work, until nothing improves."""

from __future__ import annotations

import heapq

import numpy as np

from allocator.epoch.problem import EpochProblem
from allocator.epoch.solution import EpochSolution, value_of
from allocator.models.greedy.constraints import may_start
from allocator.models.greedy.displace import find_exchange
from allocator.models.greedy.objective import Objective
from allocator.models.greedy.placement import place, room_for
from allocator.models.greedy.variables import State
from allocator.models.protocol import EngineResult, Limits, Status

NAME = "greedy"


def solve(problem: EpochProblem, limits: Limits, guess: EpochSolution | None = None) -> EngineResult:
    """A feasible answer in milliseconds. Needs neither limits nor guess; deterministic."""
    solution = _Greedy(problem).run()
    return EngineResult(NAME, Status.FEASIBLE, solution, value_of(problem, solution), None)


class _Greedy:
    def __init__(self, problem: EpochProblem) -> None:
        self.problem = problem
        self.state = State(problem)
        self.objective = Objective(self.state)
        self.lanes = _lanes(problem)

    def run(self) -> EpochSolution:
        """The order of the steps."""
        self._promote()
        self._start_best_first()
        self._promote()
        return self.state.solution()

    def _promote(self) -> None:
        """Work that runs uncharged is promoted as far as funds go, in the order of the queue."""
        promotions, state = self.problem.promotions, self.state
        for u in range(len(promotions.work)):
            victim = int(promotions.victim[u])
            gone = victim >= 0 and bool(state.stopped[victim])
            cost = int(promotions.promise_cost[u])
            rows = state.funding_of_promotion[u]
            if not gone and not state.promoted[u] and all(state.promised[i] + cost <= self.problem.funding[i].available for i in rows):
                state.promote(u)

    def _start_best_first(self) -> None:
        """Lanes by gain per GPU, looked at again whenever shares have moved; blocked lanes return when something has stopped."""
        heap = [self._entry(lane, 0) for lane in range(len(self.lanes))]
        heapq.heapify(heap)
        blocked: list[tuple[int, int]] = []
        while heap:
            rate, lane, at = heapq.heappop(heap)
            members = self.lanes[lane]
            while at < len(members) and self.state.started_work[self.problem.offers.work[members[at]]]:
                at += 1
            if at == len(members):
                continue
            fresh = self._entry(lane, at)
            if fresh[0] > rate and heap and fresh > heap[0]:
                heapq.heappush(heap, fresh)
                continue
            outcome = self._try(members[at])
            if outcome is None:
                blocked.append((lane, at))
                continue
            heapq.heappush(heap, self._entry(lane, at + 1))
            if outcome:
                for entry in blocked:
                    heapq.heappush(heap, self._entry(*entry))
                blocked = []

    def _entry(self, lane: int, at: int) -> tuple[float, int, int]:
        members = self.lanes[lane]
        if at >= len(members):
            return (0.0, lane, at)
        j = members[at]
        return (-self.objective.gain_of_start(j) / int(self.problem.offers.gpus[j]), lane, at)

    def _try(self, j: int) -> bool | None:
        """Start the offer: False on free nodes, True if something was stopped for it, None if it must wait."""
        state = self.state
        if not may_start(state, j):
            return None
        placement = place(state, j, room_for(state, j))
        if placement is not None and self.objective.gain_of_start(j) >= self.objective.cost_of_place(j, placement):
            state.start(j, placement)
            return False
        exchange = find_exchange(state, self.objective, j)
        if exchange is None:
            return None
        for r in exchange.stops:
            state.stop(r)
        state.start(j, exchange.placement)
        return True


def _lanes(problem: EpochProblem) -> list[list[int]]:
    """Offers that differ in nothing but their rank, in order: one lane per queue and kind of offer, charged ones first."""
    offers = problem.offers
    keys = [
        (int(offers.queue[j]), not offers.charged[j], int(offers.pool[j]), int(offers.shape[j]), int(offers.promise_cost[j]))
        for j in range(len(offers.work))
    ]
    lanes: dict[tuple[object, ...], list[int]] = {}
    for j in np.lexsort((np.arange(len(keys)), ~offers.charged, offers.queue)) if keys else ():
        lanes.setdefault(keys[j], []).append(int(j))
    return list(lanes.values())
