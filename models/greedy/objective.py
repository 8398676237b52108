"""What one step is worth, in 1/1000 GPU-second: exact differences of the objective."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from allocator.epoch.problem import WholeDomain
from allocator.epoch.solution import Placement, spread_value
from allocator.models.greedy.variables import State
from allocator.topology.layout import GPUS


class Objective:
    """Differences of the objective at the present state."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._values: list[dict[int, int]] = [{} for _ in state.problem.shares]
        self._domains_of_node: dict[int, list[WholeDomain]] = {}
        for domain in state.problem.whole_domains:
            for node in domain.nodes.tolist():
                self._domains_of_node.setdefault(node, []).append(domain)

    def gain_of_start(self, j: int) -> int:
        """What starting offer j saves wherever it lies."""
        state = self._state
        return int(state.problem.offers.gain[j]) - self._shares(state.terms_of_offer[j], int(state.problem.offers.gpus[j]))

    def loss_of_stop(self, r: int) -> int:
        """What stopping victim r alone costs; a promotion that it would have had is lost with it."""
        state = self._state
        terms = state.terms_of_promotion[state.promotion_of[r]] if state.is_promoted(r) else state.terms_of_victim[r]
        return int(state.problem.victims.cost[r]) + self._shares(terms, -int(state.problem.victims.gpus[r]))

    def _shares(self, terms: Iterable[int], gpus: int) -> int:
        return sum(self._step(t, gpus) for t in terms)

    def _step(self, t: int, gpus: int) -> int:
        now = self._state.problem.shares[t].base + self._state.held[t]
        return self._value(t, now + gpus) - self._value(t, now)

    def _value(self, t: int, gpus: int) -> int:
        known = self._values[t]
        if gpus not in known:
            known[gpus] = self._state.problem.shares[t].curve.value(gpus)
        return known[gpus]

    def gain_of_keep(self, r: int) -> int:
        """What keeping victim r, stopped so far, saves; a promotion that it would have counts."""
        state = self._state
        terms = state.terms_of_promotion[state.promotion_of[r]] if r in state.demoted else state.terms_of_victim[r]
        return int(state.problem.victims.cost[r]) - self._shares(terms, int(state.problem.victims.gpus[r]))

    def loss_of_return(self, j: int) -> int:
        """What taking back the start of offer j costs, but for the place it had."""
        state = self._state
        return int(state.problem.offers.gain[j]) + self._shares(state.terms_of_offer[j], -int(state.problem.offers.gpus[j]))

    def cost_of_place(self, j: int, placement: Placement) -> int:
        """spread and fragmentation of one start at the given nodes."""
        return spread_value(self._state.problem, j, placement) + self._fragmentation(j, placement)

    def _fragmentation(self, j: int, placement: Placement) -> int:
        problem, placed = self._state.problem, self._state.placed
        size = int(problem.shapes.need[GPUS, problem.offers.shape[j]])
        domains: dict[int, tuple[WholeDomain, int]] = {}
        broken = 0
        for node, units in placement.items():
            gpus = size * units
            weight, capacity, before = int(problem.whole_weight[node]), int(problem.capacity[GPUS, node]), int(placed[node])
            broken += weight * (min(before + gpus, capacity - before - gpus) - min(before, capacity - before))
            for domain in self._domains_of_node.get(node, ()):
                domains[id(domain)] = (domain, domains.get(id(domain), (domain, 0))[1] + gpus)
        for domain, gpus in domains.values():
            before = int(np.sum(placed[domain.nodes]))
            broken += min(before + gpus, domain.capacity - before - gpus) - min(before, domain.capacity - before)
        return problem.fragmentation_cost * broken
