"""The objective, term by term, in 1/1000 GPU-second and relative to keep."""

from __future__ import annotations

import numpy as np
from ortools.sat.python import cp_model

from allocator.epoch.problem import EpochProblem, ShareTerm, WholeDomain
from allocator.epoch.solution import steps_between
from allocator.models.cpsat.variables import Linear, Variables, constant, total
from allocator.topology.layout import GPUS

LARGEST = 1 << 52
"""Costs beyond this would lose exactness in the solver's floating-point relaxation."""


class Objective:
    """Collects weighted variables and minimises their sum. Terms without a variable to move are never made."""

    def __init__(self, model: cp_model.CpModel, problem: EpochProblem, variables: Variables) -> None:
        self._model, self._problem, self._variables = model, problem, variables
        self._terms: list[cp_model.IntVar] = []
        self._costs: list[int] = []
        self._constant = 0

    def minimise(self) -> None:
        """Adds every term."""
        self._starts()
        self._stops()
        self._spread()
        self._fragmentation()
        self._unfairness()
        self._check_magnitude()
        self._model.minimize(total(self._terms, self._costs) + self._constant)

    def _add(self, variable: cp_model.IntVar, cost: int) -> None:
        if cost:
            self._terms.append(variable)
            self._costs.append(int(cost))

    def _check_magnitude(self) -> None:
        """Raises OverflowError if the objective could leave the exact range."""
        reach = sum(
            abs(cost) * max(map(abs, _domain(variable))) for variable, cost in zip(self._terms, self._costs, strict=True)
        )
        if reach + abs(self._constant) > LARGEST:
            raise OverflowError(f"the objective reaches {reach}, beyond {LARGEST}: lower the weights of the policy")

    def _starts(self) -> None:
        """express, idle and order: what starting saves."""
        for variable, gain in zip(self._variables.start, self._problem.offers.gain, strict=True):
            self._add(variable, -int(gain))

    def _stops(self) -> None:
        """lost_work, idle and order: what stopping costs."""
        for variable, cost in zip(self._variables.stop, self._problem.victims.cost, strict=True):
            self._add(variable, int(cost))

    def _spread(self) -> None:
        """spread: domains touched beyond the fewest possible."""
        offers = self._problem.offers
        for j in np.flatnonzero(offers.spread.any(axis=1) & (offers.units > 1)):
            for level in np.flatnonzero(offers.spread[j]):
                self._touched(int(j), int(level))

    def _touched(self, j: int, level: int) -> None:
        problem, variables = self._problem, self._variables
        cost, fewest, units = (
            int(problem.offers.spread[j, level]),
            int(problem.offers.fewest[j, level]),
            int(problem.offers.units[j]),
        )
        cells: dict[int, list[cp_model.IntVar]] = {}
        guess: dict[int, bool] = {}
        for cell, variable in variables.units[j].items():
            domain = int(problem.cell_domain[level, cell])
            cells.setdefault(domain, []).append(variable)
            if variables.guess:
                guess[domain] = guess.get(domain, False) or variables.guess.units.get((j, cell), 0) > 0
        if len(cells) <= fewest:
            return
        touch = []
        for domain, here in cells.items():
            touched = variables.boolean(guess.get(domain))
            most = min(units, sum(_domain(variable)[1] for variable in here))
            self._model.add(total(here) <= most * touched)
            touch.append(touched)
            self._add(touched, cost)
        self._model.add(total(touch) >= fewest * variables.start[j])
        self._add(variables.start[j], -cost * fewest)

    def _fragmentation(self) -> None:
        """fragmentation: nodes and domains that were wholly free and are broken up."""
        problem = self._problem
        if not problem.fragmentation_cost:
            return
        for k in np.flatnonzero(problem.classes.whole):
            self._broken_nodes(int(k))
        for domain in problem.whole_domains:
            self._broken_domain(domain)

    def _placed(self, k: int) -> Linear:
        units, shapes = self._variables.units_on(k, self._variables.shapes_on(k))
        return total(units, [int(self._problem.shapes.need[GPUS, s]) for s in shapes])

    def _broken_nodes(self, k: int) -> None:
        """All nodes of a class but one are full or empty: sizes divide the node, so the remainder tells what is broken."""
        problem, variables = self._problem, self._variables
        node = int(problem.classes.nodes[k][0])
        capacity, placed = int(problem.capacity[GPUS, node]), int(problem.whole_placed[node])
        size, cost = int(problem.classes.size[k]), problem.fragmentation_cost * int(problem.classes.whole[k])
        full = variables.integer(0, size, None)
        part = [variables.boolean(None) for _ in range(1, capacity)]
        self._model.add(self._placed(k) + placed == capacity * full + total(part, range(1, capacity)))
        self._model.add(full + total(part) <= size)
        for used, variable in enumerate(part, start=1):
            self._add(variable, cost * min(used, capacity - used))
        self._constant -= cost * min(placed, capacity - placed)

    def _broken_domain(self, domain: WholeDomain) -> None:
        problem, variables = self._problem, self._variables
        classes = sorted({int(k) for k in problem.node_class[domain.nodes] if k >= 0})
        if not classes:
            return
        placed = constant(domain.placed)
        for k in classes:
            placed = placed + self._placed(k)
        mostly_full = variables.boolean(None)
        broken = variables.integer(0, domain.capacity // 2, None)
        self._model.add(broken >= placed).only_enforce_if(mostly_full.negated())
        self._model.add(broken >= domain.capacity - placed).only_enforce_if(mostly_full)
        self._add(broken, problem.fragmentation_cost)
        self._constant -= problem.fragmentation_cost * min(domain.placed, domain.capacity - domain.placed)

    def _unfairness(self) -> None:
        """unfairness: the convex curve of each vertex, as steps that fill in order because their slopes rise."""
        for term in self._problem.shares:
            self._deviation(term)

    def _deviation(self, term: ShareTerm) -> None:
        problem, variables = self._problem, self._variables
        members = [*(variables.start[j] for j in term.offers), *(variables.promote[u] for u in term.promotions)]
        gpus = [*problem.offers.gpus[term.offers].tolist(), *problem.promotions.gpus[term.promotions].tolist()]
        leaving = problem.victims.gpus[term.victims].tolist()
        low, high = term.base - sum(leaving), term.base + sum(gpus)
        steps = []
        for start, stop, slope in steps_between(term.curve, low, high):
            step = variables.integer(0, stop - start, None)
            steps.append(step)
            self._add(step, slope)
        held = total(members, gpus) - total(variables.stops_of(term.victims), leaving) + (term.base - low)
        self._model.add(held == total(steps))
        self._constant += term.curve.value(low) - term.curve.value(term.base)


def _domain(variable: cp_model.IntVar) -> tuple[int, int]:
    bounds = variable.domain.flattened_intervals()
    return int(bounds[0]), int(bounds[-1])
