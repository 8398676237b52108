"""Two searches at once: the same is heard in the same order as if one had followed the other, whoever is quicker."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable

import numpy as np
import pytest

from allocator.entitlement import entitle
from allocator.epoch import compile_epoch
from allocator.generate import generate_snapshot
from allocator.models.greedy import bound, solver
from allocator.models.greedy.beside import num_cores, one_beside
from allocator.models.greedy.news import FloatArray
from allocator.models.greedy.relaxation import Heard, Relaxation
from allocator.models.protocol import EngineResult, Limits
from tests.engines.seeds import LIMIT

CHOICES = np.ones(1)

Course = Callable[[threading.Event, threading.Event], tuple[Callable[[], None], Callable[[], None]]]


def second_is_quicker(begun: threading.Event, ended: threading.Event) -> tuple[Callable[[], None], Callable[[], None]]:
    """What the first and the second do on their way where both run: the first waits for the end of the second."""
    return lambda: _wait(ended), lambda: None


def first_is_quicker(begun: threading.Event, ended: threading.Event) -> tuple[Callable[[], None], Callable[[], None]]:
    return lambda: None, lambda: _wait(begun)


def _wait(event: threading.Event) -> None:
    assert event.wait(LIMIT)


def course(which: Course, cores: int, enough_at: float, enough_after_first: bool = False) -> tuple[list[float | str], bool]:
    """What happened, in the order in which it is taken in, and whether the second gave anything."""
    first_over, second_over = threading.Event(), threading.Event()
    on_way, before = which(first_over, second_over) if cores > 1 else (lambda: None, lambda: None)
    taken: list[float | str] = []

    def first() -> None:
        on_way()
        taken.append("first")
        first_over.set()

    def second(heard: Heard) -> FloatArray:
        before()
        for bound_ in (1.0, 2.0, 3.0):
            if heard(CHOICES, bound_):
                break
        second_over.set()
        return CHOICES

    def heard(choices: FloatArray | None, told: float) -> bool:
        taken.append(told)
        return told >= enough_at

    given = one_beside(first, second, heard, lambda: enough_after_first, cores)
    return taken, given is not None


@pytest.mark.parametrize("which", [second_is_quicker, first_is_quicker])
@pytest.mark.parametrize(("enough_at", "expected"), [(1.0, 1), (2.0, 2), (9.0, 3)])
def test_what_is_taken_in_does_not_depend_on_who_is_quicker(which: Course, enough_at: float, expected: int) -> None:
    alone = course(which, 1, enough_at)
    assert alone == (["first", 1.0, 2.0, 3.0][: expected + 1], enough_at > 3.0)
    assert course(which, 2, enough_at) == alone


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("which", [second_is_quicker, first_is_quicker])
def test_nothing_is_heard_where_the_first_was_enough(which: Course, cores: int) -> None:
    assert course(which, cores, 9.0, enough_after_first=True) == (["first"], False)


@pytest.mark.parametrize("cores", [1, 2])
def test_what_the_second_raises_is_raised(cores: int) -> None:
    def broken(heard: Heard) -> FloatArray:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        one_beside(lambda: None, broken, lambda choices, told: False, lambda: False, cores)


def test_what_the_first_raises_ends_the_second() -> None:
    begun, ended = threading.Event(), threading.Event()

    def first() -> None:
        _wait(begun)
        raise ValueError("broken")

    def second(heard: Heard) -> FloatArray:
        begun.set()
        while not heard(None, 0.0):
            pass
        ended.set()
        return CHOICES

    def heard(choices: FloatArray | None, told: float) -> bool:
        raise AssertionError("nobody hears it")

    with pytest.raises(ValueError, match="broken"):
        one_beside(first, second, heard, lambda: False, 2)
    assert ended.is_set()


def test_there_is_a_core() -> None:
    assert num_cores() >= 1


@pytest.mark.parametrize("columns", [0, bound.NEARBY_COLUMNS])
@pytest.mark.parametrize(("seed", "share"), [(3, 0.0005), (6, 0.002)])
def test_the_bound_step_answers_the_same_on_one_core_and_on_two(
    columns: int, seed: int, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both where all is searched beside what is rounded, as at size, and beside searches near the answer."""
    monkeypatch.setattr(bound, "NEARBY_COLUMNS", columns)
    monkeypatch.setattr(bound, "ROUNDING_SHARE", float("inf"))
    problem = compile_epoch(entitle(generate_snapshot(gpus=2048, seed=seed, pools=3)))
    guess = solver.solve(problem, Limits(0.0)).solution
    found: list[EngineResult] = []
    for cores in (1, 2, 2):
        monkeypatch.setattr(bound, "num_cores", lambda cores=cores: cores)
        found.append(bound.solve(problem, Limits(LIMIT, round(share * 1000 * problem.step_gpus)), guess))
    assert found[0].bound is not None
    assert found[0].value is not None
    assert found[1] == found[0]
    assert found[2] == found[0]


def test_no_model_outlives_its_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child serves one problem after another: what the search of one tells must not hold its model, some 200 MB at size."""
    made: list[weakref.ref[Relaxation]] = []

    class Watched(Relaxation):
        def build(self) -> None:
            made.append(weakref.ref(self))
            super().build()

    monkeypatch.setattr(bound, "Relaxation", Watched)
    monkeypatch.setattr(bound, "NEARBY_COLUMNS", 0)
    problem = compile_epoch(entitle(generate_snapshot(gpus=1024, seed=3, pools=3)))
    guess = solver.solve(problem, Limits(0.0)).solution
    bound.solve(problem, Limits(LIMIT, round(0.002 * 1000 * problem.step_gpus)), guess)
    gc.collect()
    assert made
    assert [model() for model in made if model() is not None] == []
