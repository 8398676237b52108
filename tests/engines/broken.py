"""Engines that go wrong, each in its own way. `install` puts them into the child process in place of exact engines."""

from __future__ import annotations

import os
import pickle
import struct
import time
from collections.abc import Callable
from dataclasses import replace
from typing import IO

from allocator.epoch import EpochProblem, EpochSolution
from allocator.epoch.solution import value_of
from allocator.models import registry
from allocator.models.protocol import Engine, EngineResult, Limits, Report, Status, unheard

FOREVER = 3600.0
"""Seconds that a hanging engine takes: no test waits for its end."""

TALKATIVE = (
    "hangs_after_the_best", "exits_after_the_best", "raises_after_the_best", "dies_in_the_middle", "turns_to_nonsense",
    "hangs_after_a_bound", "boasts_and_hangs", "names_no_bound",
)  # fmt: skip
"""Faults that report something first: they take the report too."""


def hangs(name: str, problem: EpochProblem, limits: Limits, guess: EpochSolution | None) -> EngineResult:
    """Sleeps far beyond any deadline."""
    time.sleep(FOREVER)
    return nothing(name, Status.UNKNOWN)


def spins(name: str, problem: EpochProblem, limits: Limits, guess: EpochSolution | None) -> EngineResult:
    """Computes far beyond any deadline."""
    begun = time.monotonic()
    while time.monotonic() - begun < FOREVER:
        pass
    return nothing(name, Status.UNKNOWN)


def exits(name: str, problem: EpochProblem, limits: Limits, guess: EpochSolution | None) -> EngineResult:
    """Ends the process without a word."""
    os._exit(7)


def aborts(name: str, problem: EpochProblem, limits: Limits, guess: EpochSolution | None) -> EngineResult:
    """Ends as a failed assertion in C++ does."""
    os.abort()


def raises(name: str, problem: EpochProblem, limits: Limits, guess: EpochSolution | None) -> EngineResult:
    """Fails in Python."""
    raise OverflowError("beyond 2^52")


def gives_up(name: str, problem: EpochProblem, limits: Limits, guess: EpochSolution | None) -> EngineResult:
    """Has found nothing in its time."""
    return nothing(name, Status.UNKNOWN)


def finds_no_way(name: str, problem: EpochProblem, limits: Limits, guess: EpochSolution | None) -> EngineResult:
    """Says that not even keep is possible."""
    return nothing(name, Status.INFEASIBLE)


def rejects_the_model(name: str, problem: EpochProblem, limits: Limits, guess: EpochSolution | None) -> EngineResult:
    """Says that its model is malformed."""
    return nothing(name, Status.INVALID)


def crowds_a_node(name: str, problem: EpochProblem, limits: Limits, guess: EpochSolution | None) -> EngineResult:
    """Starts the first offer on the first node, whoever runs there."""
    return answer(name, problem, EpochSolution(starts={0: {0: int(problem.offers.units[0])}}))


def names_no_node(name: str, problem: EpochProblem, limits: Limits, guess: EpochSolution | None) -> EngineResult:
    """Starts the first offer on a node that does not exist."""
    return EngineResult(name, Status.OPTIMAL, EpochSolution(starts={0: {problem.capacity.shape[1]: 1}}), -(10**12), -(10**12))


def names_no_offer(name: str, problem: EpochProblem, limits: Limits, guess: EpochSolution | None) -> EngineResult:
    """Starts an offer that does not exist."""
    return EngineResult(name, Status.OPTIMAL, EpochSolution(starts={len(problem.offers.work): {0: 1}}), -(10**12), -(10**12))


def promises_too_much(name: str, problem: EpochProblem, limits: Limits, guess: EpochSolution | None) -> EngineResult:
    """Does nothing, and says that nothing could be better."""
    return EngineResult(name, Status.OPTIMAL, EpochSolution(), -(10**12), -(10**12))


def bounds_too_high(name: str, problem: EpochProblem, limits: Limits, guess: EpochSolution | None) -> EngineResult:
    """Has the right answer, and a bound above it."""
    solution = guess or EpochSolution()
    return replace(answer(name, problem, solution), bound=value_of(problem, solution) + 1)


def proves_nothing(name: str, problem: EpochProblem, limits: Limits, guess: EpochSolution | None) -> EngineResult:
    """Keeps everything as it is and has no bound."""
    return EngineResult(name, Status.FEASIBLE, EpochSolution(), 0, None)


def babbles(name: str, problem: EpochProblem, limits: Limits, guess: EpochSolution | None) -> EngineResult:
    """Prints to standard output, in Python and below it, and then solves as the real engine does."""
    print("a log line")  # noqa: T201
    os.write(1, b"another one\n" * 1000)
    return _REAL(name)(problem, limits, guess)


def hangs_after_the_best(
    name: str, problem: EpochProblem, limits: Limits, guess: EpochSolution | None, report: Report
) -> EngineResult:
    """Reports the optimum and its proof, and then never ends."""
    best = _REAL(name)(problem, limits, guess)
    report(replace(best, bound=None))
    report(EngineResult(name, Status.UNKNOWN, None, None, best.bound))
    return hangs(name, problem, limits, guess)


def exits_after_the_best(
    name: str, problem: EpochProblem, limits: Limits, guess: EpochSolution | None, report: Report
) -> EngineResult:
    """Reports the optimum, and then ends without a word."""
    report(_REAL(name)(problem, limits, guess))
    return exits(name, problem, limits, guess)


def raises_after_the_best(
    name: str, problem: EpochProblem, limits: Limits, guess: EpochSolution | None, report: Report
) -> EngineResult:
    """Reports the optimum, and then fails in Python."""
    report(_REAL(name)(problem, limits, guess))
    return raises(name, problem, limits, guess)


def dies_in_the_middle(
    name: str, problem: EpochProblem, limits: Limits, guess: EpochSolution | None, report: Report
) -> EngineResult:
    """Reports the optimum, and then half a message."""
    report(_REAL(name)(problem, limits, guess))
    _stream_of(report).write(struct.pack("<Q", 1000) + b"half")
    _stream_of(report).flush()
    return exits(name, problem, limits, guess)


def turns_to_nonsense(
    name: str, problem: EpochProblem, limits: Limits, guess: EpochSolution | None, report: Report
) -> EngineResult:
    """Reports the optimum, and then something that is no result."""
    report(_REAL(name)(problem, limits, guess))
    message = pickle.dumps((False, "much better"))
    _stream_of(report).write(struct.pack("<Q", len(message)) + message)
    _stream_of(report).flush()
    return hangs(name, problem, limits, guess)


def hangs_after_a_bound(
    name: str, problem: EpochProblem, limits: Limits, guess: EpochSolution | None, report: Report
) -> EngineResult:
    """Reports a bound, and then never ends."""
    bound = _REAL(name)(problem, limits, guess).bound
    report(EngineResult(name, Status.UNKNOWN, None, None, None if bound is None else bound - 1))
    return hangs(name, problem, limits, guess)


def boasts_and_hangs(
    name: str, problem: EpochProblem, limits: Limits, guess: EpochSolution | None, report: Report
) -> EngineResult:
    """Reports more than its answer is worth, and then never ends."""
    report(EngineResult(name, Status.OPTIMAL, EpochSolution(), -(10**12), -(10**12)))
    return hangs(name, problem, limits, guess)


def names_no_bound(
    name: str, problem: EpochProblem, limits: Limits, guess: EpochSolution | None, report: Report
) -> EngineResult:
    """Reports a bound that is no integer, and has no other."""
    report(EngineResult(name, Status.UNKNOWN, None, None, float("nan")))  # type: ignore[arg-type]
    return nothing(name, Status.UNKNOWN)


def _stream_of(report: Report) -> IO[bytes]:
    """Where reports go."""
    stream: IO[bytes] = report.__self__._answers  # type: ignore[attr-defined]
    return stream


def nothing(name: str, status: Status) -> EngineResult:
    return EngineResult(name, status, None, None, None)


def answer(name: str, problem: EpochProblem, solution: EpochSolution) -> EngineResult:
    value = value_of(problem, solution)
    return EngineResult(name, Status.OPTIMAL, solution, value, value)


_REAL = registry.exact_engine


def install(fault: str, *names: str) -> None:
    """Put a broken engine in place of the named ones. To be called before the worker is imported."""
    broken: Callable[..., EngineResult] = globals()[fault]

    def exact_engine(name: str) -> Engine:
        if name not in names:
            return _REAL(name)
        return lambda problem, limits, guess=None, report=unheard: broken(
            name, problem, limits, guess, *([report] if fault in TALKATIVE else [])
        )

    registry.exact_engine = exact_engine
