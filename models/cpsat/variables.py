"""The variables of the reference model, and the values that a guess gives them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np
from ortools.sat.python import cp_model

from allocator.epoch.problem import EpochProblem
from allocator.epoch.solution import EpochSolution
from allocator.models.queries import cell_room, most_units
from allocator.topology.layout import GPUS

Linear = cp_model.LinearExpr


def total(variables: Sequence[cp_model.IntVar], factors: Iterable[int] | None = None) -> Linear:
    """Sum of the variables, each times its factor."""
    if factors is None:
        return cp_model.LinearExpr.sum(list(variables))
    return cp_model.LinearExpr.weighted_sum(list(variables), [int(factor) for factor in factors])


def constant(value: int) -> Linear:
    """A number in the place of an expression."""
    return cast(Linear, value)


class Variables:
    """Containers of variables with the queries that constraints are written in.

    start[j], stop[r], promote[u]   Booleans of offers, victims and promotions
    units[j][c]                     units of gang j in cell c
    count[s, k]                     units of shape s on the nodes of class k
    touch[j, l][d]                  gang j touches domain d of level l
    """

    def __init__(self, model: cp_model.CpModel, problem: EpochProblem, guess: EpochSolution | None) -> None:
        self.model, self.problem = model, problem
        self.guess = _Guess(problem, guess) if guess is not None else None
        self.start = [self.boolean(None) for _ in problem.offers.work]
        self.stop = [self.boolean(None) for _ in problem.victims.work]
        self.promote = [self.boolean(None) for _ in problem.promotions.work]
        self.count = self._count_variables()
        self.units = [self._unit_variables(j) for j in range(len(problem.offers.work))]
        self.touch: dict[tuple[int, int], dict[int, cp_model.IntVar]] = {}
        if self.guess:
            for variables, values in (
                (self.start, self.guess.start), (self.stop, self.guess.stop), (self.promote, self.guess.promote),
            ):  # fmt: skip
                for variable, value in zip(variables, values, strict=True):
                    model.add_hint(variable, int(value))

    def boolean(self, value: int | bool | None) -> cp_model.IntVar:
        """A new Boolean, with its value in the guess."""
        return self.integer(0, 1, value)

    def integer(self, low: int, high: int, value: int | bool | None) -> cp_model.IntVar:
        """A new integer, with its value in the guess."""
        variable = self.model.new_int_var(low, high, "")
        if value is not None:
            self.model.add_hint(variable, int(value))
        return variable

    def shapes_on(self, k: int) -> list[int]:
        """Shapes that may lie on a class."""
        return self._shapes_on[k]

    def units_on(self, k: int, shapes: Iterable[int]) -> tuple[list[cp_model.IntVar], list[int]]:
        """Counts of the given shapes on a class, and which shapes those are."""
        found = [(self.count[s, k], s) for s in shapes if (s, k) in self.count]
        return [variable for variable, _ in found], [s for _, s in found]

    def stops_of(self, victims: Iterable[int]) -> list[cp_model.IntVar]:
        """The stop variables of the given victims."""
        return [self.stop[r] for r in victims]

    def _count_variables(self) -> dict[tuple[int, int], cp_model.IntVar]:
        problem = self.problem
        wanted = np.zeros(len(problem.shapes.pool), dtype=np.int64)
        np.add.at(wanted, problem.offers.shape, problem.offers.units)
        room = most_units(problem)
        self._shapes_on: list[list[int]] = []
        found = {}
        for k in range(len(problem.classes.size)):
            own = [int(s) for s in np.flatnonzero(room[:, k])]
            self._shapes_on.append(own)
            for s in own:
                value = self.guess.count.get((s, k), 0) if self.guess else None
                found[s, k] = self.integer(0, int(min(room[s, k], wanted[s])), value)
        return found

    def _unit_variables(self, j: int) -> dict[int, cp_model.IntVar]:
        offers = self.problem.offers
        if offers.units[j] == 1:
            return {}
        s = int(offers.shape[j])
        if not hasattr(self, "_cell_room"):
            self._cell_room = cell_room(self.problem, most_units(self.problem))
        found = {}
        for cell in np.flatnonzero(self._cell_room[s]):
            value = self.guess.units.get((j, int(cell)), 0) if self.guess else None
            found[int(cell)] = self.integer(0, int(min(offers.units[j], self._cell_room[s, cell])), value)
        return found


class _Guess:
    """A solution in the words of the model."""

    def __init__(self, problem: EpochProblem, solution: EpochSolution) -> None:
        self.start = np.zeros(len(problem.offers.work), dtype=np.int64)
        self.stop = np.zeros(len(problem.victims.work), dtype=np.int64)
        self.promote = np.zeros(len(problem.promotions.work), dtype=np.int64)
        self.start[list(solution.starts)] = 1
        self.stop[sorted(solution.stops)] = 1
        self.promote[sorted(solution.promotions)] = 1
        self.count: dict[tuple[int, int], int] = {}
        self.units: dict[tuple[int, int], int] = {}
        for j, placement in solution.starts.items():
            for node, units in placement.items():
                k = int(problem.node_class[node])
                key = (int(problem.offers.shape[j]), k)
                self.count[key] = self.count.get(key, 0) + units
                if problem.offers.units[j] > 1:
                    at = (j, int(problem.classes.cell[k]))
                    self.units[at] = self.units.get(at, 0) + units

    def gpus_on(self, problem: EpochProblem, k: int) -> int:
        """GPUs placed on a class."""
        return sum(int(problem.shapes.need[GPUS, s]) * units for (s, own), units in self.count.items() if own == k)
