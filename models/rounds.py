"""Solve, look for afterthoughts that the answer breaks, add them, solve again: the same for every exact engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from allocator.epoch.afterthoughts import claimants, misplaced, overlooked
from allocator.epoch.problem import EpochProblem, with_own_shapes
from allocator.epoch.solution import EpochSolution
from allocator.models.protocol import EngineResult, Limits, Report, unheard

MOST_ROUNDS = 8
"""A backstop on how often broken afterthoughts are added; one round is the rule, three have been seen."""

SolveOnce = Callable[[EpochProblem, Limits, Sequence[int], Sequence[int]], EngineResult]
"""Solves the model that states `unallocated_last` for the offers and `charged_first` for the victims named."""


def solve_in_rounds(
    solve_once: SolveOnce,
    problem: EpochProblem,
    limits: Limits,
    guess: EpochSolution | None = None,
    report: Report = unheard,
) -> EngineResult:
    """Solve to optimality or to the limits. Every round solves a relaxation, so the tightest bound of all rounds holds.

    What the guess breaks is stated from the first round on: it is often what the answer would break.
    """
    deadline = time.monotonic() + limits.seconds
    claims = overlooked(problem, guess) if guess is not None else []
    displaced = misplaced(problem, guess) if guess is not None else []
    result = solve_once(with_own_shapes(problem, displaced), limits, claims, displaced)
    for _ in range(MOST_ROUNDS):
        if result.solution is None:
            return result
        more = [j for j in _their_like(problem, overlooked(problem, result.solution)) if j not in claims]
        wrong = [r for r in _theirs_to_lose(problem, misplaced(problem, result.solution)) if r not in displaced]
        left = deadline - time.monotonic()
        if not (more or wrong) or left <= 0:
            return result
        report(result)
        claims, displaced = claims + more, displaced + wrong
        limits = replace(limits, seconds=left, lower=_tighter(limits.lower, result.bound))
        again = solve_once(with_own_shapes(problem, displaced), limits, claims, displaced)
        if again.solution is None:
            return replace(result, bound=_tighter(result.bound, again.bound))
        result = replace(again, bound=_tighter(result.bound, again.bound))
    return result


def _their_like(problem: EpochProblem, offers: Sequence[int]) -> list[int]:
    """All offers of the same leaves for which the rule can be stated: else the next answer overlooks a neighbour instead."""
    leaves = set(problem.offers.leaf[list(offers)].tolist())
    return [j for j in claimants(problem) if int(problem.offers.leaf[j]) in leaves] if leaves else []


def _theirs_to_lose(problem: EpochProblem, victims: Sequence[int]) -> list[int]:
    """All charged victims of the same pools, for the same reason."""
    pools = set(problem.victims.pool[list(victims)].tolist())
    charged = np.flatnonzero(problem.victims.charged).tolist()
    return [r for r in charged if int(problem.victims.pool[r]) in pools]


def _tighter(first: int | None, second: int | None) -> int | None:
    bounds = [bound for bound in (first, second) if bound is not None]
    return max(bounds, default=None)
