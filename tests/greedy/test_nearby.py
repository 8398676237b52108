"""Searches near a decision: what they leave open, that they find better ones, and that they leave nothing behind."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from allocator.entitlement import entitle
from allocator.epoch import compile_epoch, value_of
from allocator.epoch.problem import EpochProblem
from allocator.epoch.solution import EpochSolution
from allocator.generate import generate_snapshot
from allocator.models.greedy import bound, solver
from allocator.models.greedy.nearby import LARGE, Nearby
from allocator.models.greedy.relaxation import Relaxation
from allocator.models.protocol import EngineResult, Limits
from tests.engines.seeds import LIMIT

POOLS = 3


@cache
def problem() -> EpochProblem:
    return compile_epoch(entitle(generate_snapshot(gpus=2048, seed=3, pools=POOLS)))


@cache
def greedy() -> EngineResult:
    return solver.solve(problem(), Limits(0.0))


def guess() -> EpochSolution:
    """Greedy's decision, which is some way from the best."""
    found = greedy().solution
    assert found is not None
    return found


def near(answer: Callable[[], EpochSolution]) -> tuple[Nearby, Relaxation]:
    linear = Relaxation(problem(), merged=False)
    first = linear.solve({})
    assert first is not None
    return Nearby(problem(), linear, first, answer), linear


def pool_and_gpus() -> tuple[np.ndarray, np.ndarray]:
    """Of all choices."""
    offers, victims, promotions = problem().offers, problem().victims, problem().promotions
    pool = np.concatenate([offers.pool, victims.pool, promotions.pool])
    return pool, np.concatenate([offers.gpus, victims.gpus, promotions.gpus])


def test_what_stays_is_as_the_decision_has_it() -> None:
    searches, linear = near(guess)
    chosen = linear.choices_of(guess())
    for fixed in searches.parts():
        assert 0 < len(fixed) < len(chosen)
        assert all(chosen[column] == value for column, value in fixed.items())


def test_small_choices_of_one_pool_are_open_and_then_large_ones() -> None:
    searches, _ = near(guess)
    pool, gpus = pool_and_gpus()
    opened = [sorted(set(range(len(pool))) - fixed.keys()) for fixed in searches.parts()]
    assert len(opened) == 2 * POOLS + 1, "near the same decision nothing is searched again"
    assert [set(pool[part].tolist()) for part in opened[:POOLS]] == [{0}, {1}, {2}]
    assert all(gpus[part].max() < LARGE for part in opened[:POOLS])
    assert gpus[opened[POOLS]].max() >= LARGE
    for number, part in enumerate(opened[POOLS + 1 :]):
        assert set(pool[part].tolist()) == {number}
        assert set(part) >= set(np.flatnonzero((pool == number) & (gpus >= LARGE)).tolist())


def test_another_decision_is_searched_again() -> None:
    searches, _ = near(lambda: EpochSolution(starts=dict(guess().starts), stops=guess().stops, promotions=guess().promotions))
    left = [searches.left for _ in searches.parts()]
    assert left == [*range(POOLS, -1, -1), *range(2 * POOLS, -1, -1)]


def test_better_decisions_are_found_and_told() -> None:
    told: list[EngineResult] = []
    step = bound._Step(problem(), Limits(LIMIT, gap=problem().step_gpus), guess(), told.append)
    known = step.known
    assert step.begin()
    step._look_nearby()
    assert known.best is not None
    assert known.value == value_of(problem(), known.best)
    assert known.bound is not None
    assert known.bound >= (greedy().bound or 0), "classes of nodes are not merged here"
    # A fourth of what greedy left open, at least: it left 27 % of the cluster's time, and by now less than 4 % are left.
    assert known.distance < 0.75 * ((greedy().value or 0) - known.bound)
    values = [result.value for result in told if result.value is not None]
    assert values == sorted(values, reverse=True)
    assert values[-1] == known.value
    assert all(result.bound is None or result.bound <= known.value for result in told)


def test_a_search_of_a_part_leaves_nothing_behind() -> None:
    searches, _ = near(guess)
    used, new = Relaxation(problem(), merged=False), Relaxation(problem(), merged=False)
    gap = 0.05 * 1000 * problem().step_gpus
    _, part = used.solve_whole(LIMIT, gap, 0, guess(), fixed=next(searches.parts()))
    choices, proven = used.solve_whole(LIMIT, gap, 0, guess())
    expected, bound_of_new = new.solve_whole(LIMIT, gap, 0, guess())
    assert choices is not None
    assert expected is not None
    assert (choices.tolist(), proven) == (expected.tolist(), bound_of_new)
    assert part >= proven - gap, "a part can be no better than the whole"


def test_who_hears_enough_ends_the_search() -> None:
    relaxation = Relaxation(problem(), merged=False)
    heard: list[float] = []

    def enough(choices: object, proven: float) -> bool:
        heard.append(proven)
        return True

    relaxation.solve_whole(LIMIT, 0.0, 0, None, enough)
    assert len(heard) <= 2, "an answer may come together with the bound that ends it"


def test_without_a_guess_or_with_many_columns_nothing_is_searched_nearby(monkeypatch: pytest.MonkeyPatch) -> None:
    def unexpected(*_: object) -> None:
        raise AssertionError("there is no answer, or searches near it take too long")

    monkeypatch.setattr(bound._Step, "_look_nearby", unexpected)
    gap = round(0.05 * 1000 * problem().step_gpus)
    assert bound.solve(problem(), Limits(LIMIT, gap)).bound is not None
    monkeypatch.setattr(bound, "NEARBY_COLUMNS", 100)
    assert bound.solve(problem(), Limits(LIMIT, gap), guess()).bound is not None
