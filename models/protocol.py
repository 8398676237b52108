"""What every engine is: a function from the compiled problem to a result. No solver constant leaks above this file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from allocator.epoch.problem import EpochProblem
from allocator.epoch.solution import EpochSolution


class Status(StrEnum):
    """How a solve ended; every solver status maps to exactly one of these."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    UNKNOWN = "unknown"
    INFEASIBLE = "infeasible"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True)
class Limits:
    """`seconds` of wall clock; `gap` in 1/1000 GPU-second at which to stop; `seed` of the solver.

    The optimum is known to lie between `lower` and `upper`, values relative to keep in 1/1000 GPU-second (None: not known).
    `upper` is that of a decision that keeps all rules.
    """

    seconds: float
    gap: int = 0
    seed: int = 0
    lower: int | None = None
    upper: int | None = None


@dataclass(frozen=True, slots=True)
class EngineResult:
    """`value` and `bound` are relative to keep, in 1/1000 GPU-second (see `value_of`); None where there is none."""

    engine: str
    status: Status
    solution: EpochSolution | None
    value: int | None
    bound: int | None
    note: str = ""


Report = Callable[[EngineResult], None]
"""Takes what an engine knows so far: a better answer, a tighter bound, or both. What it does not name stays as it was."""


def unheard(result: EngineResult) -> None:
    """The report of a caller that waits for the end."""


def added(known: EngineResult | None, news: EngineResult) -> EngineResult:
    """What is known with the news: the better answer, of equals the later, and the tightest bound."""
    if known is None:
        return news
    bounds = [result.bound for result in (known, news) if result.bound is not None]
    valued = [result for result in (news, known) if result.value is not None]
    best = min(valued, key=lambda result: result.value or 0, default=news)
    return replace(best, bound=max(bounds, default=None))


def completed(result: EngineResult, known: EngineResult | None) -> EngineResult:
    """A result, with the answer and the bound that were reported before where it has none of its own."""
    if known is None:
        return result
    if result.solution is None and known.solution is not None:
        status = Status.FEASIBLE if result.status is Status.UNKNOWN else result.status
        result = replace(result, status=status, solution=known.solution, value=known.value)
    return result if result.bound is not None else replace(result, bound=known.bound)


class Engine(Protocol):
    """Solves a compiled problem, perhaps from a guess."""

    def __call__(
        self, problem: EpochProblem, limits: Limits, guess: EpochSolution | None = None, report: Report = unheard
    ) -> EngineResult:
        """Return the best solution found within the limits, and report what is found on the way."""
        ...
