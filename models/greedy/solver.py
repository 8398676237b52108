"""Greedy: the linear relaxation, a short search around it for the large pieces, and rounding of what is left."""

from __future__ import annotations

from allocator.epoch.problem import EpochProblem
from allocator.epoch.solution import EpochSolution, value_of
from allocator.models.greedy.search import Search
from allocator.models.protocol import EngineResult, Limits, Status

NAME = "greedy"


def solve(problem: EpochProblem, limits: Limits, guess: EpochSolution | None = None) -> EngineResult:
    """A feasible answer in milliseconds. Needs neither limits nor guess: its effort is counted, so that it is deterministic."""
    solution = Search(problem).run()
    return EngineResult(NAME, Status.FEASIBLE, solution, value_of(problem, solution), None)
