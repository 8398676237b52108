"""The linear relaxation: the counts model with fractions of starts and stops, without topology.

HiGHS solves it in milliseconds, and in less from where it was once some of its columns have been fixed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from allocator.epoch.problem import EpochProblem
from allocator.epoch.solution import EpochSolution, fragmentation_value
from allocator.models.greedy.linear import MOST_NODES, LinearModel, WholeLimits
from allocator.models.greedy.news import FloatArray, WholeAnswer
from allocator.models.greedy.places import Counts, Places
from allocator.models.greedy.spread import least_spread
from allocator.models.greedy.steps import steps_of
from allocator.topology.layout import BoolArray, IntArray

COST_UNIT = 3.6e6
"""1/1000 GPU-seconds in one unit of the objective: GPU-hours keep coefficients near one."""

TIME_UNIT = 3600.0
"""GPU-seconds in one unit of a funding row."""


INTEGRAL = 1e-6
"""What is nearer than this to a whole number is one."""

Fixed = Mapping[int, int]
"""Values of fixed choices."""

Heard = Callable[[FloatArray | None, float], bool]
"""Takes choices, if they are new, and a bound in 1/1000 GPU-second; whether that is enough."""


def values_of(chosen: FloatArray, stays: BoolArray) -> dict[int, int]:
    """The choices that stay, at the whole numbers that their values are, as `Fixed`."""
    which = np.flatnonzero(stays)
    return dict(zip(which.tolist(), np.round(chosen[which]).astype(np.int64).tolist(), strict=True))


def gpus_of_choices(problem: EpochProblem) -> IntArray:
    """GPUs of each offer, victim and promotion, shape (num_choices,)."""
    return np.concatenate([problem.offers.gpus, problem.victims.gpus, problem.promotions.gpus])


@dataclass(frozen=True, slots=True)
class Relaxed:
    """An optimum of the relaxation: its value, and the parts of offers, victims and promotions that are chosen."""

    value: float
    chosen: FloatArray


class Relaxation:
    """Columns are `num_choices` offers, victims and promotions in this order, then counts and steps of the curves.

    Parameters
    ----------
    merged
        Many classes are merged (`Groups`): weaker, and faster.

    Attributes
    ----------
    num_columns
        Columns of the model, known before it is built.
    """

    def __init__(self, problem: EpochProblem, *, merged: bool = True) -> None:
        self.problem = problem
        self.num_offers, self.num_victims = len(problem.offers.work), len(problem.victims.work)
        self.num_choices = self.num_offers + self.num_victims + len(problem.promotions.work)
        self._counts = Counts(problem, merged=merged)
        self._steps = steps_of(problem)
        self.num_columns = self.num_choices + self._counts.num_columns + len(self._steps.term)
        self._rows = LinearModel()
        self._constant = 0
        self._fixed: dict[int, int] = {}

    def build(self) -> None:
        """State all columns and rows, if that has not been done: a model with too many columns never is."""
        if self._rows.num_columns:
            return
        self._columns()
        self._one_offer_per_workload()
        self._relocation()
        self._places()
        self._funding()
        self._gpu_limit()
        self._express()
        self._max_preemptions()
        self._promotions()
        self._unfairness()
        self._rows.load()

    def solve(self, fixed: Fixed) -> Relaxed | None:
        """The optimum with some choices fixed; None if there is none."""
        self.build()
        self._fix(fixed)
        found = self._rows.solve(self.num_choices)
        return None if found is None else Relaxed(found[0] * COST_UNIT + self._constant, found[1])

    def _fix(self, fixed: Fixed) -> None:
        """Fix these choices and no others."""
        for column in [column for column in self._fixed if column not in fixed]:
            self._rows.bound(column, 0.0, float(self._upper[column]))
        for column, value in fixed.items():
            if self._fixed.get(column) != value:
                self._rows.bound(column, float(value), float(value))
        self._fixed = dict(fixed)

    def reduced_costs(self) -> FloatArray:
        """What a unit more of each choice costs at the last optimum, in 1/1000 GPU-second, shape (num_choices,)."""
        return self._rows.reduced_costs(self.num_choices) * COST_UNIT

    def bound(self) -> int:
        """What no decision is better than, in 1/1000 GPU-second, by the duals of the last solve: the best if it fixed nothing.

        Every decision satisfies what is stated here, and what is not stated (topology, broken-up nodes, most of spread) only
        costs, but that nodes which keep breaks up may be filled after all.
        """
        return math.ceil(self._rows.proven_bound() * COST_UNIT) + self._constant - self._broken

    def solve_whole(
        self,
        seconds: float,
        gap: float,
        seed: int,
        guess: EpochSolution | None = None,
        heard: Heard = lambda choices, bound: False,
        *,
        fixed: Fixed = MappingProxyType({}),
        whole: BoolArray | None = None,
        nodes: int = MOST_NODES,
    ) -> tuple[FloatArray | None, float]:
        """Whole choices instead of fractions: the best that is found, None if nothing is, and a bound on every decision.

        `gap` and the bound are in 1/1000 GPU-second, `guess` is a decision to begin with. It is a bound as that of `bound`, on
        decisions with these choices if some are fixed. With `whole`, shape (num_choices,), other choices may stay fractions.
        `heard` is told the same of all that is found on the way, and may end it.
        """

        def told(answer: WholeAnswer) -> tuple[FloatArray | None, float]:
            return answer.values, answer.bound * COST_UNIT + constant

        self.build()
        self._fix(fixed)
        constant, limits = self._constant - self._broken, WholeLimits(seconds, gap / COST_UNIT, seed, nodes)
        columns = self._rows.whole
        own = np.ones(len(columns), dtype=np.bool_)
        if whole is not None:
            own[: self.num_choices] = whole
        guessed = None if guess is None else np.concatenate([self.choices_of(guess), self._counts.whole_of(guess)])[own]
        return told(
            self._rows.solve_whole(self.num_choices, columns[own], limits, guessed, lambda answer: heard(*told(answer)))
        )

    @property
    def _broken(self) -> int:
        """What the nodes and racks cost that keep breaks up."""
        return fragmentation_value(self.problem, self.problem.whole_placed)

    def choices_of(self, solution: EpochSolution) -> FloatArray:
        """What a decision chooses, shape (num_choices,)."""
        chosen = np.zeros(self.num_choices)
        chosen[sorted(solution.starts)] = 1.0
        chosen[[self.num_offers + r for r in sorted(solution.stops)]] = 1.0
        chosen[[self.num_offers + self.num_victims + u for u in sorted(solution.promotions)]] = 1.0
        return chosen

    def _columns(self) -> None:
        """Offers, victims, promotions. Nothing starts under a vertex that is to keep more than its limit."""
        problem = self.problem
        self._upper = np.ones(self.num_choices)
        for row in problem.limits:
            if row.kept > row.limit:
                self._upper[row.offers] = 0.0
        starts = least_spread(problem) - problem.offers.gain
        costs = np.concatenate([starts, problem.victims.cost, np.zeros(len(problem.promotions.work))])
        self._start, self._stop, self._promote = np.split(
            self._rows.columns(costs / COST_UNIT, self._upper, whole=True),
            [self.num_offers, self.num_offers + self.num_victims],
        )

    def _one_offer_per_workload(self) -> None:
        _, which, count = np.unique(self.problem.offers.work, return_inverse=True, return_counts=True)
        several = count > 1
        row = np.full(len(count), -1)
        row[several] = self._rows.rows(-np.inf, np.ones(int(several.sum())))
        own = np.flatnonzero(several[which])
        self._rows.put(row[which[own]], self._start[own], 1.0)

    def _relocation(self) -> None:
        """Running work starts elsewhere only if it is stopped."""
        moves = np.flatnonzero(self.problem.offers.victim >= 0)
        if not len(moves):
            return
        victims, which = np.unique(self.problem.offers.victim[moves], return_inverse=True)
        row = self._rows.rows(-np.inf, np.zeros(len(victims)))
        self._rows.put(row[which], self._start[moves], 1.0)
        self._rows.put(row, self._stop[victims], -1.0)

    def _places(self) -> None:
        """Who starts has a place, beside who stays."""
        Places(self.problem, self._counts, self._rows, self._start, self._stop).add_all()

    def _funding(self) -> None:
        rows, offers, promotions = self.problem.funding, self.problem.offers, self.problem.promotions
        row = self._rows.rows(-np.inf, np.array([funding.available for funding in rows], dtype=np.float64) / TIME_UNIT)
        self._put_members(row, [own.offers for own in rows], self._start, offers.promise_cost / TIME_UNIT)
        self._put_members(row, [own.promotions for own in rows], self._promote, promotions.promise_cost / TIME_UNIT)

    def _gpu_limit(self) -> None:
        rows, offers, victims = self.problem.limits, self.problem.offers, self.problem.victims
        left = [limit.limit - limit.kept - int(victims.gpus[limit.victims].sum()) for limit in rows]
        row = self._rows.rows(-np.inf, np.maximum(np.array(left, dtype=np.float64), 0.0))
        self._put_members(row, [own.offers for own in rows], self._start, offers.gpus)
        self._put_members(row, [own.victims for own in rows], self._stop, -victims.gpus)

    def _put_members(self, row: IntArray, members: Sequence[IntArray], columns: IntArray, value: npt.NDArray[Any]) -> None:
        """In each row its members, with the value of each."""
        if members:
            own = np.concatenate(members)
            self._rows.put(np.repeat(row, [len(rows) for rows in members]), columns[own], value[own])

    def _express(self) -> None:
        offers = self.problem.offers
        row = self._rows.rows(-np.inf, np.maximum(self.problem.express_room, 0).astype(np.float64))
        own = np.flatnonzero(offers.express)
        self._rows.put(row[offers.pool[own]], self._start[own], offers.gpus[own])

    def _max_preemptions(self) -> None:
        if self.problem.max_stops is not None:
            row = self._rows.rows(-np.inf, np.array([float(self.problem.max_stops)]))
            own = self._stop[self.problem.victims.charged]
            self._rows.put(np.repeat(row, len(own)), own, 1.0)

    def _promotions(self) -> None:
        """Nobody is promoted and stopped; whoever stays is promoted where funds cannot run out."""
        promotions = self.problem.promotions
        if not len(promotions.work):
            return
        scarce = np.zeros(len(promotions.work), dtype=np.bool_)
        for funding in self.problem.funding:
            scarce[funding.promotions] = True
        own = np.flatnonzero(promotions.victim >= 0)
        row = self._rows.rows(np.where(scarce[own], -np.inf, 1.0), np.ones(len(own)))
        self._rows.put(row, self._promote[own], 1.0)
        self._rows.put(row, self._stop[promotions.victim[own]], 1.0)

    def _unfairness(self) -> None:
        offers, victims, promotions = self.problem.offers, self.problem.victims, self.problem.promotions
        shares = self.problem.shares
        low = np.array([term.base - int(victims.gpus[term.victims].sum()) for term in shares], dtype=np.int64)
        base = np.array([term.base for term in shares], dtype=np.int64)
        steps = self._steps
        for term, least in zip(shares, low.tolist(), strict=True):
            self._constant += term.curve.value(least) - term.curve.value(term.base)
        held = (low - base).astype(np.float64)
        row = self._rows.rows(held, held)
        self._put_members(row, [term.offers for term in shares], self._start, offers.gpus)
        self._put_members(row, [term.promotions for term in shares], self._promote, promotions.gpus)
        self._put_members(row, [term.victims for term in shares], self._stop, -victims.gpus)
        step = self._rows.columns(steps.rise / steps.gpus / COST_UNIT, steps.gpus * steps.number)
        self._rows.put(row[steps.term], step, -1.0)
