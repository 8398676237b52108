"""A bound, and a better answer: the relaxation with whole choices instead of fractions, and its choices carried out.

It takes seconds where greedy takes milliseconds, and far less than the whole model where the cluster is large: measured at
4,096 GPUs, one to two seconds to within 0.3 % of the cluster's time.
"""

from __future__ import annotations

import math
import time

from allocator.epoch.afterthoughts import only_gpus_bind
from allocator.epoch.problem import EpochProblem
from allocator.epoch.solution import EpochSolution, value_of
from allocator.models.greedy.news import FloatArray
from allocator.models.greedy.relaxation import Relaxation
from allocator.models.greedy.rounding import Rounding
from allocator.models.greedy.solver import NAME
from allocator.models.protocol import EngineResult, Limits, Report, Status, unheard

FINE = 1e-5
"""Share of the cluster's time to which the relaxation is solved where no gap is asked for: the rest is for exact engines."""

MANY_CHOICES = 750
"""Offers, victims and promotions from which on this pays: measured, below it CP-SAT alone proves the optimum sooner."""

SOLVING_SHARE = 0.8
"""What HiGHS gets of the time once its model is built: it ends a little late, and its choices have to be carried out."""

ROUNDING_SHARE = 0.2
"""Part of the time until then that carrying out what HiGHS finds on the way may have taken."""

MOSTLY = 0.9
"""Part of the offers for which this relaxation is tight from which on it pays: GPUs alone bind, and no segments."""


def pays(problem: EpochProblem) -> bool:
    """Whether the problem is large enough for this step, and such that what it leaves out costs little."""
    offers = problem.offers
    if len(offers.work) + len(problem.victims.work) + len(problem.promotions.work) < MANY_CHOICES or not len(offers.work):
        return False
    tight = only_gpus_bind(problem)[offers.shape] & (offers.segment_level < 0)
    return float(tight.mean()) >= MOSTLY


def solve(problem: EpochProblem, limits: Limits, guess: EpochSolution | None = None, report: Report = unheard) -> EngineResult:
    """Choose who starts and who stops by the relaxation, place that, and say what no decision can be better than."""
    begun = time.monotonic()
    fine = FINE * 1000 * problem.step_gpus
    relaxation = Relaxation(problem, merged=False)
    relaxation.build()
    known = _Known(problem, guess, report)
    seconds = (limits.seconds - (time.monotonic() - begun)) * SOLVING_SHARE
    choices, bound = relaxation.solve_whole(seconds, max(fine, limits.gap), limits.seed, guess, known.hear)
    least = _whole(bound)
    if choices is None:
        return EngineResult(NAME, Status.UNKNOWN, None, None, least)
    best, value = known.carried_out(choices)
    proven = least is not None and value - least <= max(limits.gap, 0)
    return EngineResult(NAME, Status.OPTIMAL if proven else Status.FEASIBLE, best, value, least)


class _Known:
    """What HiGHS finds on the way, reported at once: the search may be killed at any time."""

    def __init__(self, problem: EpochProblem, guess: EpochSolution | None, report: Report) -> None:
        self._problem, self._report = problem, report
        self._rounding: Rounding | None = None
        self._begun, self._spent = time.monotonic(), 0.0
        self._value = math.inf if guess is None else value_of(problem, guess)

    def hear(self, choices: FloatArray | None, bound: float) -> None:
        """Report a bound, and the choices carried out, if that is better than the guess and takes no large part of the time."""
        if math.isfinite(bound):
            self._report(EngineResult(NAME, Status.UNKNOWN, None, None, _whole(bound)))
        begun = time.monotonic()
        if choices is None or self._spent > ROUNDING_SHARE * (begun - self._begun):
            return
        best, value = self.carried_out(choices)
        self._spent += time.monotonic() - begun
        if value < self._value:
            self._value = value
            self._report(EngineResult(NAME, Status.FEASIBLE, best, value, None))

    def carried_out(self, choices: FloatArray) -> tuple[EpochSolution, int]:
        """A decision near the choices, and its value."""
        if self._rounding is None:
            self._rounding = Rounding(self._problem)
        state = self._rounding.carry_out(choices)
        self._rounding.mend(state)
        best = state.solution()
        return best, value_of(self._problem, best)


def _whole(bound: float) -> int | None:
    """Values are integers, so a bound may be rounded up."""
    return math.ceil(bound) if math.isfinite(bound) else None
