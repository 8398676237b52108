"""Greedy: promotions, then the best start per GPU, on free nodes or in exchange for cheaper work, until nothing improves."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from allocator.epoch.problem import EpochProblem
from allocator.epoch.solution import EpochSolution, Placement, value_of
from allocator.models.greedy.constraints import may_start
from allocator.models.greedy.displace import Proposal, find_proposals
from allocator.models.greedy.objective import Objective
from allocator.models.greedy.placement import place, room_for
from allocator.models.greedy.variables import State
from allocator.models.protocol import EngineResult, Limits, Status
from allocator.topology.layout import IntArray

NAME = "greedy"

BUILDS = 3
"""Decisions built with better and better prices; later ones seldom win."""

PRICE_DEPTH = 0.03
"""The price of a pool is the rate at which this share of it has been left out: one item alone sets no price."""

MOST_SWEEPS = 8
"""A backstop: each exchange gains something, so sweeps end by themselves."""


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
        self.lane_of = {j: lane for lane, members in enumerate(self.lanes) for j in members}
        self.exchanges = 0
        self.gained = 0
        self.node_cost: IntArray | None = None
        self.prices: list[float] | None = None
        self.siblings = _siblings(problem)

    def run(self) -> EpochSolution:
        """The order of the steps."""
        self._promote()
        self._choose()
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

    def _choose(self) -> None:
        """Build decisions as if every victim had left, each with the prices that the one before found; improve the best."""
        best = (self.gained, self.state.save())
        if self.problem.max_stops is None:
            for _ in range(BUILDS):
                empty = self.gained, self.state.save()
                self._build()
                self._sweep(range(len(self.lanes)), self._fill)
                if self.gained > best[0]:
                    best = (self.gained, self.state.save())
                self.prices = self._rejected_rates()
                self.gained = empty[0]
                self.state.restore(empty[1])
        self.gained, saved = best
        self.state.restore(saved)
        self._improve_by_exchange()

    def _improve_by_exchange(self) -> None:
        waiting = self._sweep(range(len(self.lanes)), self._fill)
        for _ in range(MOST_SWEEPS):
            before = self.exchanges
            waiting = self._sweep(waiting, self._improve)
            if self.exchanges == before:
                break
            waiting = self._sweep(range(len(self.lanes)), self._fill)

    def _build(self) -> None:
        """Victims and offers compete for the same GPUs, the best rate first: who is kept stays in place, who starts avoids
        the places of those whose turn has not come."""
        state, victims = self.state, self.problem.victims
        away = [r for r in range(len(victims.work)) if victims.licensed[r]]
        self.node_cost = np.zeros(len(state.free[0]), dtype=np.int64)
        worth = {r: self.objective.loss_of_stop(r) // int(victims.gpus[r]) for r in away}
        for r in away:
            self.node_cost[victims.nodes[r]] += worth[r] * victims.need[r][0]
            self.gained -= self.objective.loss_of_stop(r)
            state.stop(r)
        heap: list[tuple[bool, float, int, int]] = [self._claim(lane, 0) for lane in range(len(self.lanes))]
        heap += [self._keep_claim(r) for r in away]
        heapq.heapify(heap)
        while heap:
            _, rate, lane, at = heapq.heappop(heap)
            fresh = self._keep_claim(at) if lane < 0 else self._claim(lane, at)
            if lane >= 0 and fresh[3] >= len(self.lanes[lane]):
                continue
            if fresh[1] > rate and heap and fresh > heap[0]:
                heapq.heappush(heap, fresh)
                continue
            if lane < 0:
                self._keep_if_room(at)
                self.node_cost[victims.nodes[at]] -= worth[at] * victims.need[at][0]
            elif self._fill_somewhere(self.lanes[lane][fresh[3]]):
                heapq.heappush(heap, self._claim(lane, fresh[3] + 1))
        self.node_cost = None
        for r in sorted((r for r in away if state.stopped[r]), key=lambda r: -worth[r]):
            self._keep_if_room(r)

    def _fill_somewhere(self, j: int) -> bool:
        """Start the workload of an offer in the pool where it gains most beyond the price of the GPUs."""
        ways = self.siblings[j]
        if len(ways) > 1 and self.prices is not None:
            offers, prices = self.problem.offers, self.prices
            ways = sorted(ways, key=lambda i: prices[offers.pool[i]] * int(offers.gpus[i]) - self.objective.gain_of_start(i))
            ways = ways[: ways.index(j) + 1]
            return any(self._fill(i) for i in ways)
        return self._fill(j)

    def _rejected_rates(self) -> list[float]:
        """By pool, the rate of those just left out: what one more GPU would be worth."""
        state, problem = self.state, self.problem
        left: list[list[tuple[float, int]]] = [[] for _ in problem.express_room]
        for r in np.flatnonzero(state.stopped).tolist():
            gpus = int(problem.victims.gpus[r])
            left[problem.victims.pool[r]].append((self.objective.gain_of_keep(r) / gpus, gpus))
        for j in np.flatnonzero(problem.offers.charged & ~state.started_work[problem.offers.work]).tolist():
            gpus = int(problem.offers.gpus[j])
            left[problem.offers.pool[j]].append((self.objective.gain_of_start(j) / gpus, gpus))
        return [_rate_at(rates, PRICE_DEPTH * int(problem.capacity[0][problem.node_pool == p].sum())) for p, rates in enumerate(left)]

    def _claim(self, lane: int, at: int) -> tuple[bool, float, int, int]:
        """Order of a lane in the building: uncharged starts come last, since nothing charged may stop for them."""
        rate, _, at = self._entry(lane, at)
        return (not self.problem.offers.charged[self.lanes[lane][0]], rate, lane, at)

    def _keep_claim(self, r: int) -> tuple[bool, float, int, int]:
        return (False, -self.objective.gain_of_keep(r) / int(self.problem.victims.gpus[r]), -1, r)

    def _keep_if_room(self, r: int) -> None:
        victims, state = self.problem.victims, self.state
        if np.all(state.free[:, victims.nodes[r]] >= victims.need[r]):
            self.gained += self.objective.gain_of_keep(r)
            state.keep(r)

    def _sweep(self, lanes: Iterable[int], attempt: Callable[[int], bool]) -> list[int]:
        """Try lanes, the best rate first, looked at again as shares move; returns the lanes that still have someone waiting."""
        heap = [self._entry(lane, 0) for lane in lanes]
        heapq.heapify(heap)
        waiting = []
        while heap:
            rate, lane, at = heapq.heappop(heap)
            fresh = self._entry(lane, at)
            if fresh[2] >= len(self.lanes[lane]):
                continue
            if fresh[0] > rate and heap and fresh > heap[0]:
                heapq.heappush(heap, fresh)
                continue
            if attempt(self.lanes[lane][fresh[2]]):
                heapq.heappush(heap, self._entry(lane, fresh[2] + 1))
            else:
                waiting.append(lane)
        return sorted(waiting)

    def _entry(self, lane: int, at: int) -> tuple[float, int, int]:
        """The first workload of a lane, from a place on, that has not started: (minus its gain per GPU, lane, place)."""
        members = self.lanes[lane]
        while at < len(members) and self.state.started_work[self.problem.offers.work[members[at]]]:
            at += 1
        if at >= len(members):
            return (0.0, lane, at)
        return (-self.objective.gain_of_start(members[at]) / int(self.problem.offers.gpus[members[at]]), lane, at)

    def _fill(self, j: int) -> bool:
        """Start the offer on free nodes."""
        if not may_start(self.state, j):
            return False
        placement = place(self.state, j, room_for(self.state, j), self.node_cost)
        if placement is None:
            return False
        gain = self.objective.gain_of_start(j) - self.objective.cost_of_place(j, placement)
        if gain < 0:
            return False
        self.state.start(j, placement)
        self.gained += gain
        return True

    def _exchange(self, j: int) -> bool:
        """Start the offer on free nodes, or in exchange for work that is worth less."""
        if self._fill(j):
            return True
        if not may_start(self.state, j):
            return False
        best = self._best_proposal(j)
        if best is None or best[0] <= 0:
            return False
        self.gained += self._carry_out(best[1])[0]
        self.exchanges += 1
        return True

    def _improve(self, j: int) -> bool:
        """An exchange, or a chain: an exchange that costs at first, after which those it took back find other places."""
        return self._exchange(j) or (may_start(self.state, j) and self._chain(j))

    def _chain(self, j: int) -> bool:
        best = self._best_proposal(j)
        if best is None or not best[1].returns or self.objective.gain_of_start(j) <= sum(map(self.objective.loss_of_stop, best[1].stops)):
            return False
        saved, gained, exchanges = self.state.save(), self.gained, self.exchanges
        self.gained += self._carry_out(best[1])[0]
        self.state.settled.add(j)
        self._sweep(sorted({self.lane_of[i] for i in best[1].returns}), self._exchange)
        self.state.settled.discard(j)
        if self.gained > gained:
            self.exchanges += 1
            return True
        self.state.restore(saved)
        self.gained, self.exchanges = gained, exchanges
        return False

    def _best_proposal(self, j: int) -> tuple[int, Proposal] | None:
        proposals = find_proposals(self.state, self.objective, j)
        gains = [self._measure(proposal) for proposal in proposals]
        return max(zip(gains, proposals, strict=True), key=lambda pair: pair[0], default=None)

    def _measure(self, proposal: Proposal) -> int:
        """What a proposal gains, step by step; the state is as before afterwards."""
        gain, places = self._carry_out(proposal)
        self.state.take_back(proposal.offer)
        for i, placement in places:
            self.state.start(i, placement)
        for r in proposal.stops:
            self.state.keep(r)
        return gain

    def _carry_out(self, proposal: Proposal) -> tuple[int, list[tuple[int, Placement]]]:
        state, objective, gain = self.state, self.objective, 0
        places = []
        for r in proposal.stops:
            gain -= objective.loss_of_stop(r)
            state.stop(r)
        for i in proposal.returns:
            placement = state.take_back(i)
            gain += objective.cost_of_place(i, placement) - objective.gain_of_start(i)
            places.append((i, placement))
        gain += objective.gain_of_start(proposal.offer) - objective.cost_of_place(proposal.offer, proposal.placement)
        state.start(proposal.offer, proposal.placement)
        return gain, places


def _rate_at(rates: list[tuple[float, int]], depth: float) -> float:
    """The rate at which so many GPUs have been left out, the best first; 0 if there are fewer."""
    seen = 0
    for rate, gpus in sorted(rates, reverse=True):
        seen += gpus
        if seen >= depth:
            return max(rate, 0.0)
    return 0.0


def _siblings(problem: EpochProblem) -> list[list[int]]:
    """For each offer, the offers of the same workload in the same mode, in any pool."""
    offers = problem.offers
    same: dict[tuple[int, bool], list[int]] = {}
    for j in range(len(offers.work)):
        same.setdefault((int(offers.work[j]), bool(offers.charged[j])), []).append(j)
    return [same[int(offers.work[j]), bool(offers.charged[j])] for j in range(len(offers.work))]


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
