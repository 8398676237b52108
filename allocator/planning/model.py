"""The model: which units are ordered in which quarter, what is kept, and the course, for least discounted cost.

Scenarios need no variables of their own but one: what a pool needs in a scenario, so that every project gets its share of what
it is owed, is a number of GPUs (`needs_of`). Rows have the names of the page on capacity planning.
"""

from __future__ import annotations

from math import isfinite

import numpy as np
import pulp
from pulp import LpAffineExpression as Linear

from allocator.planning.costs import keep_cost, order_cost
from allocator.planning.plan import Plan
from allocator.planning.question import Hardware, Ints, Question


class Variables:
    """Variables by name.

    order[k, t]      units of kind k ordered in quarter t
    keep[e, t]       existing units e in service in quarter t
    course[a]        1 for the course that is taken
    met[s]           1 only if scenario s is met; none where all have to be
    short[t, p]      GPUs missing; only where something may be missing
    """

    def __init__(self, rows: pulp.LpProblem, question: Question, needs: Ints, *, elastic: bool) -> None:
        self._rows, self._made = rows, 0
        quarters = range(len(question.quarters))
        peaks = needs.max(axis=(0, 1), initial=0)
        self.order = {
            (k, t): self._new(_most_orders(question, peaks, k, t))
            for k, unit in enumerate(question.units)
            for t in quarters
            if t + unit.lead < len(quarters) and isfinite(unit.prices[t])
        }
        self.keep = {
            (e, t): self._new(row.count, least=0 if row.early else row.count)
            for e, row in enumerate(question.existing)
            for t in range(row.quarters)
        }
        self.course = [self._new(1) for _ in question.courses]
        self.met = [self._new(1) for _ in question.scenarios] if question.num_met < len(question.scenarios) else []
        pools = range(len(question.pools))
        self.short = {(t, p): self._new(int(peaks[t, p]), kind=pulp.LpContinuous) for t in quarters for p in pools if elastic}

    def _new(self, most: int, least: int = 0, kind: str = pulp.LpInteger) -> pulp.LpVariable:
        # PuLP hands variables to the solver in order of their names: a fixed width keeps the order in which they are made.
        self._made += 1
        return self._rows.add_variable(f"x{self._made:08d}", least, most, kind)


def _most_orders(question: Question, peaks: Ints, k: int, t: int) -> int:
    """More than the most that is needed while they serve, nobody orders."""
    unit = question.units[k]
    peak = int(peaks[t + unit.lead : t + unit.lead + unit.life, unit.pool].max(initial=0))
    most = -(-peak // unit.gpus)
    return most if unit.most is None else min(most, unit.most)


class Constraints:
    """The rows of the model."""

    def __init__(self, rows: pulp.LpProblem, question: Question, needs: Ints, variables: Variables) -> None:
        self._rows, self._question, self._needs, self._variables = rows, question, needs, variables
        dropped = len(question.scenarios) - question.num_met
        # At most so many scenarios are not met: what only that many exceed, any plan has to reach.
        ordered = -np.sort(-needs, axis=1)
        self._base = ordered[:, dropped] if question.num_met else np.zeros_like(needs[:, 0])

    def add_all(self) -> None:
        """Every rule once."""
        self._one_course()
        self._leaving()
        self._limit()
        self._need()
        self._scenario()
        self._fraction()

    def _one_course(self) -> None:
        """Ensures that demand takes one course."""
        self._add(Linear(dict.fromkeys(self._variables.course, 1)) == 1)

    def _leaving(self) -> None:
        """Ensures that what has left does not come back."""
        keep = self._variables.keep
        for (e, t), variable in keep.items():
            if t and self._question.existing[e].early:
                self._add(Linear({variable: 1, keep[e, t - 1]: -1}) <= 0)

    def _limit(self) -> None:
        """Ensures that what is in service takes no more of a resource than there is."""
        for name, limits in self._question.limits.items():
            for t, limit in enumerate(limits):
                used = Linear({variable: row.uses[name] for row, variable in self._serving(t) if row.uses.get(name)})
                if isfinite(limit) and used:
                    self._add(used <= limit)

    def _need(self) -> None:
        """Ensures that every pool has what any plan has to reach."""
        for t, p in self._places():
            if self._base[:, t, p].any():
                self._add(self._gpus(t, p) - self._by_course(self._base[:, t, p]) >= 0)

    def _scenario(self) -> None:
        """Ensures that a scenario that counts as met has all it needs."""
        for s, met in enumerate(self._variables.met):
            for t, p in self._places():
                more = np.maximum(self._needs[:, s, t, p] - self._base[:, t, p], 0)
                if more.any():
                    most = int(more.max())
                    row = self._gpus(t, p) - self._by_course(self._base[:, t, p] + more) - most * met
                    self._add(row >= -most)

    def _fraction(self) -> None:
        """Ensures that enough scenarios are met."""
        if self._variables.met:
            self._add(Linear(dict.fromkeys(self._variables.met, 1)) >= self._question.num_met)

    def _add(self, row: pulp.LpConstraint) -> None:
        self._rows += row

    def _places(self) -> list[tuple[int, int]]:
        return [(t, p) for t in range(len(self._question.quarters)) for p in range(len(self._question.pools))]

    def _serving(self, t: int) -> list[tuple[Hardware, pulp.LpVariable]]:
        """Every kind of unit that may be in service in a quarter, with its variable."""
        variables, question = self._variables, self._question
        bought = [(question.units[k], v) for (k, order), v in variables.order.items() if question.units[k].serves(order, t)]
        there = [(question.existing[e], v) for (e, quarter), v in variables.keep.items() if quarter == t]
        return [*bought, *there]

    def _gpus(self, t: int, p: int) -> Linear:
        """GPUs of a pool in a quarter, those that are missing included."""
        found = Linear({variable: row.gpus for row, variable in self._serving(t) if row.pool == p})
        return found + self._variables.short[t, p] if self._variables.short else found

    def _by_course(self, values: Ints) -> Linear:
        """The value of the course that is taken."""
        return Linear({variable: int(value) for variable, value in zip(self._variables.course, values, strict=True)})


class Model:
    """Variables, rows and objective; `unit` is the money that one unit of the objective stands for.

    With `elastic` GPUs may be missing, and the objective is how many: the money does not count.
    """

    def __init__(self, question: Question, needs: Ints, *, elastic: bool = False) -> None:
        self.question, self.elastic = question, elastic
        self.rows = pulp.LpProblem("plan", pulp.LpMinimize)
        self.variables = Variables(self.rows, question, needs, elastic=elastic)
        Constraints(self.rows, question, needs, self.variables).add_all()
        costs = {} if elastic else self._costs()
        self.unit = 10 ** max(0, len(str(max(map(abs, costs.values()), default=0))) - 4)
        missing = dict.fromkeys(self.variables.short.values(), 1)
        self.rows += Linear(missing | {variable: cost / self.unit for variable, cost in costs.items()})

    def _costs(self) -> dict[pulp.LpVariable, int]:
        question, variables = self.question, self.variables
        ordered = {v: order_cost(question, question.units[k], t) for (k, t), v in variables.order.items()}
        return ordered | {v: keep_cost(question, question.existing[e], t) for (e, t), v in variables.keep.items()}

    def read(self) -> Plan:
        """The plan that the solver has found."""
        question, variables = self.question, self.variables
        quarters = len(question.quarters)
        orders = np.zeros((len(question.units), quarters), dtype=np.int64)
        kept = np.zeros((len(question.existing), quarters), dtype=np.int64)
        for (k, t), variable in variables.order.items():
            orders[k, t] = _value(variable)
        for (e, t), variable in variables.keep.items():
            kept[e, t] = _value(variable)
        return Plan(orders=orders, kept=kept, course=int(np.argmax([_value(variable) for variable in variables.course])))


def _value(variable: pulp.LpVariable) -> int:
    # A variable that neither a row nor the objective knows never reaches the solver: it is at its lower bound.
    value: float = variable.lowBound if variable.varValue is None else variable.varValue
    return round(value)
