"""The yardstick measures the same thing: its optimum is that of the product, unless it leaves a rule out."""

from __future__ import annotations

from pathlib import Path

import pytest

from allocator.engine import allocate
from allocator.entitlement import entitle
from allocator.generate import generate_snapshot
from allocator.verify import verify
from allocator.wire import load_snapshot
from benchmarks.naive import solve_naive
from tests.engines.tiny import tiny_snapshot
from tests.engines.tiny_moves import tiny_moves

INSTANCES = Path(__file__).resolve().parents[2] / "instances"
NOT_STATED = {"charged_first", "minimal", "work_conservation", "unallocated_last"}


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_the_naive_optimum_agrees(first: int) -> None:
    """The yardstick knows no reservations: epochs in which one holds are not compared."""
    agreed = compared = 0
    for seed in range(first, first + 10):
        snapshot = tiny_snapshot(seed)
        if entitle(snapshot).reserved:
            continue
        compared += 1
        naive, ours = solve_naive(snapshot, 10.0, 0), allocate(snapshot, time_limit=10.0)
        broken = set(verify(snapshot, naive).broken)
        assert broken <= NOT_STATED, seed
        assert naive.solver.status == "optimal"
        assert naive.solver.objective <= ours.solver.objective, seed
        if not broken and ours.solver.status == "optimal":
            assert naive.solver.objective == ours.solver.objective, seed
            agreed += 1
    assert compared >= 5
    assert agreed >= compared - 2


def test_it_moves_work_as_well() -> None:
    moved = 0
    for seed in range(8):
        snapshot = tiny_moves(seed)
        if entitle(snapshot).reserved:
            continue
        naive, ours = solve_naive(snapshot, 10.0, 0), allocate(snapshot, time_limit=10.0)
        assert set(verify(snapshot, naive).broken) <= NOT_STATED, seed
        assert naive.solver.objective <= ours.solver.objective, seed
        moved += any(row.reason == "relocate" for row in naive.preemptions)
    assert moved


def test_where_a_reservation_holds_it_claims_nothing() -> None:
    snapshot = load_snapshot(INSTANCES / "situations" / "staggered-promises" / "snapshot.json")
    naive = solve_naive(snapshot, 10.0, 0)
    assert (naive.solver.status, naive.solver.bound, naive.solver.gap) == ("feasible", None, None)


def test_it_agrees_on_an_afternoon_as_well() -> None:
    snapshot = generate_snapshot(gpus=64, seed=1)
    naive, ours = solve_naive(snapshot, 20.0, 0), allocate(snapshot, time_limit=20.0)
    assert verify(snapshot, naive).broken == ()
    assert naive.solver.objective == ours.solver.objective
    assert naive.solver.bound == naive.solver.objective


def test_without_time_it_keeps_everything() -> None:
    naive = solve_naive(generate_snapshot(gpus=256, seed=1), 0.0, 0)
    assert set(naive.timing) == {"entitle", "build", "solve"}
    assert naive.solver.bound is None or naive.solver.bound <= naive.solver.objective
