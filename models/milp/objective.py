"""The objective, term by term, in 1/1000 GPU-second and relative to keep."""

from __future__ import annotations

import numpy as np
import pulp
from pulp import LpAffineExpression as Linear

from allocator.epoch.problem import EpochProblem, ShareTerm, WholeDomain
from allocator.epoch.solution import steps_between
from allocator.models.milp.variables import Variables, range_of, total
from allocator.topology.layout import GPUS

LARGEST = 1 << 52
"""Costs beyond this would lose exactness in floating point."""

LARGEST_COEFFICIENT = 1 << 18
"""Coefficients are scaled below this: what solvers take for zero is then far below the cost of anything."""


class Objective:
    """Collects weighted variables and minimises their sum. Terms without a variable to move are never made.

    Attributes
    ----------
    unit
        The 1/1000 GPU-seconds that the scaled objective counts in: a power of two, so that scaling is exact.
    constant
        What the value relative to keep has beyond the weighted variables, in 1/1000 GPU-second. Solvers never see it.
    """

    def __init__(self, model: pulp.LpProblem, problem: EpochProblem, variables: Variables) -> None:
        self._model, self._problem, self._variables = model, problem, variables
        self._costs: dict[pulp.LpVariable, int] = {}
        self._touches: dict[tuple[int, int, int], pulp.LpVariable] = {}
        self.constant = 0
        self.unit = 1

    def minimise(self) -> None:
        """Adds every term."""
        self._starts()
        self._stops()
        self._spread()
        self._fragmentation()
        self._unfairness()
        self._check_magnitude()
        self.unit = _unit(max(map(abs, self._costs.values()), default=0))
        self._model.setObjective(Linear({variable: cost / self.unit for variable, cost in self._costs.items() if cost}))

    def _add(self, variable: pulp.LpVariable, cost: int) -> None:
        if cost:
            self._costs[variable] = self._costs.get(variable, 0) + int(cost)

    def _row(self, row: pulp.LpConstraint) -> None:
        self._model.addConstraint(row)

    def _check_magnitude(self) -> None:
        """Raises OverflowError if the objective could leave the exact range."""
        reach = sum(abs(cost) * int(variable.upBound) for variable, cost in self._costs.items())
        if reach + abs(self.constant) > LARGEST:
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
        problem, variables, offers = self._problem, self._variables, self._problem.offers
        cost, fewest, units = int(offers.spread[j, level]), int(offers.fewest[j, level]), int(offers.units[j])
        cells: dict[int, list[int]] = {}
        for cell in variables.units[j]:
            cells.setdefault(int(problem.cell_domain[level, cell]), []).append(cell)
        if len(cells) <= fewest:
            return
        touch = []
        for domain, here in cells.items():
            touched = self._touches[j, level, domain] = variables.boolean()
            inside = [variables.units[j][cell] for cell in here]
            most = min(units, sum(int(variable.upBound) for variable in inside))
            self._row(total(inside) <= most * touched)
            self._touches_above(j, level, here[0], touched)
            touch.append(touched)
            self._add(touched, cost)
        self._row(total(touch) >= fewest * variables.start[j])
        self._add(variables.start[j], -cost * fewest)

    def _touches_above(self, j: int, level: int, cell: int, touched: pulp.LpVariable) -> None:
        """Who touches a domain touches those around it. True by itself of integers; it tightens the relaxation."""
        for above in range(level):
            around = self._touches.get((j, above, int(self._problem.cell_domain[above, cell])))
            if around is not None:
                self._row(total([touched]) <= total([around]))

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
        full = variables.integer(size)
        part = [variables.boolean() for _ in range(1, capacity)]
        self._row(self._placed(k) + placed == capacity * full + total(part, range(1, capacity)))
        self._row(total([full, *part]) <= size)
        for used, variable in enumerate(part, start=1):
            self._add(variable, cost * min(used, capacity - used))
        self.constant -= cost * min(placed, capacity - placed)

    def _broken_domain(self, domain: WholeDomain) -> None:
        problem, variables = self._problem, self._variables
        classes = sorted({int(k) for k in problem.node_class[domain.nodes] if k >= 0})
        if not classes:
            return
        placed = Linear()
        for k in classes:
            placed = placed + self._placed(k)
        mostly_full, broken = variables.boolean(), variables.continuous(domain.capacity // 2)
        # What is broken is the lesser of what is placed and what is left. Either may exceed the other by so much at most:
        most = domain.placed + min(int(range_of(placed)[1]), domain.capacity - domain.placed)
        over, under = max(0, 2 * most - domain.capacity), max(0, domain.capacity - 2 * domain.placed)
        self._row(broken - placed + over * mostly_full >= domain.placed)
        self._row(broken + placed - under * mostly_full >= domain.capacity - domain.placed - under)
        self._add(broken, problem.fragmentation_cost)
        self.constant -= problem.fragmentation_cost * min(domain.placed, domain.capacity - domain.placed)

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
            step = variables.continuous(stop - start)
            steps.append(step)
            self._add(step, slope)
        held = total(members, gpus) - total(variables.stops_of(term.victims), leaving) + (term.base - low)
        self._row(held == total(steps))
        self.constant += term.curve.value(low) - term.curve.value(term.base)


def _unit(largest: int) -> int:
    """The least power of two that brings a cost of this size below the largest coefficient."""
    return 1 << max(0, (largest // LARGEST_COEFFICIENT).bit_length())
