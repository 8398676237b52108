"""Greedy on small generated snapshots: what it says a decision is worth, the rules it keeps by itself, and how good it is."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.entitlement import entitle
from allocator.epoch import EpochProblem, EpochSolution, compile_epoch, value_of
from allocator.epoch.afterthoughts import misplaced
from allocator.epoch.problem import lack_room
from allocator.epoch.solution import use_of_starts
from allocator.generate import generate_snapshot
from allocator.models.cpsat import solver as reference
from allocator.models.greedy import search, solver
from allocator.models.greedy.groups import pairs_of_equals
from allocator.models.greedy.objective import gain_of_keep, gain_of_start, loss_of_return, value_of_state
from allocator.models.greedy.placement import place
from allocator.models.greedy.relaxation import Relaxation
from allocator.models.greedy.rounding import Rounding
from allocator.models.greedy.search import Search
from allocator.models.greedy.variables import _invert
from allocator.models.protocol import Limits, Status
from tests.builders import budget, job, nodes, snapshot
from tests.engines.tiny_contract import tiny_contract

CASES = [(seed, pools) for seed in range(1, 5) for pools in (1, 3)]


@cache
def problem_of(seed: int, pools: int) -> EpochProblem:
    return compile_epoch(entitle(generate_snapshot(gpus=128, seed=seed, pools=pools)))


@cache
def answer_of(seed: int, pools: int) -> EpochSolution:
    result = solver.solve(problem_of(seed, pools), Limits(0.0))
    assert result.status is (Status.OPTIMAL if result.value == result.bound else Status.FEASIBLE)
    assert result.solution is not None
    assert result.value == value_of(problem_of(seed, pools), result.solution)
    return result.solution


@pytest.mark.parametrize(("seed", "pools"), CASES)
def test_the_value_of_a_state_is_that_of_its_solution(seed: int, pools: int) -> None:
    problem = problem_of(seed, pools)
    found = Relaxation(problem).solve({})
    assert found is not None
    rounding = Rounding(problem)
    for part in (0.0, 0.5, 1.0):
        state = rounding.carry_out(found.chosen * part)
        assert value_of_state(state, rounding.curves) == value_of(problem, state.solution())


@pytest.mark.parametrize(("seed", "pools"), CASES)
def test_steps_are_worth_what_the_objective_changes_by(seed: int, pools: int) -> None:
    problem, rounding = problem_of(seed, pools), Rounding(problem_of(seed, pools))
    found = Relaxation(problem).solve({})
    assert found is not None
    state = rounding.carry_out(found.chosen)
    singles = [
        j for j in state.starts if problem.offers.units[j] == 1 and not problem.whole_weight[list(state.starts[j])].any()
    ]
    for j in singles[:5]:
        before, loss = value_of_state(state, rounding.curves), loss_of_return(state, rounding.curves, j)
        placement = state.take_back(j)
        assert value_of_state(state, rounding.curves) - before == loss == gain_of_start(state, rounding.curves, j)
        state.start(j, placement)
        assert value_of_state(state, rounding.curves) == before
    for r in sorted(state.stopped)[:5]:
        before, gain = value_of_state(state, rounding.curves), gain_of_keep(state, rounding.curves, r)
        state.keep(r)
        assert before - value_of_state(state, rounding.curves) == gain
        state.stop(r)


@pytest.mark.parametrize(("seed", "pools"), CASES)
def test_the_answer_keeps_the_rules_that_nobody_repairs(seed: int, pools: int) -> None:
    problem, answer = problem_of(seed, pools), answer_of(seed, pools)
    offers, victims = problem.offers, problem.victims
    started, stopped = sorted(answer.starts), sorted(answer.stops)
    assert len(set(offers.work[started].tolist())) == len(started)
    free = problem.free.copy()
    for r in stopped:
        free[:, victims.nodes[r]] += victims.need[r]
    for j, placement in answer.starts.items():
        assert sum(placement.values()) == offers.units[j]
        for node, units in placement.items():
            assert problem.shapes.open_to[offers.shape[j], node]
            free[:, node] -= units * problem.shapes.need[:, offers.shape[j]]
    assert np.all(free >= 0)
    for row in problem.funding:
        promised = sum(int(offers.promise_cost[j]) for j in row.offers if j in answer.starts)
        promised += sum(int(problem.promotions.promise_cost[u]) for u in row.promotions if u in answer.promotions)
        assert promised <= row.available
    assert not misplaced(problem, answer)


def test_small_clusters_are_solved_almost_to_the_optimum() -> None:
    gaps = []
    for seed, pools in CASES:
        problem = problem_of(seed, pools)
        exact = reference.solve(problem, Limits(20.0))
        assert exact.status is Status.OPTIMAL
        assert exact.bound is not None
        gaps.append((value_of(problem, answer_of(seed, pools)) - exact.bound) / (1000 * problem.step_gpus))
    assert float(np.median(gaps)) <= 0.02
    assert max(gaps) <= 0.5


def test_the_same_problem_has_the_same_answer() -> None:
    again = solver.solve(problem_of(3, 3), Limits(0.0), guess=answer_of(1, 3)).solution
    assert again == answer_of(3, 3)


@pytest.mark.parametrize("seed", [1, 2])
def test_without_a_relaxation_free_gpus_are_filled(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Relaxation, "solve", lambda self, fixed: None)
    monkeypatch.setattr(Rounding, "exchange", lambda self, state: False)
    problem = problem_of(seed, 1)
    result = solver.solve(problem, Limits(0.0))
    assert result.solution is not None
    assert not result.solution.stops
    assert result.value is not None
    assert result.value <= 0


def test_nothing_waits() -> None:
    snapshot = generate_snapshot(gpus=64, seed=1)
    running = tuple(work for work in snapshot.workloads if work.run is not None)
    problem = compile_epoch(entitle(replace(snapshot, workloads=running)))
    assert len(problem.offers.work) == 0
    assert solver.solve(problem, Limits(0.0)).value == 0


def test_where_nothing_is_to_be_decided_the_search_finds_nothing() -> None:
    quiet = 0
    for seed in range(60):
        problem = compile_epoch(entitle(tiny_contract(seed)))
        if solver.nothing_to_decide(problem):
            quiet += 1
            search = Search(problem)
            search.run()
            assert search.best == EpochSolution()
            assert search.bound is None or search.bound <= 0
            assert solver.solve(problem, Limits(0.0)).bound == 0
    assert quiet > 3


def test_what_is_proven_is_not_searched_further(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound holds for every answer, and where it meets the answer nothing is exchanged any more."""
    exchanged: list[EpochProblem] = []

    def exchange(rounding: Rounding, state: object) -> bool:
        exchanged.append(rounding.problem)
        return False

    monkeypatch.setattr(Rounding, "exchange", exchange)
    proven = 0
    for seed in range(40):
        problem = compile_epoch(entitle(tiny_contract(seed)))
        search = Search(problem)
        search.run()
        if search.bound is None:
            continue
        assert search.bound <= search.value
        proven += search.bound == search.value
        assert search.bound < search.value or not any(problem is one for one in exchanged)
    assert proven >= 5


@given(st.lists(st.integers(0, 5), max_size=12), st.lists(st.integers(0, 5), max_size=12))
def test_pairs_of_equals_are_all_pairs(left: list[int], right: list[int]) -> None:
    first, second = pairs_of_equals(np.array(left, dtype=np.int64), np.array(right, dtype=np.int64))
    pairs = [(i, j) for i, one in enumerate(left) for j, other in enumerate(right) if one == other]
    assert list(zip(first.tolist(), second.tolist(), strict=True)) == pairs


@pytest.mark.parametrize("seed", range(3))
def test_a_state_knows_what_it_costs_after_every_step(seed: int) -> None:
    """Starts, stops and their undoing in a random order: the value is always that of the solution."""
    problem, rng = problem_of(seed + 1, 1), np.random.default_rng(seed)
    rounding = Rounding(problem)
    state = rounding.carry_out(np.zeros(len(problem.offers.work) + len(problem.victims.work) + len(problem.promotions.work)))
    for _ in range(60):
        r = int(rng.integers(len(problem.victims.work)))
        if r not in state.stopped:
            state.stop(r)
        elif state.fits(r):
            state.keep(r)
        j = int(rng.integers(len(problem.offers.work)))
        if j in state.starts:
            state.take_back(j)
        elif state.tables.work[j] not in state.started_work and (found := place(state, j)) is not None:
            state.start(j, found)
        assert value_of_state(state, rounding.curves) == value_of(problem, state.solution())


@pytest.mark.parametrize(("seed", "pools"), CASES)
def test_columns_are_counted_before_the_model_is_built(seed: int, pools: int) -> None:
    for merged in (True, False):
        relaxation = Relaxation(problem_of(seed, pools), merged=merged)
        assert relaxation._rows.num_columns == 0
        relaxation.build()
        built = relaxation._rows
        assert built.num_columns == relaxation.num_columns
        relaxation.build()
        assert relaxation._rows is built
        assert built.num_columns == relaxation.num_columns


def test_a_relaxation_with_too_many_columns_is_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MOST_COLUMNS", Relaxation(problem_of(1, 1)).num_columns - 1)
    monkeypatch.setattr(Relaxation, "build", lambda self: pytest.fail("is built"))
    found = Search(problem_of(1, 1))
    found.run()
    assert found.bound is None
    assert found.value < 0


@pytest.mark.parametrize(("seed", "pools"), CASES)
def test_who_lacks_room_and_what_starts_use_are_the_same_for_all_at_once_and_one_by_one(seed: int, pools: int) -> None:
    problem, starts = problem_of(seed, pools), answer_of(seed, pools).starts
    used = np.zeros_like(problem.free)
    for j, placement in starts.items():
        for node, units in placement.items():
            used[:, node] += units * problem.shapes.need[:, problem.offers.shape[j]]
    assert np.array_equal(use_of_starts(problem, starts), used)
    for room in (problem.free, problem.capacity - 4, problem.capacity - used):
        one_by_one = [
            bool((room[:, nodes] < need).any()) for nodes, need in zip(problem.victims.nodes, problem.victims.need, strict=True)
        ]
        assert lack_room(problem.victims, room).tolist() == one_by_one


@given(st.lists(st.sets(st.integers(0, 9)), max_size=6))
def test_groups_by_member(groups: list[set[int]]) -> None:
    found = _invert([np.array(sorted(own), dtype=np.int64) for own in groups], 10)
    assert found == [tuple(index for index, own in enumerate(groups) if member in own) for member in range(10)]


@pytest.mark.parametrize("tied", ["t", "T"])
def test_what_needs_one_rack_is_placed_before_larger_work_breaks_all_of_them(tied: str) -> None:
    # Largest first, 5 nodes of one rack of 6 would be taken and 4 of the other: 3 in one rack would find no place.
    gangs = [job("u", gpus=40), job("v", gpus=32), job(tied, gpus=24, required="rack")]
    problem = compile_epoch(entitle(snapshot(nodes(12, per_rack=6), [budget("a")], gangs)))
    all_of_them = np.zeros(len(problem.offers.work) + len(problem.victims.work) + len(problem.promotions.work))
    all_of_them[np.flatnonzero(problem.offers.charged)] = 1.0
    assert len(Rounding(problem).carry_out(all_of_them).starts) == len(gangs)
