"""Greedy: the linear relaxation, a short search around it for the large pieces, and rounding of what is left."""

from __future__ import annotations

import numpy as np

from allocator.epoch.problem import EpochProblem
from allocator.epoch.solution import EpochSolution, value_of
from allocator.models.greedy.search import Search
from allocator.models.protocol import EngineResult, Limits, Status

NAME = "greedy"


def solve(problem: EpochProblem, limits: Limits, guess: EpochSolution | None = None) -> EngineResult:
    """A feasible answer in milliseconds, and the bound of the relaxation that it begins with.

    Needs neither limits nor guess: its effort is counted, so that it is deterministic.
    """
    if nothing_to_decide(problem):
        return EngineResult(NAME, Status.OPTIMAL, EpochSolution(), 0, 0)
    search = Search(problem)
    search.run()
    value = value_of(problem, search.best)
    return EngineResult(NAME, Status.OPTIMAL if value == search.bound else Status.FEASIBLE, search.best, value, search.bound)


def nothing_to_decide(problem: EpochProblem) -> bool:
    """Whether keep is surely best: nothing may start or be promoted, and no stop saves as much as it costs.

    A curve is convex, so its last slope bounds what it falls by with each GPU that is given up.
    """
    victims = problem.victims
    if len(problem.offers.work) or len(problem.promotions.work):
        return False
    most = np.zeros(len(victims.work), dtype=np.int64)
    for term in problem.shares:
        most[term.victims] += victims.gpus[term.victims] * max(0, term.curve.last_slope)
    return bool(np.all(victims.cost >= most))
