"""Counts always become nodes: whatever the model allows can be laid out, keeps the rules, and is worth what the model says."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest
from ortools.sat.python import cp_model

from allocator.domain import InfeasibleError, Snapshot
from allocator.engine.last_pass import last_pass
from allocator.engine.plan import after_plan, plan_of
from allocator.engine.report import decision_of
from allocator.entitlement import Entitlement, entitle
from allocator.epoch import EpochProblem, EpochSolution, compile_epoch
from allocator.epoch.decode import decode_counts
from allocator.epoch.solution import value_of
from allocator.models.cpsat import solver as cpsat
from allocator.models.cpsat.variables import Variables
from allocator.models.protocol import Limits
from allocator.models.registry import EXACT_ENGINES, exact_engine
from allocator.verify import score_of, verify
from tests.builders import budget, job, node, nodes, running, snapshot
from tests.engines.epoch import Epoch
from tests.engines.layout import check_layout
from tests.engines.mixes import mixed_snapshot
from tests.engines.reports import plain_report
from tests.engines.scarce import scarce_snapshot
from tests.engines.seeds import FUZZ, chunks

ENOUGH = 20.0
"""Seconds for an exact engine, so many that a busy machine cuts no answer short: such an answer may break an afterthought."""

SEEDS = chunks(usual=40, long=4000, size=200 if FUZZ else 20)


def solver() -> cp_model.CpSolver:
    found = cp_model.CpSolver()
    found.parameters.num_workers = 1
    found.parameters.max_deterministic_time = 2.0
    return found


def any_point(problem: EpochProblem, rng: Random) -> tuple[EpochSolution, int] | None:
    """A decision that the model allows, far from any optimum, and what the model says it is worth."""
    model, variables = cpsat.build(problem)
    free = all_of(variables)
    model.clear_objective()  # type: ignore[no-untyped-call]
    model.maximize(cp_model.LinearExpr.weighted_sum(free, [rng.randint(-4, 9) for _ in free]))
    first = solver()
    if first.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    again, same = cpsat.build(problem)
    for one, other in zip(free, all_of(same), strict=True):
        again.add(other == first.value(one))
    second = solver()
    assert second.solve(again) == cp_model.OPTIMAL
    return cpsat._read(problem, variables, first), round(second.objective_value)


def all_of(variables: Variables) -> list[cp_model.IntVar]:
    """All variables that a decision is made of."""
    units = [variable for cells in variables.units for variable in cells.values()]
    return [*variables.start, *variables.stop, *variables.promote, *variables.count.values(), *units]


@pytest.mark.parametrize("seeds", SEEDS)
def test_whatever_the_model_allows_can_be_laid_out(seeds: range) -> None:
    starts = 0
    for seed in seeds:
        problem = compile_epoch(entitle(mixed_snapshot(seed)))
        for attempt in range(4):
            found = any_point(problem, Random(f"{seed}-{attempt}"))
            if found is not None:
                solution, value = found
                check_layout(problem, solution)
                assert value_of(problem, solution) == value, seed
                starts += len(solution.starts)
    assert starts > 4 * len(seeds)


@pytest.mark.parametrize("seeds", SEEDS)
def test_answers_are_laid_out_and_verified(seeds: range) -> None:
    merged = 0
    for seed in seeds:
        ent = entitle(mixed_snapshot(seed))
        problem = compile_epoch(ent)
        merged += bool(np.any(problem.classes.size > 1))
        results = [exact_engine(name)(problem, Limits(ENOUGH)) for name in EXACT_ENGINES]
        for result in results:
            assert result.solution is not None, (seed, result)
            check_layout(problem, result.solution)
            assert value_of(problem, result.solution) == result.value, (seed, result.engine)
            assert violations(ent, problem, result.solution) == [], (seed, result.engine)
        values = [result.value for result in results if result.value is not None]
        assert all(result.bound is None or result.bound <= min(values) for result in results), seed
    assert merged >= len(seeds) // 4, "classes of several nodes are what this is about"


def violations(ent: Entitlement, problem: EpochProblem, solution: EpochSolution) -> list[str]:
    """What the verifier says of an answer once the last pass has mended it."""
    plan = last_pass(ent, plan_of(problem, solution))
    decision = decision_of(ent, plan, "", plain_report(score_of(after_plan(ent, plan))), {})
    return [str(violation) for violation in verify(ent.snapshot, decision, ent).violations]


def classes(machines: list[object], works: list[object]) -> list[int]:
    """Sizes of the classes, the largest first."""
    return sorted(Epoch(snapshot(machines, [budget("a")], works)).problem.classes.size.tolist(), reverse=True)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((1, 2, 4, 8), [4]),
        ((8,), [4]),
        ((4, 16), [4]),
        ((3,), [1, 1, 1, 1]),
        ((1, 3), [1, 1, 1, 1]),
        ((4, 6), [1, 1, 1, 1]),
    ],
)
def test_nodes_are_merged_where_counts_decode(sizes: tuple[int, ...], expected: list[int]) -> None:
    """Sizes must be a chain of divisors, and divide a node that is wholly free, to tell how many nodes are broken up."""
    assert classes([*nodes(4)], [job(f"w{size}", gpus=size) for size in sizes]) == expected


def test_nodes_whose_cpus_may_run_out_first_stand_alone() -> None:
    """32 CPUs for 8 GPUs: 4 per GPU. Tasks that ask for no more than that leave the count of GPUs in charge."""
    machines = list(nodes(3, cpus=32))
    assert classes([*machines], [job("modest", gpus=2, cpus_per_task=8)]) == [3]
    assert classes([*machines], [job("hungry", gpus=2, cpus_per_task=9)]) == [1, 1, 1]


def test_nodes_with_one_resident_that_fills_them_are_merged() -> None:
    """A gang on two full nodes goes as a whole: they are one class. Two runs, or a part of a node, are not alike."""
    whole = running("gang", "a", {"n1": 1, "n2": 1}, 16, charged=False, min_runtime=0)
    part = running("gang", "a", {"n1": 1, "n2": 1}, 8, gpus_per_task=4, tasks=2, charged=False, min_runtime=0)
    apart = [running(f"own{i}", "a", {f"n{i}": 1}, charged=False, min_runtime=0) for i in (1, 2)]
    assert classes([*nodes(2)], [whole, job("new")]) == [2]
    assert classes([*nodes(2)], [part, job("new")]) == [1, 1]
    assert classes([*nodes(2)], [*apart, job("new")]) == [1, 1]


def test_racks_are_told_apart_only_where_somebody_cares() -> None:
    """A gang that needs one rack, a price of spread, or a rack that would be broken up make racks into cells."""
    machines = [node(f"n{i}", f"r{i % 2}") for i in range(4)]
    blocked = [running(f"old{i}", "a", {f"n{i}": 1}, 1, gpus_per_task=1) for i in range(4)]
    small, gang = job("w", gpus=1), job("gang", gpus=2, gpus_per_task=1, tasks=2, required="rack")
    assert classes([*machines], [small]) == [2, 2]
    assert len(Epoch(snapshot(machines, [budget("a")], [*blocked, small])).problem.cell_pool) == 1
    assert len(Epoch(snapshot(machines, [budget("a")], [*blocked, gang])).problem.cell_pool) == 2


def test_counts_that_do_not_fit_are_an_error() -> None:
    """Two units of 8 on one node: no model allows it, and if one did, it would be said."""
    epoch = Epoch(snapshot(nodes(1), [budget("a")], [job("w1"), job("w2")]))
    start = np.ones(len(epoch.problem.offers.work), dtype=np.int64)
    with pytest.raises(InfeasibleError, match=r"counts do not decode: no node of \[0\] has room"):
        decode_counts(epoch.problem, start, np.zeros(0, dtype=np.int64), {(0, 0): 2}, {})
    with pytest.raises(InfeasibleError, match="counts do not decode: no node left for shape 0"):
        decode_counts(epoch.problem, start, np.zeros(0, dtype=np.int64), {(0, 0): 1}, {})


@pytest.mark.parametrize(("kind", "seed"), [(mixed_snapshot, 108), (scarce_snapshot, 18), (scarce_snapshot, 29)])
def test_an_answer_within_the_gap_is_worth_what_it_says(kind: Callable[[int], Snapshot], seed: int) -> None:
    """CP-SAT calls it optimal, though what only measures stands higher than it has to: its bound would be lost for that."""
    problem = compile_epoch(entitle(kind(seed)))
    result = cpsat.solve(problem, Limits(ENOUGH, gap=500 * problem.step_gpus))
    assert result.solution is not None
    assert result.value == value_of(problem, result.solution)
    assert result.bound is not None
    assert result.bound <= result.value
