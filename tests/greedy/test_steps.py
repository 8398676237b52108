"""What tightens the relaxation holds for every decision: reachable sums, and what domains cost at least."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.entitlement import entitle
from allocator.epoch import EpochProblem, compile_epoch
from allocator.epoch.solution import spread_value
from allocator.generate import generate_snapshot
from allocator.models.greedy import solver
from allocator.models.greedy.spread import least_spread
from allocator.models.greedy.steps import MOST_MEMBERS, steps_of, sums_of
from allocator.models.protocol import Limits


def problem_of(seed: int, family: str = "mixed", gpus: int = 512) -> EpochProblem:
    return compile_epoch(entitle(generate_snapshot(family=family, gpus=gpus, seed=seed, pools=3)))


@given(st.lists(st.integers(1, 40), max_size=7))
def test_sums_are_those_of_all_subsets(sizes: list[int]) -> None:
    subsets = {sum(some) for number in range(len(sizes) + 1) for some in combinations(sizes, number)}
    assert sums_of(sizes).tolist() == sorted(subsets)


@pytest.mark.parametrize("seed", range(1, 5))
def test_steps_give_the_curve_at_every_sum_and_are_convex(seed: int) -> None:
    problem = problem_of(seed)
    for term in problem.shares:
        sizes = np.concatenate(
            [problem.victims.gpus[term.victims], problem.offers.gpus[term.offers], problem.promotions.gpus[term.promotions]]
        ).tolist()
        steps = list(steps_of(problem, term))
        slopes = [step.rise / step.gpus for step in steps]
        assert slopes == sorted(slopes)
        low = term.base - int(problem.victims.gpus[term.victims].sum())
        ends = np.cumsum([0] + [step.gpus for step in steps for _ in range(step.number)])
        rises = np.cumsum([0] + [step.rise for step in steps for _ in range(step.number)])
        known = dict(zip(ends.tolist(), rises.tolist(), strict=True))
        assert len(sizes) <= MOST_MEMBERS
        assert list(known) == sums_of(sizes).tolist()
        assert all(term.curve.value(low) + rise == term.curve.value(low + gpus) for gpus, rise in known.items())


def test_many_members_keep_the_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allocator.models.greedy.steps.MOST_MEMBERS", 0)
    problem = problem_of(1)
    for term in problem.shares:
        steps = list(steps_of(problem, term))
        low = term.base - int(problem.victims.gpus[term.victims].sum())
        high = low + sum(step.gpus * step.number for step in steps)
        assert sum(step.rise * step.number for step in steps) == term.curve.value(high) - term.curve.value(low)


@pytest.mark.parametrize("family", ["mixed", "nvl72", "victims"])
def test_no_decision_touches_fewer_domains(family: str) -> None:
    gangs = 0
    for seed in range(1, 4):
        snapshot = generate_snapshot(family=family, gpus=1152, seed=seed)
        problem = compile_epoch(entitle(snapshot))
        least, answer = least_spread(problem), solver.solve(problem, Limits(0.0)).solution
        assert answer is not None
        assert (least >= 0).all()
        for j, placement in answer.starts.items():
            assert least[j] <= spread_value(problem, j, placement)
            gangs += len(placement) > 1
    assert gangs
