"""MILP and CP-SAT on instances of all families: the same optimum, or each bound within the other's value."""

from __future__ import annotations

import pytest

from allocator.entitlement import entitle
from allocator.epoch import EpochProblem, compile_epoch
from allocator.epoch.afterthoughts import misplaced, overlooked
from allocator.generate import FAMILIES, generate_snapshot
from allocator.models.cpsat import solver as cpsat
from allocator.models.milp import solver as milp
from allocator.models.protocol import EngineResult, Limits, Status
from tests.engines.tiny import tiny_snapshot

SLOW = {"bound", "queue", "fleet"}
"""Families that take seconds where others take hundredths."""

QUICK = [(family, 64, 1) for family in FAMILIES]
QUICK += [(family, gpus, 0) for family in FAMILIES if family not in SLOW for gpus in (64, 256)]

THOROUGH = [
    (family, gpus, seed) for family in FAMILIES for gpus, seeds in ((64, 9), (256, 6), (512, 4)) for seed in range(seeds)
]

SECONDS = 60.0


def check(problem: EpochProblem) -> bool:
    """Compare both engines; returns whether both have proven their answer."""
    ours, theirs = milp.solve(problem, Limits(SECONDS)), cpsat.solve(problem, Limits(SECONDS))
    assert ours.note == ""
    for one, other in ((ours, theirs), (theirs, ours)):
        assert one.status in (Status.OPTIMAL, Status.FEASIBLE, Status.UNKNOWN)
        if one.bound is not None and other.value is not None and keeps_afterthoughts(problem, other):
            assert one.bound <= other.value, (one.engine, one.bound, other.value)
    proven = ours.status == theirs.status == Status.OPTIMAL
    assert not proven or ours.value == theirs.value
    return proven


def keeps_afterthoughts(problem: EpochProblem, result: EngineResult) -> bool:
    """False for an answer cut short before the rules that it breaks could be stated."""
    return result.solution is not None and not (overlooked(problem, result.solution) or misplaced(problem, result.solution))


@pytest.mark.parametrize(("family", "gpus", "seed"), QUICK)
def test_same_optimum(family: str, gpus: int, seed: int) -> None:
    problem = compile_epoch(entitle(generate_snapshot(family=family, gpus=gpus, seed=seed)))
    assert check(problem)


@pytest.mark.fuzz
@pytest.mark.parametrize(("family", "gpus", "seed"), THOROUGH)
def test_same_optimum_or_each_bound_within_the_value_of_the_other(family: str, gpus: int, seed: int) -> None:
    check(compile_epoch(entitle(generate_snapshot(family=family, gpus=gpus, seed=seed))))


@pytest.mark.parametrize("first", range(0, 80, 40))
def test_same_optimum_of_tiny_epochs(first: int) -> None:
    for seed in range(first, first + 40):
        assert check(compile_epoch(entitle(tiny_snapshot(seed)))), seed
