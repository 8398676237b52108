"""What the MILP engine claims: values to the unit, bounds that hold, and nothing that it has not proven."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import highspy
import pulp
import pytest

from allocator.domain import Snapshot
from allocator.engine import allocate
from allocator.entitlement import entitle
from allocator.epoch import EpochProblem, EpochSolution, compile_epoch, value_of
from allocator.generate import generate_snapshot
from allocator.models.milp import solver as milp
from allocator.models.milp.highs import solve_rows
from allocator.models.milp.objective import LARGEST_COEFFICIENT
from allocator.models.protocol import Limits, Status
from allocator.verify import verify
from tests.builders import budget, job, nodes, running, snapshot, weights
from tests.engines.tiny import tiny_snapshot
from tests.milp.fixing import milp_value

LIMITS = Limits(60.0)


def mixed(seed: int = 0, gpus: int = 64) -> EpochProblem:
    return compile_epoch(entitle(generate_snapshot(gpus=gpus, seed=seed)))


def one_job() -> Snapshot:
    """An empty node and one job for it: starting is worth an hour of 8 idle GPUs, and 0.001 of it for the order."""
    return snapshot(nodes(1), [budget("a")], [job("new")])


def test_the_value_is_that_of_the_decision() -> None:
    """8 GPUs times 3,600 s times 1.001, in 1/1000 GPU-second."""
    result = milp.solve(compile_epoch(entitle(one_job())), LIMITS)
    assert (result.status, result.value, result.bound) == (Status.OPTIMAL, -28_828_800, -28_828_800)
    assert result.solution is not None
    assert list(result.solution.starts.values()) == [{0: 1}]


def test_keep_is_worth_nothing_whatever_the_constants() -> None:
    """Curves, spread and broken nodes leave constants that HiGHS never sees."""
    for seed in range(20):
        problem = compile_epoch(entitle(tiny_snapshot(seed)))
        assert value_of(problem, EpochSolution()) == 0
        assert milp_value(problem, EpochSolution()) in (None, pytest.approx(0, abs=0.01))
        constants = milp.build(problem).objective.constant
        assert isinstance(constants, int)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_claimed_holds(seed: int) -> None:
    problem = mixed(seed)
    result = milp.solve(problem, LIMITS)
    assert result.solution is not None
    assert result.value == value_of(problem, result.solution) == result.bound
    assert result.status is Status.OPTIMAL
    assert result.note == ""


def test_the_same_seed_gives_the_same_answer() -> None:
    problem = mixed(1)
    first, second = (milp.solve(problem, Limits(60.0, seed=7)) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("gap", [1, 10**7, 10**9, 10**12])
def test_a_gap_is_kept(gap: int) -> None:
    """The bound stays below the optimum, however early the search may stop; optimal means within the gap."""
    problem = mixed(2)
    best = milp.solve(problem, LIMITS).value
    result = milp.solve(problem, replace(LIMITS, gap=gap))
    assert best is not None
    assert result.value is not None
    assert result.bound is not None
    assert result.bound <= best <= result.value <= result.bound + gap
    assert result.status is Status.OPTIMAL


def test_coefficients_are_scaled_exactly() -> None:
    """By a power of two, so that no cost changes."""
    model = milp.build(mixed())
    unit, scaled = model.objective.unit, list(model.rows.objective.values())
    assert unit & (unit - 1) == 0
    assert max(map(abs, scaled)) < LARGEST_COEFFICIENT
    assert all((Fraction(value) * unit).denominator == 1 for value in scaled)


def test_an_objective_beyond_exactness_is_refused() -> None:
    snap = snapshot(nodes(1), [budget("a")], [job("new")], weights=weights(idle=10**9))
    with pytest.raises(OverflowError, match="lower the weights"):
        milp.build(compile_epoch(entitle(snap)))


def test_an_epoch_without_choices() -> None:
    """Nothing waits and nothing may stop: HiGHS gets an empty model, and keep is proven."""
    result = milp.solve(compile_epoch(entitle(snapshot(nodes(1), [budget("a")]))), LIMITS)
    assert (result.status, result.value, result.bound) == (Status.OPTIMAL, 0, 0)


def test_no_time() -> None:
    result = milp.solve(mixed(), Limits(0.0))
    assert (result.status, result.solution, result.bound) == (Status.UNKNOWN, None, None)
    assert "no time left" in result.note


def test_cut_short() -> None:
    """Whatever it has by then holds."""
    problem = mixed(3, gpus=1024)
    best = milp.solve(problem, LIMITS)
    for seconds in (0.05, 0.1, 0.2):
        result = milp.solve(problem, Limits(seconds))
        assert result.bound is None or best.value is None or result.bound <= best.value
        assert result.solution is None or result.value == value_of(problem, result.solution)
        assert result.status in (Status.UNKNOWN, Status.FEASIBLE, Status.OPTIMAL)


def test_a_model_that_allows_nothing_is_called_infeasible(monkeypatch: pytest.MonkeyPatch) -> None:
    build = milp.build

    def closed(*given: Any) -> milp.Model:
        model = build(*given)
        model.rows.addConstraint(pulp.lpSum(model.variables.start) >= 1)
        model.rows.addConstraint(pulp.lpSum(model.variables.start) <= 0)
        return model

    monkeypatch.setattr(milp, "build", closed)
    result = milp.solve(compile_epoch(entitle(one_job())), LIMITS)
    assert (result.status, result.solution, result.bound) == (Status.INFEASIBLE, None, None)


def test_a_bound_above_the_value_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(milp, "_bound", lambda model: 0)
    result = milp.solve(compile_epoch(entitle(one_job())), LIMITS)
    assert (result.status, result.value, result.bound) == (Status.FEASIBLE, -28_828_800, None)
    assert "lies above the value" in result.note


def test_integers_that_break_a_row_are_no_solution(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if HiGHS had let a start slip by without units that run."""
    rounded = milp._round

    def slip(model: milp.Model) -> None:
        rounded(model)
        model.variables.start[0].varValue = 0

    monkeypatch.setattr(milp, "_round", slip)
    result = milp.solve(compile_epoch(entitle(one_job())), LIMITS)
    assert (result.status, result.solution) == (Status.UNKNOWN, None)
    assert "breaks a row" in result.note


def test_the_tolerance_covers_what_moves_and_stays_below_a_unit() -> None:
    model = milp.build(mixed(1, gpus=1024))
    slack = milp.tolerance(model)
    moves = sum(variable.upBound for variable in model.rows.variables())
    assert model.objective.unit * milp.DUAL_TOLERANCE * moves < slack < Fraction(1, 2)


def test_an_option_that_highs_does_not_know_is_an_error() -> None:
    model = milp.build(compile_epoch(entitle(one_job())))
    with pytest.raises(ValueError, match="no_such_option"):
        solve_rows(model.rows, {"no_such_option": 1}, {})


def test_options_reach_highs() -> None:
    model = milp.build(compile_epoch(entitle(one_job())))
    milp.run(model, seconds=9.0, gap=10**6, seed=5)
    known = {"threads": 1, "random_seed": 5, "time_limit": 9.0, "mip_rel_gap": 0.0, "output_flag": False}
    known["mip_feasibility_tolerance"] = milp.PRIMAL_TOLERANCE
    assert {name: model.rows.solverModel.getOptionValue(name)[1] for name in known} == known
    assert model.rows.solverModel.getOptionValue("mip_abs_gap")[1] * model.objective.unit == pytest.approx(10**6 + 1, abs=0.01)


def test_highs_runs_with_one_thread_whatever_ran_before() -> None:
    """A pool of threads started by somebody else would make HiGHS refuse."""
    other = highspy.Highs()  # type: ignore[no-untyped-call]
    other.setOptionValue("output_flag", False)
    other.setOptionValue("threads", 2)
    other.addVar(0.0, 1.0)
    assert other.run() == highspy.HighsStatus.kOk
    result = milp.solve(compile_epoch(entitle(one_job())), LIMITS)
    assert result.status is Status.OPTIMAL
    assert other.run() == highspy.HighsStatus.kOk


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    milp.solve(compile_epoch(entitle(one_job())), LIMITS)
    assert tuple(capfd.readouterr()) == ("", "")


def test_the_engine_by_name() -> None:
    works = [running("old", "a", {"n1": 1}), job("new", "b")]
    snap = snapshot(nodes(1), [budget("a"), budget("b")], works)
    answer = allocate(snap, engine="milp", time_limit=60.0)
    assert answer.solver.notes == ()
    assert (answer.solver.status, answer.solver.objective) == ("optimal", answer.solver.bound)
    assert verify(snap, answer).ok
