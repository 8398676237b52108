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


def steps_by_share(problem: EpochProblem) -> list[list[tuple[int, int, int]]]:
    """(GPUs, rise, number) of the steps of each share."""
    found: list[list[tuple[int, int, int]]] = [[] for _ in problem.shares]
    for term, *step in zip(*(column.tolist() for column in steps_of(problem)), strict=True):
        found[term].append(tuple(step))
    return found


@given(st.lists(st.integers(1, 40), max_size=7))
def test_sums_are_those_of_all_subsets(sizes: list[int]) -> None:
    subsets = {sum(some) for number in range(len(sizes) + 1) for some in combinations(sizes, number)}
    assert sums_of(sizes).tolist() == sorted(subsets)


@pytest.mark.parametrize("seed", range(1, 5))
def test_steps_give_the_curve_at_every_sum_and_are_convex(seed: int) -> None:
    problem = problem_of(seed)
    steps_by_term = steps_by_share(problem)
    for term, steps in zip(problem.shares, steps_by_term, strict=True):
        sizes = np.concatenate(
            [problem.victims.gpus[term.victims], problem.offers.gpus[term.offers], problem.promotions.gpus[term.promotions]]
        ).tolist()
        slopes = [rise / gpus for gpus, rise, _ in steps]
        assert slopes == sorted(slopes)
        low = term.base - int(problem.victims.gpus[term.victims].sum())
        ends = np.cumsum([0] + [gpus for gpus, _, number in steps for _ in range(number)])
        rises = np.cumsum([0] + [rise for _, rise, number in steps for _ in range(number)])
        known = dict(zip(ends.tolist(), rises.tolist(), strict=True))
        assert len(sizes) <= MOST_MEMBERS
        assert list(known) == sums_of(sizes).tolist()
        assert all(term.curve.value(low) + rise == term.curve.value(low + gpus) for gpus, rise in known.items())


def test_many_members_keep_the_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allocator.models.greedy.steps.MOST_MEMBERS", 0)
    problem = problem_of(1)
    for term, steps in zip(problem.shares, steps_by_share(problem), strict=True):
        low = term.base - int(problem.victims.gpus[term.victims].sum())
        high = low + sum(gpus * number for gpus, _, number in steps)
        assert sum(rise * number for _, rise, number in steps) == term.curve.value(high) - term.curve.value(low)
        for gpus, rise, number in steps:
            assert number == 1
            middle = low + gpus // 2
            assert rise * (gpus // 2) == gpus * (term.curve.value(middle) - term.curve.value(low))
            low += gpus


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
