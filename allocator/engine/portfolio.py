"""Which engines run, in which order, and when to stop: greedy, then exact engines from its answer until one proves the gap."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from allocator.engine.clock import Clock
from allocator.epoch import EpochProblem
from allocator.epoch.solution import value_of
from allocator.models.greedy import solver as greedy
from allocator.models.process import shared_process
from allocator.models.protocol import EngineResult, Limits, Status
from allocator.models.registry import EXACT_ENGINES

ENGINES = ("portfolio", "greedy", *EXACT_ENGINES)

LEAST_SECONDS = 0.02
"""An exact engine is not even asked with less time than this."""


@dataclass(frozen=True, slots=True)
class Answers:
    """All results, and what went wrong on the way."""

    results: tuple[EngineResult, ...]
    notes: tuple[str, ...]


def run_engines(problem: EpochProblem, engine: str, clock: Clock, reserve: float, seed: int, gap: int) -> Answers:
    """Run greedy and then the exact engines that `engine` names.

    Parameters
    ----------
    reserve
        Seconds to leave for what follows: last pass, verification, explanation.
    gap
        Distance of value and bound at which to stop, in 1/1000 GPU-second.
    """
    with clock.step("greedy"):
        results = [greedy.solve(problem, Limits(0.0))]
    notes: list[str] = []
    bound: int | None = None
    for name in _exact(engine):
        if _closed(results, bound, gap):
            break
        seconds = clock.left - reserve
        if seconds < LEAST_SECONDS:
            notes.append(f"{name}: no time left")
            continue
        with clock.step(name):
            result = shared_process().solve(
                name, problem, Limits(seconds * 0.95, gap, seed), _best(results).solution, clock.deadline - reserve
            )
        result = _checked(problem, result)
        results.append(result)
        bound = _tighter(bound, result.bound)
        if result.note or result.status in (Status.INFEASIBLE, Status.INVALID):
            notes.append(f"{name}: {result.note or result.status.value}")
    return Answers(tuple(results), tuple(notes))


def _checked(problem: EpochProblem, result: EngineResult) -> EngineResult:
    """The result, if its solution is worth what the engine says; else it proves nothing, and the note says why."""
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


def _exact(engine: str) -> Iterable[str]:
    if engine == "greedy":
        return ()
    return EXACT_ENGINES if engine == "portfolio" else (engine,)


def _best(results: Iterable[EngineResult]) -> EngineResult:
    """The least value; of equals the earliest."""
    return min((result for result in results if result.value is not None), key=lambda result: result.value or 0)


def _closed(results: Iterable[EngineResult], bound: int | None, gap: int) -> bool:
    # A value below the bound breaks a rule that only the last pass mends, at a price: it closes nothing.
    return bound is not None and any(result.value is not None and 0 <= result.value - bound <= gap for result in results)


def _tighter(bound: int | None, other: int | None) -> int | None:
    if bound is None or other is None:
        return other if bound is None else bound
    return max(bound, other)
