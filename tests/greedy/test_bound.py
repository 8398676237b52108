"""The bound of the relaxation with whole choices: no decision is better, and what it chooses is worth what it says."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from allocator.domain import Snapshot
from allocator.engine import allocate, portfolio
from allocator.entitlement import entitle
from allocator.epoch import compile_epoch, value_of
from allocator.generate import generate_snapshot
from allocator.models.cpsat import solver as reference
from allocator.models.greedy import bound, solver
from allocator.models.protocol import EngineResult, Limits, Status
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
    if result.solution is not None:
        assert result.value == value_of(problem, result.solution)
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
