"""The bound of the relaxation with whole choices: no decision is better, and what it chooses is worth what it says."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from allocator.domain import Snapshot
from allocator.engine import allocate, portfolio
from allocator.entitlement import entitle
from allocator.epoch import EpochSolution, compile_epoch, value_of
from allocator.generate import generate_snapshot
from allocator.models.cpsat import solver as reference
from allocator.models.greedy import bound, solver
from allocator.models.protocol import EngineResult, Limits, Status
from allocator.models.registry import EXACT_ENGINES, LADDER, exact_engine
from tests.engines.mixes import mixed_snapshot
from tests.engines.scarce import scarce_snapshot
from tests.engines.seeds import LIMIT, chunks
from tests.engines.tiny import tiny_snapshot
from tests.engines.tiny_contract import tiny_contract
from tests.engines.tiny_moves import tiny_moves

KINDS = [tiny_snapshot, tiny_contract, tiny_moves, mixed_snapshot, scarce_snapshot]


def bounded(snapshot: Snapshot) -> bool:
    """Check the bound against the reference model; whether the step chose as well as that."""
    problem = compile_epoch(entitle(snapshot))
    guess = solver.solve(problem, Limits(0.0)).solution
    told: list[EngineResult] = []
    result = bound.solve(problem, Limits(LIMIT), guess, told.append)
    best = reference.solve(problem, Limits(LIMIT), guess, told.append)
    assert best.status is Status.OPTIMAL
    assert best.value is not None
    assert result.bound is not None
    assert result.bound <= best.value
    assert all(news.bound is None or news.bound <= best.value for news in told)
    assert all(news.solution is None or news.value == value_of(problem, news.solution) for news in told)
    first = bound.descend(problem, Limits(LIMIT), guess, told.append)
    assert first.bound is None or first.bound <= best.value  # None where the model is empty
    for found in (result, first):
        if found.solution is not None:
            assert found.value == value_of(problem, found.solution)
    assert all(news.bound is None or news.bound <= best.value for news in told)
    return result.value == best.value


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("seeds", chunks(usual=60, long=3000, size=500))
def test_no_decision_is_better_than_the_bound(kind: Callable[[int], Snapshot], seeds: range) -> None:
    as_good = [bounded(kind(seed)) for seed in seeds]
    assert sum(as_good) >= (0.6 if kind is scarce_snapshot else 0.7) * len(as_good)


@pytest.mark.parametrize(
    ("family", "gpus", "seed"), [("bound", 1024, 2), ("odd", 2048, 2), ("nvl72", 2304, 4), ("nvl72", 2304, 9)]
)
def test_hard_places_are_bounded_closely(family: str, gpus: int, seed: int) -> None:
    """CPUs, sizes and segments: the relaxation of sums was 5 to 200 % of the cluster's time off, and CP-SAT is in a minute."""
    problem = compile_epoch(entitle(generate_snapshot(family=family, gpus=gpus, seed=seed)))
    assert bound.pays(problem)
    assert bound.placing_is_hard(problem)
    guess = solver.solve(problem, Limits(0.0)).solution
    result = bound.solve(problem, Limits(LIMIT, gap=2 * problem.step_gpus), guess)
    assert result.value is not None
    assert result.bound is not None
    assert 0 <= result.value - result.bound <= 0.005 * 1000 * problem.step_gpus


@pytest.mark.parametrize(("family", "gpus", "pays"), [("bound", 64, False), ("mixed", 1024, False), ("nvl72", 1152, True)])
def test_it_pays_where_places_are_hard_or_choices_many(family: str, gpus: int, pays: bool) -> None:
    problem = compile_epoch(entitle(generate_snapshot(family=family, gpus=gpus, seed=1)))
    assert bound.pays(problem) == pays
    assert bound.placing_is_hard(problem) == (family != "mixed")


@pytest.mark.parametrize(
    ("pools", "distance", "gap", "steps"),
    [(1, 0.5, 0, ()), (1, 0.01, 1, (LADDER,)), (3, 0.5, 0, (LADDER,)), (3, 0.01, 0, ()), (3, 0.01, 1, (LADDER,))],
)
def test_the_first_part_alone_is_asked_where_it_is_far_to_the_bound_or_a_gap_is_enough(
    pools: int, distance: float, gap: int, steps: tuple[str, ...]
) -> None:
    problem = compile_epoch(entitle(generate_snapshot(gpus=1024, seed=2, pools=pools)))
    assert not bound.pays(problem)
    least = -round(distance * 1000 * problem.step_gpus)
    answers = portfolio.Answers(problem, [EngineResult("greedy", Status.FEASIBLE, EpochSolution(), 0, least)])
    assert tuple(portfolio._exact("portfolio", answers, gap)) == (*steps, *EXACT_ENGINES)
    assert tuple(portfolio._exact("cp-sat", answers, gap)) == ("cp-sat",)


@pytest.mark.parametrize("seed", [2, 7, 9])
def test_the_first_part_alone_finds_most_of_what_the_whole_step_finds(seed: int) -> None:
    problem = compile_epoch(entitle(generate_snapshot(gpus=1024, seed=seed, pools=3)))
    greedy = solver.solve(problem, Limits(0.0))
    found = exact_engine(LADDER)(problem, Limits(LIMIT), greedy.solution)
    assert greedy.value is not None
    assert greedy.bound is not None
    assert found.value is not None
    assert found.bound is not None
    assert 0 <= found.value - found.bound <= 0.1 * (greedy.value - greedy.bound)


def test_exact_engines_get_a_part_of_the_time_where_they_are_good() -> None:
    easy, hard = (compile_epoch(entitle(generate_snapshot(family=own, gpus=256, seed=1))) for own in ("mixed", "bound"))
    assert portfolio._bound_share(easy, 5.0) == portfolio.BOUND_SHARE
    assert portfolio._bound_share(easy, 0.01) == portfolio._bound_share(hard, 5.0) == 1.0


@pytest.mark.parametrize("pools", [1, 3])
def test_the_bound_is_close_where_clusters_are_large(pools: int) -> None:
    problem = compile_epoch(entitle(generate_snapshot(gpus=2048, seed=3, pools=pools)))
    assert bound.pays(problem) == (pools == 3)
    result = bound.solve(problem, Limits(LIMIT, gap=problem.step_gpus))
    assert result.value is not None
    assert result.bound is not None
    assert 0 <= result.value - result.bound <= 0.01 * 1000 * problem.step_gpus
    assert result.value <= (solver.solve(problem, Limits(0.0)).value or 0) + problem.step_gpus


def test_a_gap_that_the_bound_proves_needs_no_exact_engine() -> None:
    snapshot = generate_snapshot(gpus=2048, seed=3, pools=3)
    decision = allocate(snapshot, time_limit=LIMIT, gap=0.05)
    assert decision.solver.gap is not None
    assert 0 <= decision.solver.gap <= 0.05
    assert (decision.solver.rung, decision.solver.engine, decision.solver.status) == ("exact", "greedy", "optimal")
    assert "bound" in decision.timing
    assert "cp-sat" not in decision.timing


def test_nothing_in_time_is_no_bound() -> None:
    problem = compile_epoch(entitle(generate_snapshot(gpus=1024, seed=3, pools=3)))
    result = bound.solve(problem, Limits(0.0))
    assert result.solution is None or result.value == value_of(problem, result.solution)
    assert result.status in (Status.UNKNOWN, Status.FEASIBLE)


@pytest.mark.parametrize("kind", [tiny_snapshot, tiny_contract, tiny_moves], ids=lambda kind: kind.__name__)
def test_its_answers_keep_the_rules(kind: Callable[[int], Snapshot], monkeypatch: pytest.MonkeyPatch) -> None:
    """What the verifier refuses is noted; small epochs get the step here as large ones do."""
    monkeypatch.setattr(portfolio, "pays", lambda problem: True)
    for seed in range(25):
        decision = allocate(kind(seed), time_limit=LIMIT)
        assert decision.solver.notes == ()


def test_beside_a_giant_what_is_small_is_searched_in_one_pool() -> None:
    """Rounded, it stays 9 % of the cluster's time behind: four giants leave few ways for the rest to fit."""
    problem = compile_epoch(entitle(generate_snapshot(gpus=4000, seed=4, family="giant")))
    guess = solver.solve(problem, Limits(0.0)).solution
    found = bound.descend(problem, Limits(LIMIT, gap=problem.step_gpus), guess)
    assert found.value is not None
    assert found.bound is not None
    assert found.value - found.bound <= problem.step_gpus, "0.1 % of the cluster's time"
