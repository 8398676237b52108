"""Where GPUs alone decide whether a stop needs a licence, and what the relaxation makes of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from allocator.entitlement import entitle
from allocator.epoch import EpochProblem, compile_epoch
from allocator.generate import generate_snapshot
from allocator.models.cpsat import solver as reference
from allocator.models.greedy import bound
from allocator.models.greedy.constraints import unlicensed
from allocator.models.greedy.licence import gpus_decide
from allocator.models.greedy.rounding import Rounding
from allocator.models.protocol import Limits
from allocator.topology.layout import CPUS
from tests.engines.seeds import LIMIT


def problem_of(family: str, seed: int = 4, pools: int | None = None) -> EpochProblem:
    return compile_epoch(entitle(generate_snapshot(family=family, gpus=1024, seed=seed, pools=pools)))


def test_gpus_decide_in_ordinary_work_and_not_where_cpus_are_short() -> None:
    assert gpus_decide(problem_of("mixed")).mean() > 0.5
    assert gpus_decide(problem_of("bound")).mean() < gpus_decide(problem_of("mixed")).mean()


def test_a_node_with_too_few_cpus_is_told_apart() -> None:
    problem = problem_of("mixed")
    node = int(np.flatnonzero(gpus_decide(problem))[0])
    capacity = problem.capacity.copy()
    capacity[CPUS, node] = 1
    free = problem.free.copy()
    free[CPUS, node] = 0
    kept = replace(problem, capacity=capacity, free=free)
    assert not gpus_decide(kept)[node] or problem.free[0, node] == problem.capacity[0, node]


def test_express_starts_must_need_the_place_that_they_excuse() -> None:
    """Three pools and a lane: without this the bound lay 0.8 % of the cluster's time below the optimum."""
    problem = problem_of("mixed", pools=3)
    assert not problem.victims.licensed.all()
    found, best = bound.solve(problem, Limits(LIMIT, gap=problem.step_gpus // 10)), reference.solve(problem, Limits(LIMIT))
    assert found.bound is not None
    assert best.value is not None
    assert found.bound <= best.value
    assert best.value - found.bound <= 0.002 * 1000 * problem.step_gpus


@pytest.mark.parametrize("seed", range(1, 9))
def test_express_starts_take_so_much_that_whoever_leaves_for_them_would_not_fit(seed: int) -> None:
    """One that is too small for that excuses no stop: it was taken back later, with dear work that stood in its place."""
    problem = problem_of("mixed", seed, pools=3)
    assert not problem.victims.licensed.all()
    others = np.ones(len(problem.victims.work) + len(problem.promotions.work))
    all_but_moves = np.concatenate([problem.offers.victim < 0, others])
    assert not unlicensed(Rounding(problem).carry_out(all_but_moves))
