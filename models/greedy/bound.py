"""A bound, and a better answer: the relaxation with whole choices instead of fractions, and its choices carried out.

It takes seconds where greedy takes milliseconds, and far less than the whole model where the cluster is large: measured at
4,096 GPUs, half a second to one second to within 0.3 % of the cluster's time, in most instances.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator

import numpy as np

from allocator.epoch.afterthoughts import misplaced, only_gpus_bind, overlooked
from allocator.epoch.problem import EpochProblem
from allocator.epoch.solution import EpochSolution, value_of
from allocator.models.greedy.beside import Search, num_cores, one_beside
from allocator.models.greedy.dive import Dive
from allocator.models.greedy.ladder import NODES, Ladder, large_ones
from allocator.models.greedy.nearby import Nearby
from allocator.models.greedy.news import FloatArray
from allocator.models.greedy.relaxation import Fixed, Heard, Relaxation, values_of
from allocator.models.greedy.rounding import Rounding
from allocator.models.greedy.solver import NAME
from allocator.models.protocol import EngineResult, Limits, Report, Status, unheard
from allocator.topology.layout import GPUS, BoolArray

FINE = 1e-5
"""Share of the cluster's time to which the relaxation is solved where no gap is asked for: the rest is for exact engines."""

MANY_CHOICES = 900
"""Offers, victims and promotions from which on the whole step pays: measured, with fewer CP-SAT proves the optimum sooner, if
the first part of the step goes before it where that pays."""

SOLVING_SHARE = 0.9
"""What searches get of the time: HiGHS ends a little late, and its choices have to be carried out."""

LARGE_ONES = 500
"""The largest choices, at most so many, are whole numbers before all others are: HiGHS found them in 1 to 2 s."""

HALF = 0.5
"""Part of the distance up to which what it costs to round the large choices is not what is missing."""

LADDER_SHARE = 0.95
"""What choosing from the large choices down gets of that."""

NEARBY_SHARE = 0.5
"""What searches near the answer get of what is left then, where one core has to search everything afterwards."""

NEARBY_COLUMNS = 50_000
"""Columns up to which these are made, and large choices searched alone: at 100,000 GPUs one of them took seconds, the others
11 s."""

ONE_SHARE = 2.0
"""What one of these gets at most, in equal parts of what is left for all: most need less."""

NEARBY_NODES = 200
"""Nodes of one of these, so that they depend on the clock only where time is short."""

FINER = 0.5
"""Part of the gap that is asked for to which HiGHS searches: to carry out what it chooses may cost something."""

ROUNDING_SHARE = 0.2
"""Part of the time until then that carrying out what HiGHS finds on the way may have taken."""

FEW_CHOICES = 100
"""From so many on it pays where CPUs, memory, odd sizes or segments decide: there it took a third of the time that CP-SAT takes
to a gap of 0.5 %, and from 400 on CP-SAT does not get there in a minute."""

MOSTLY = 0.9
"""Part of the GPUs on offer that is easily placed from which on exact engines are as fast up to `MANY_CHOICES`."""

SOME_CHOICES = 400
"""From so many on the first part of the step alone pays where greedy's answer is `FAR`: below it CP-SAT takes 0.1 s anyhow."""

FAR = 0.15
"""Distance of greedy's answer and its bound, as a share of the cluster's time, from which on the first part alone pays.
Measured: where they are nearer CP-SAT proves the optimum as fast without, and where not it took up to ten times as long."""


def pays(problem: EpochProblem) -> bool:
    """Whether the problem is so large, or such, that exact engines take longer to a small gap than this step."""
    num_choices = num_choices_of(problem)
    if num_choices < FEW_CHOICES or not len(problem.offers.work):
        return False
    return num_choices >= MANY_CHOICES or placing_is_hard(problem)


def large_first_pays(problem: EpochProblem, distance: float, gap: int) -> bool:
    """Whether the first part alone makes exact engines faster, or spares them, where the whole step does not pay.

    `distance` is that of greedy's answer and its bound, `gap` the one at which to stop, both in 1/1000 GPU-second.
    """
    far = distance > FAR * 1000 * problem.step_gpus and num_choices_of(problem) >= SOME_CHOICES
    return bool(len(problem.offers.work)) and (gap > 0 or far)


def num_choices_of(problem: EpochProblem) -> int:
    """Offers, victims and promotions."""
    return len(problem.offers.work) + len(problem.victims.work) + len(problem.promotions.work)


def placing_is_hard(problem: EpochProblem) -> bool:
    """Whether a good part of the offers is hard to place: there exact engines prove little, however long they take."""
    return float(np.average(_easily_placed(problem), weights=problem.offers.gpus)) < MOSTLY


def _easily_placed(problem: EpochProblem) -> BoolArray:
    """Offers that fit wherever there are GPUs enough, shape (num_offers,).

    They need little else and no segments, and whole numbers of them fill a node.
    """
    offers, shapes = problem.offers, problem.shapes
    fill = (problem.capacity[GPUS] % shapes.need[GPUS][:, None] == 0) | ~shapes.open_to
    easy = only_gpus_bind(problem) & fill.all(axis=1)
    return np.asarray(easy[offers.shape] & ((offers.segment_level < 0) | (offers.segment_units <= 1)))


def solve(problem: EpochProblem, limits: Limits, guess: EpochSolution | None = None, report: Report = unheard) -> EngineResult:
    """Choose who starts and who stops by the relaxation, place that, and say what no decision can be better than."""
    step = _Step(problem, limits, guess, report)
    step.run()
    return step.known.result(limits.gap)


def descend(
    problem: EpochProblem, limits: Limits, guess: EpochSolution | None = None, report: Report = unheard
) -> EngineResult:
    """Choose from the large choices down alone: most of what the whole step finds, for a fraction of its time."""
    step = _Step(problem, limits, guess, report)
    if step.begin():
        step.step_down()
    return step.known.result(limits.gap)


class _Step:
    """All searches of one problem, up to what is near enough."""

    def __init__(self, problem: EpochProblem, limits: Limits, guess: EpochSolution | None, report: Report) -> None:
        self._problem, self._seed, self._fine = problem, limits.seed, FINE * 1000 * problem.step_gpus
        self.known = _Known(problem, max(self._fine, limits.gap), guess, report)
        self._deadline = time.monotonic() + limits.seconds * SOLVING_SHARE
        self._cores = num_cores()
        self._relaxation, self._linear = Relaxation(problem, merged=False), Relaxation(problem, merged=False)

    def run(self) -> None:
        """From the large choices down, then near the answer; and everything, beside the last of these."""
        if not self.begin():
            if not self.known.near:
                self._take(self._everything(None)(self.known.hear))
            return
        if self._relaxation.num_columns > NEARBY_COLUMNS:
            self._beside(self.step_down)
            return
        self.step_down()
        if not self.known.near:
            self._beside(self._look_nearby)

    def begin(self) -> bool:
        """Solve the relaxation with fractions; whether the answer that is known is to be improved from there."""
        if self.known.best is None or self._linear.solve({}) is None:
            return False
        return not self.known.hear(None, self._linear.bound())

    def _beside(self, first: Callable[[], None]) -> None:
        """Make a search, and that of everything beside it, from the answer that is known before."""
        known = self.known
        self._take(one_beside(first, self._everything(known.best), known.hear, lambda: known.near, self._cores))

    def _everything(self, guess: EpochSolution | None) -> Search:
        """The search of everything, from a guess on; its bounds are reported at once, whenever they are heard."""
        finer = self.known.gap * FINER if self.known.distance > self.known.gap else self._fine

        def search(heard: Heard) -> FloatArray | None:
            def told(choices: FloatArray | None, bound: float) -> bool:
                self.known.report_bound(bound)
                return heard(choices, bound)

            choices, bound = self._relaxation.solve_whole(self._left(), finer, self._seed, guess, told)
            told(None, bound)
            return choices

        return search

    def _take(self, choices: FloatArray | None) -> None:
        """Carry out what a search has found, if that can make the answer near."""
        if choices is not None and not self.known.near:
            self.known.carry_out(choices)

    def _left(self, share: float = 1.0) -> float:
        """Seconds of a share of the time that is left."""
        return share * (self._deadline - time.monotonic())

    def step_down(self) -> None:
        """Choose what is large, then what is small."""
        known, whole = self.known, large_ones(self._problem, LARGE_ONES)
        end = time.monotonic() + self._left(LADDER_SHARE)
        decided: Fixed = {}
        if self._linear.num_columns <= NEARBY_COLUMNS:
            ladder = Ladder(self._relaxation, self._linear, known.gap * FINER, self._seed, end)
            if not ladder.cheap(whole, HALF * known.distance):
                choices = ladder.large(whole, known.answer(), lambda bound: known.hear(None, bound))
                decided = {} if choices is None else values_of(choices, whole)
        if not known.near:
            self._take(self._small(decided, end))

    def _small(self, decided: Fixed, end: float) -> FloatArray | None:
        """What is small, beside what has been decided: whole numbers where something has and there is one
        pool, else rounded."""
        if decided and len(set(self._problem.offers.pool.tolist())) == 1:
            seconds = end - time.monotonic()
            found, _ = self._relaxation.solve_whole(seconds, self.known.gap * FINER, self._seed, fixed=decided, nodes=NODES)
            if found is not None:
                return found
        return Dive(self._problem, self._linear, end).down(decided)

    def _look_nearby(self) -> None:
        """Search near the answer; with a core for itself in all of the time."""
        known, end = self.known, time.monotonic() + self._left(1.0 if self._cores > 1 else NEARBY_SHARE)
        # Everything is searched in the other model meanwhile.
        relaxation = Relaxation(self._problem, merged=False) if self._cores > 1 else self._relaxation
        first = self._linear.solve({})
        if first is None:
            return
        nearby = Nearby(self._problem, self._linear, first, known.answer)
        for fixed in nearby.parts():
            left = end - time.monotonic()
            seconds = left * min(1.0, ONE_SHARE / (nearby.left + 1))
            if seconds <= 0 or known.near:
                break
            choices, _ = relaxation.solve_whole(
                seconds, known.gap * FINER, self._seed, known.answer(), fixed=fixed, nodes=NEARBY_NODES
            )
            self._take(choices)


class _Known:
    """The best answer and the tightest bound. Both are reported at once: the search may be killed at any time.

    Attributes
    ----------
    gap
        Distance at which the search ends.
    best, value
        The best decision, that of the guess at first, and its value; None if there is none.
    found
        The best of those that were carried out here, and its value; None if there is none.
    bound
        What no decision is better than; None if nothing is known.
    """

    def __init__(self, problem: EpochProblem, gap: float, guess: EpochSolution | None, report: Report) -> None:
        self._problem, self._report = problem, report
        self._rounding: Rounding | None = None
        self._begun, self._spent = time.monotonic(), 0.0
        self.gap, self.best, self.value = gap, guess, None if guess is None else value_of(problem, guess)
        self.found: tuple[EpochSolution, int] | None = None
        self.bound: int | None = None

    @property
    def distance(self) -> float:
        """Of value and bound."""
        return math.inf if self.value is None or self.bound is None else self.value - self.bound

    def answer(self) -> EpochSolution:
        """The best decision; keep if there is none."""
        return EpochSolution() if self.best is None else self.best

    @property
    def near(self) -> bool:
        """Whether that is as near as was asked for, by an answer that the last pass need not mend at a price."""
        if self.best is None or self.distance > self.gap:
            return False
        return not (overlooked(self._problem, self.best) or misplaced(self._problem, self.best))

    def result(self, gap: int) -> EngineResult:
        """The best decision if it is near, else the best that was found here: the last pass may make more of it."""
        best = self.found if self.found is not None and not self.near else (self.best, self.value)
        if best[0] is None or best[1] is None:
            return EngineResult(NAME, Status.UNKNOWN, None, None, self.bound)
        proven = self.bound is not None and best[1] - self.bound <= max(gap, 0)
        return EngineResult(NAME, Status.OPTIMAL if proven else Status.FEASIBLE, *best, self.bound)

    def hear(self, choices: FloatArray | None, bound: float) -> bool:
        """Take in a bound, and choices if carrying them out takes no large part of the time; whether that is near enough."""
        if math.isfinite(bound) and (self.bound is None or math.ceil(bound) > self.bound):
            self.bound = math.ceil(bound)  # values are integers
            self.report_bound(bound)
        if choices is not None and self._spent <= ROUNDING_SHARE * (time.monotonic() - self._begun):
            self.carry_out(choices)
        return self.near

    def report_bound(self, bound: float) -> None:
        """Tell of a bound without taking it in: in any thread."""
        if math.isfinite(bound):
            self._report(EngineResult(NAME, Status.UNKNOWN, None, None, math.ceil(bound)))

    def carry_out(self, choices: FloatArray) -> None:
        """Keep a decision near the choices, if it is better than all before."""
        begun = time.monotonic()
        for found in self._decisions(choices):
            self._keep(found, value_of(self._problem, found))
        self._spent += time.monotonic() - begun

    def _decisions(self, choices: FloatArray) -> Iterator[EpochSolution]:
        """The choices carried out, and that with exchanges: what has to be mended may leave work waiting that is worth much."""
        if self._rounding is None:
            self._rounding = Rounding(self._problem)
        state = self._rounding.carry_out(choices)
        self._rounding.mend(state)
        yield state.solution()
        if self._rounding.exchange(state):
            self._rounding.mend(state)
            yield state.solution()

    def _keep(self, found: EpochSolution, value: int) -> None:
        if self.found is None or value < self.found[1]:
            self.found = found, value
        if self.value is None or value < self.value:
            self.best, self.value = found, value
            self._report(EngineResult(NAME, Status.FEASIBLE, found, value, None))
