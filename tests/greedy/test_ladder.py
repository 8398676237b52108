"""Large choices first: which are large, that the bound holds, and when they can wait."""

from __future__ import annotations

import time

import numpy as np
import pytest

from allocator.entitlement import entitle
from allocator.epoch import compile_epoch
from allocator.epoch.problem import EpochProblem
from allocator.epoch.solution import EpochSolution
from allocator.generate import generate_snapshot
from allocator.models.greedy import bound, solver
from allocator.models.greedy.ladder import Ladder, large_ones
from allocator.models.greedy.relaxation import Relaxation
from allocator.models.protocol import Limits
from tests.engines.seeds import LIMIT


def problem_of(gpus: int, seed: int, pools: int = 3) -> EpochProblem:
    return compile_epoch(entitle(generate_snapshot(gpus=gpus, seed=seed, pools=pools)))


def gpus_of(problem: EpochProblem) -> np.ndarray:
    return np.concatenate([problem.offers.gpus, problem.victims.gpus, problem.promotions.gpus])


def ladder_of(problem: EpochProblem, seconds: float = LIMIT) -> tuple[Ladder, Relaxation]:
    relaxation, linear = Relaxation(problem, merged=False), Relaxation(problem, merged=False)
    gap = 0.0005 * 1000 * problem.step_gpus
    return Ladder(relaxation, linear, gap, 0, time.monotonic() + seconds), linear


def guess_of(problem: EpochProblem) -> EpochSolution:
    found = solver.solve(problem, Limits(0.0)).solution
    assert found is not None
    return found


@pytest.mark.parametrize("most", [0, 1, 20, 200, 10**6])
def test_large_are_the_largest_of_whole_sizes(most: int) -> None:
    problem = problem_of(1024, 1)
    gpus, large = gpus_of(problem), large_ones(problem, most)
    assert large.sum() <= most
    assert large.all() == (most >= len(gpus))
    if large.any() and not large.all():
        assert gpus[large].min() > gpus[~large].max()
        following = gpus == gpus[~large].max()
        assert (large | following).sum() > most, "one size more would be too many"


@pytest.mark.parametrize(("gpus", "seed"), [(1024, 2), (1024, 5), (2048, 3), (2048, 6)])
def test_large_ones_alone_bound_all_decisions(gpus: int, seed: int) -> None:
    """With fewer whole numbers the optimum is no worse, and at least as tight as with fractions alone."""
    problem = problem_of(gpus, seed)
    ladder, linear = ladder_of(problem)
    assert linear.solve({}) is not None
    told: list[float] = []

    def heard(proven: float) -> bool:
        told.append(proven)
        return False

    found = ladder.large(large_ones(problem, 100), guess_of(problem), heard)
    whole = Relaxation(problem, merged=False)
    _, proven = whole.solve_whole(LIMIT, 0.0005 * 1000 * problem.step_gpus, 0, guess_of(problem))
    best = bound.solve(problem, Limits(LIMIT, round(0.0005 * 1000 * problem.step_gpus)), guess_of(problem))
    assert found is not None
    assert best.value is not None
    assert max(told) <= best.value
    assert max(told) <= proven + 0.0006 * 1000 * problem.step_gpus
    assert max(told) >= linear.bound() - 0.0006 * 1000 * problem.step_gpus
    assert told == sorted(told)


def test_rounding_is_cheap_where_nothing_large_is_split() -> None:
    problem = problem_of(1024, 1, pools=1)
    ladder, _ = ladder_of(problem)
    none = np.zeros(len(gpus_of(problem)), dtype=np.bool_)
    assert ladder.cheap(none, 0.0)
    assert not ladder.cheap(none, -1000.0 * problem.step_gpus)
