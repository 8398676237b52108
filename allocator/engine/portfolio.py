"""Which engines run, in which order, and when to stop: greedy, then exact engines from its answer until one proves the gap."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from allocator.engine.clock import Clock
from allocator.epoch import EpochProblem, EpochSolution
from allocator.epoch.solution import value_of
from allocator.models.greedy import solver as greedy
from allocator.models.greedy.bound import large_first_pays, num_choices_of, pays, placing_is_hard
from allocator.models.process import shared_process
from allocator.models.protocol import EngineResult, Limits, Status
from allocator.models.registry import BOUND, EXACT_ENGINES, LADDER

logger = logging.getLogger(__name__)

ENGINES = ("portfolio", "greedy", *EXACT_ENGINES)

LEAST_SECONDS = 0.02
"""An exact engine is not even asked with less time than this."""

CHILD_SHARE = 0.95
"""The child is told to end after this part of its time; the rest is for the way back, and then it is killed."""

BOUND_SHARE = 0.6
"""The step that bounds large problems gets this part of the time; the exact engines get what it leaves."""

EXACT_SECONDS = 0.002
"""Seconds per choice without which an exact engine has hardly begun: then that step gets all of the time."""

KEEP = EngineResult("keep", Status.FEASIBLE, EpochSolution(), 0, None)
"""Stop what must stop, start nothing: always possible."""


@dataclass(slots=True)
class Answers:
    """All results so far, and what went wrong on the way."""

    problem: EpochProblem
    results: list[EngineResult] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def best(self) -> EngineResult:
        """The least value; of equals the earliest; keep if there is none."""
        valued = [result for result in self.results if result.value is not None]
        return min(valued, key=lambda result: result.value or 0, default=KEEP)

    def add(self, result: EngineResult) -> None:
        """Take in what an engine answered, checked, and note what is wrong with it."""
        result = _checked(self.problem, result)
        self.results.append(result)
        if result.note or result.status in (Status.INFEASIBLE, Status.INVALID):
            self.notes.append(f"{result.engine}: {result.note or result.status.value}")

    @property
    def bound(self) -> int | None:
        """The tightest bound."""
        return max((result.bound for result in self.results if result.bound is not None), default=None)

    @property
    def distance(self) -> float:
        """Of the best value and the tightest bound."""
        return math.inf if self.bound is None else (self.best.value or 0) - self.bound

    def closed(self, gap: int, worth: Callable[[], int]) -> bool:
        """Whether some value is proven up to the gap, and so is what the best answer is worth once it keeps all rules."""
        bound = self.bound
        if bound is None:
            return False
        near = any(r.value is not None and 0 <= r.value - bound <= gap for r in self.results)
        return near and worth() - bound <= gap

    @property
    def settled(self) -> bool:
        """Whether an exact engine has proven its answer: all state the same rules, so that no other proves more."""
        ended = (r for r in self.results if r.status is Status.OPTIMAL and r.bound is not None)
        return any(result.engine in EXACT_ENGINES for result in ended)


def first_answer(problem: EpochProblem, clock: Clock) -> Answers:
    """Greedy: always there, in milliseconds. Should it fail, keep is there, and the note says why."""
    answers = Answers(problem)
    with clock.step("greedy"):
        try:
            answers.results.append(greedy.solve(problem, Limits(0.0)))
        except Exception as error:
            logger.exception("greedy failed")
            answers.notes.append(f"greedy: {type(error).__name__}: {error}")
    return answers


def improve(
    answers: Answers, engine: str, clock: Clock, gap: int, seed: int, prepare: Callable[[], float], worth: Callable[[], int]
) -> None:
    """Ask the exact engines that `engine` names, one after another, until one closes the gap or the time is over.

    Parameters
    ----------
    gap
        Distance of value and bound at which to stop, in 1/1000 GPU-second.
    prepare
        Gets the answer so far ready, while the first engine solves where there is time enough; returns the seconds that getting
        an answer ready takes, which are left for the best one at the end.
    worth
        The value of the best answer so far once it keeps all rules.
    """
    reserve: float | None = None
    for name in _exact(engine, answers, gap):
        if answers.settled or answers.closed(gap, worth):
            break
        if reserve is None and clock.left < clock.elapsed:
            reserve = prepare()  # it may take all that is left, so that nobody is asked meanwhile
        seconds = clock.left - (reserve or 0.0)
        if name not in EXACT_ENGINES:
            seconds *= _bound_share(answers.problem, seconds)
        if seconds < LEAST_SECONDS:
            answers.notes.append(f"{name}: no time left")
            continue
        known = (answers.bound, worth()) if name in EXACT_ENGINES else (None, None)
        limits, others = Limits(seconds * CHILD_SHARE, gap, seed, *known), clock.left - seconds
        with clock.step(name), shared_process().solving(name, answers.problem, limits, answers.best.solution) as answer:
            if reserve is None:
                reserve = prepare()
            answers.add(answer(clock.deadline - max(reserve, others)))


def _checked(problem: EpochProblem, result: EngineResult) -> EngineResult:
    """The result, if its solution is worth what the engine says; else it proves nothing, and the note says why."""
    bound: object = result.bound  # whatever came through the pipe
    if not isinstance(bound, int | None):
        result = replace(result, bound=None, note=f"its bound is a {type(bound).__name__}")
    if result.solution is None:
        return result
    try:
        value = value_of(problem, result.solution)
    except (LookupError, TypeError, ValueError) as error:
        note = f"its solution cannot be read ({type(error).__name__}: {error})"
        return replace(result, solution=None, value=None, bound=None, note=note)
    if value == result.value:
        return result
    return replace(result, value=value, bound=None, note=f"its solution is worth {value}, not {result.value}")


def _bound_share(problem: EpochProblem, seconds: float) -> float:
    """The part of the time for the step that bounds; what it does not need is left for exact engines anyway."""
    hopeless = (1 - BOUND_SHARE) * seconds < EXACT_SECONDS * num_choices_of(problem) or placing_is_hard(problem)
    return 1.0 if hopeless else BOUND_SHARE


def _exact(engine: str, answers: Answers, gap: int) -> Iterable[str]:
    if engine == "greedy":
        return ()
    if engine != "portfolio":
        return (engine,)
    if pays(answers.problem):
        return (BOUND, *EXACT_ENGINES)
    return (LADDER, *EXACT_ENGINES) if large_first_pays(answers.problem, answers.distance, gap) else EXACT_ENGINES
