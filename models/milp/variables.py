"""The variables of the MILP, and the sums that its rows are written in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pulp
from pulp import LpAffineExpression as Linear

from allocator.epoch.problem import EpochProblem
from allocator.epoch.solution import EpochSolution
from allocator.models.queries import cell_room, counts_of, most_units
from allocator.topology.layout import IntArray


def total(variables: Sequence[pulp.LpVariable], factors: Iterable[int] | int = 1) -> Linear:
    """Sum of factor times variable."""
    each = [factors] * len(variables) if isinstance(factors, int) else [int(factor) for factor in factors]
    found: dict[pulp.LpVariable, int] = {}
    for variable, factor in zip(variables, each, strict=True):
        found[variable] = found.get(variable, 0) + factor
    return Linear(found)


def range_of(expression: Mapping[pulp.LpVariable, float], constant: float = 0) -> tuple[float, float]:
    """The least and the largest value that the bounds of the variables allow an expression to have."""
    low = high = constant
    for variable, factor in expression.items():
        ends = (factor * variable.lowBound, factor * variable.upBound)
        low, high = low + min(ends), high + max(ends)
    return low, high


class Variables:
    """Containers of variables with the queries that constraints are written in.

    start[j], stop[r], promote[u]   0 or 1 for offers, victims and promotions
    units[j][c]                     units of gang j in cell c
    count[s, k]                     units of shape s on the nodes of class k
    """

    def __init__(self, model: pulp.LpProblem, problem: EpochProblem) -> None:
        self.model, self.problem = model, problem
        self._made = 0
        self._room = most_units(problem)
        self._cell_room = cell_room(problem, self._room)
        self.start = [self.boolean() for _ in problem.offers.work]
        self.stop = [self.boolean() for _ in problem.victims.work]
        self.promote = [self.boolean() for _ in problem.promotions.work]
        self._shapes_on = [[int(s) for s in np.flatnonzero(room)] for room in self._room.T]
        self.count = self._count_variables()
        self.units = [self._unit_variables(j) for j in range(len(problem.offers.work))]

    def boolean(self) -> pulp.LpVariable:
        """A new variable that is 0 or 1."""
        return self.integer(1)

    def integer(self, high: int) -> pulp.LpVariable:
        """A new integer from 0 to `high`."""
        return self._new(high, pulp.LpInteger)

    def continuous(self, high: int) -> pulp.LpVariable:
        """A new number from 0 to `high`, for what is an integer by itself once the integers are."""
        return self._new(high, pulp.LpContinuous)

    def _new(self, high: int, kind: str) -> pulp.LpVariable:
        # PuLP hands variables to the solver in order of their names: a fixed width keeps the order in which they are made.
        self._made += 1
        return self.model.add_variable(f"x{self._made:08d}", 0, int(high), kind)

    def most(self, shape: int) -> IntArray:
        """Units of a shape that each class could hold if every victim on it were stopped, shape (num_classes,)."""
        return np.asarray(self._room[shape])

    def shapes_on(self, k: int) -> list[int]:
        """Shapes that may lie on a class."""
        return self._shapes_on[k]

    def units_on(self, k: int, shapes: Iterable[int]) -> tuple[list[pulp.LpVariable], list[int]]:
        """Counts of the given shapes on a class, and which shapes those are."""
        found = [(self.count[s, k], s) for s in shapes if (s, k) in self.count]
        return [variable for variable, _ in found], [s for _, s in found]

    def stops_of(self, victims: Iterable[int]) -> list[pulp.LpVariable]:
        """The stop variables of the given victims."""
        return [self.stop[r] for r in victims]

    def values_of(self, solution: EpochSolution) -> dict[pulp.LpVariable, int] | None:
        """The values that a solution gives these variables; None if it places something where there is no variable for it."""
        counts, units = counts_of(self.problem, solution)
        places = {(j, cell): variable for j, cells in enumerate(self.units) for cell, variable in cells.items()}
        if not (counts.keys() <= self.count.keys() and units.keys() <= places.keys()):
            return None
        values = {variable: int(j in solution.starts) for j, variable in enumerate(self.start)}
        values |= {variable: int(r in solution.stops) for r, variable in enumerate(self.stop)}
        values |= {variable: int(u in solution.promotions) for u, variable in enumerate(self.promote)}
        values |= {variable: counts[key] for key, variable in self.count.items()}
        return values | {variable: units[key] for key, variable in places.items()}

    def _count_variables(self) -> dict[tuple[int, int], pulp.LpVariable]:
        problem = self.problem
        wanted = np.zeros(len(problem.shapes.pool), dtype=np.int64)
        np.add.at(wanted, problem.offers.shape, problem.offers.units)
        return {
            (s, k): self.integer(min(int(self._room[s, k]), int(wanted[s])))
            for k, shapes in enumerate(self._shapes_on)
            for s in shapes
        }

    def _unit_variables(self, j: int) -> dict[int, pulp.LpVariable]:
        offers = self.problem.offers
        if offers.units[j] == 1:
            return {}
        room = self._cell_room[offers.shape[j]]
        return {int(cell): self.integer(min(int(offers.units[j]), int(room[cell]))) for cell in np.flatnonzero(room)}
