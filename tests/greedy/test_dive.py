"""Fractions rounded a few at a time: what is decided stays, all is whole in the end, and what that costs is looked at."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from allocator.entitlement import entitle
from allocator.epoch import compile_epoch, value_of
from allocator.epoch.problem import EpochProblem
from allocator.generate import generate_snapshot
from allocator.models.greedy import solver
from allocator.models.greedy.dive import MUCH, Dive
from allocator.models.greedy.ladder import large_ones
from allocator.models.greedy.relaxation import Fixed, Relaxation, Relaxed, values_of
from allocator.models.greedy.rounding import Rounding
from allocator.models.protocol import Limits
from tests.engines.seeds import LIMIT


def problem_of(gpus: int, seed: int) -> EpochProblem:
    return compile_epoch(entitle(generate_snapshot(gpus=gpus, seed=seed, pools=3)))


def down(problem: EpochProblem, linear: Relaxation, decided: Fixed, seconds: float = LIMIT) -> np.ndarray:
    found = Dive(problem, linear, time.monotonic() + seconds).down(decided)
    assert found is not None
    return found


@pytest.mark.parametrize("seed", [2, 3, 6])
def test_all_choices_are_whole_in_the_end_and_better_than_before(seed: int) -> None:
    problem = problem_of(2048, seed)
    linear, guess = Relaxation(problem, merged=False), solver.solve(problem, Limits(0.0)).solution
    assert guess is not None
    decided = values_of(linear.choices_of(guess), large_ones(problem, 100))
    first = linear.solve(decided)
    assert first is not None
    assert np.abs(first.chosen - np.round(first.chosen)).max() > 1e-6, "there is something to round"
    choices = down(problem, linear, decided)
    assert np.abs(choices - np.round(choices)).max() < 1e-6
    assert {k: round(choices[k]) for k in decided} == decided
    rounding = Rounding(problem)
    state = rounding.carry_out(choices)
    rounding.mend(state)
    assert first.value <= value_of(problem, state.solution())
    assert value_of(problem, state.solution()) <= value_of(problem, guess) + 0.002 * 1000 * problem.step_gpus


def test_it_is_deterministic() -> None:
    problem = problem_of(2048, 3)
    found = [down(problem, Relaxation(problem, merged=False), {}) for _ in range(2)]
    assert found[0].tolist() == found[1].tolist()


def test_without_time_the_fractions_are_handed_on() -> None:
    problem = problem_of(2048, 3)
    linear = Relaxation(problem, merged=False)
    first = linear.solve({})
    assert first is not None
    assert down(problem, linear, {}, seconds=-1.0).tolist() == first.chosen.tolist()


def test_what_cannot_be_gives_nothing() -> None:
    problem = problem_of(2048, 3)
    work, count = np.unique(problem.offers.work, return_counts=True)
    several = np.flatnonzero(problem.offers.work == work[count > 1][0])
    both = dict.fromkeys(several.tolist(), 1)
    assert Dive(problem, Relaxation(problem, merged=False), math.inf).down(both) is None


class Halves:
    """A relaxation in which all that is not fixed is a little more than a half, and what is fixed costs what a rule says."""

    def __init__(self, num_choices: int, cost: Callable[[Fixed], float | None]) -> None:
        self.num_choices, self._cost = num_choices, cost
        self.asked: list[dict[int, int]] = []

    def solve(self, fixed: Fixed) -> Relaxed | None:
        self.asked.append(dict(fixed))
        value = self._cost(fixed)
        chosen = np.array([float(fixed.get(k, 0.6)) for k in range(self.num_choices)])
        return None if value is None else Relaxed(value, chosen)


def dive_in_halves(cost: Callable[[float, Fixed], float | None]) -> tuple[np.ndarray, list[dict[int, int]]]:
    """The choices where these are the rules, and what was asked; the rule gets what a step may cost."""
    problem = problem_of(512, 1)
    num_choices = len(problem.offers.work) + len(problem.victims.work) + len(problem.promotions.work)
    halves = Halves(num_choices, lambda fixed: cost(MUCH * 1000 * problem.step_gpus, fixed))
    found = Dive(problem, halves, math.inf).down({})  # type: ignore[arg-type]
    assert found is not None
    return found, halves.asked


def test_the_nearer_whole_number_is_taken_and_many_at_once_where_that_costs_little() -> None:
    found, asked = dive_in_halves(lambda much, fixed: 0.0)
    assert found.tolist() == [1.0] * len(found)
    assert len(asked) < len(found) / 2
    assert sorted(map(len, asked)) == list(map(len, asked))


def test_fewer_are_rounded_at_once_where_many_cost_much() -> None:
    """Each costs a third of what a step may cost: so no step decides more than three."""
    found, asked = dive_in_halves(lambda much, fixed: len(fixed) * much / 3.1)
    assert found.tolist() == [1.0] * len(found)
    taken = [set(fixed) for fixed in asked]
    kept = [now for now, after in zip(taken, [*taken[1:], set(range(len(found)))], strict=True) if now <= after]
    assert max(len(after - now) for now, after in pairwise(kept)) <= 3


def test_the_other_whole_number_is_taken_where_it_is_cheaper() -> None:
    found, _ = dive_in_halves(lambda much, fixed: 2.0 * much * sum(fixed.values()))
    assert found.tolist() == [0.0] * len(found)


def test_the_other_whole_number_is_taken_where_the_nearer_cannot_be() -> None:
    found, _ = dive_in_halves(lambda much, fixed: None if sum(fixed.values()) > 2 else 0.0)
    assert found.sum() == 2.0
