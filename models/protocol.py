"""What every engine is: a function from the compiled problem to a result. No solver constant leaks above this file."""

from __future__ import annotations

from dataclasses import dataclass
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
    """`seconds` of wall clock; `gap` in 1/1000 GPU-second at which to stop; `seed` of the solver."""

    seconds: float
    gap: int = 0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class EngineResult:
    """`value` and `bound` are relative to keep, in 1/1000 GPU-second (see `value_of`); None where there is none."""

    engine: str
    status: Status
    solution: EpochSolution | None
    value: int | None
    bound: int | None
    note: str = ""


class Engine(Protocol):
    """Solves a compiled problem, perhaps from a guess."""

    def __call__(self, problem: EpochProblem, limits: Limits, guess: EpochSolution | None = None) -> EngineResult:
        """Return the best solution found within the limits."""
        ...
