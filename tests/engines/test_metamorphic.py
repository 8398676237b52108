"""What must not matter does not: order, names, units of weight, idle vertices, the origin of the clock, earlier calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cache
from random import Random
from typing import TypeVar

import pytest

from allocator.domain import Allocation, Decision, Snapshot, UsageRecord, Workload
from allocator.engine import ENGINES, allocate
from allocator.generate import generate_snapshot
from allocator.models.process import shared_process
from allocator.models.registry import EXACT_ENGINES
from allocator.wire import encode_decision, snapshot_digest
from tests.engines.seeds import FUZZ, LIMIT, chunks
from tests.engines.tiny import tiny_snapshot

T = TypeVar("T")

TIMES = 20 if FUZZ else 1
"""Tiny snapshots for each property, in units of the usual number."""

pytestmark = [pytest.mark.fuzz] if FUZZ else []

SIZES = {"mixed": 128, "odd": 128, "drain": 128, "contract": 128}
"""Families of generated snapshots, and GPUs at which every engine proves its answer in a second or two."""


@cache
def given(name: str | int) -> Snapshot:
    """A tiny snapshot by seed, or a generated one by family."""
    return tiny_snapshot(name) if isinstance(name, int) else generate_snapshot(family=name, gpus=SIZES[name], seed=2)


@cache
def decided(name: str | int, engine: str) -> Decision:
    """What an engine makes of it."""
    return solve(given(name), engine)


def solve(snapshot: Snapshot, engine: str) -> Decision:
    return replace(allocate(snapshot, engine=engine, time_limit=LIMIT), timing={})


def undated(decision: Decision) -> Decision:
    """Without what names the snapshot: another spelling of the same facts has another digest."""
    return replace(decision, snapshot="")


def shuffled(items: tuple[T, ...], rng: Random) -> tuple[T, ...]:
    return tuple(rng.sample(items, len(items)))


def turned(mapping: Mapping[str, T]) -> dict[str, T]:
    """The same mapping, its keys in the opposite order."""
    return dict(reversed(list(mapping.items())))


def shuffle(snapshot: Snapshot) -> Snapshot:
    """The same facts in another order."""
    rng = Random(snapshot.now + len(snapshot.workloads))

    def work(row: Workload) -> Workload:
        run = replace(row.run, placement=turned(row.run.placement)) if row.run else None
        stopped = row.stopped
        if stopped is not None and stopped.placement is not None:
            stopped = replace(stopped, placement=turned(stopped.placement))
        labels, excluded = turned(row.node_labels), shuffled(row.exclude_nodes, rng)
        return replace(row, run=run, stopped=stopped, node_labels=labels, exclude_nodes=excluded)

    nodes, slowdown = shuffled(snapshot.cluster.nodes, rng), turned(snapshot.cluster.slowdown)
    return replace(
        snapshot,
        cluster=replace(snapshot.cluster, nodes=nodes, slowdown=slowdown),
        budgets=shuffled(snapshot.budgets, rng),
        workloads=shuffled(tuple(map(work, snapshot.workloads)), rng),
        usage=shuffled(snapshot.usage, rng),
    )


def rename(snapshot: Snapshot) -> Snapshot:
    """The same allocations under new names; they are known by their ids."""
    return replace(snapshot, budgets=tuple(replace(vertex, name=f"formerly {vertex.id}") for vertex in snapshot.budgets))


def weigh(snapshot: Snapshot, factors: Mapping[str | None, Fraction]) -> Snapshot:
    """The shares of all children of a vertex times a factor of its own."""

    def vertex(row: Allocation) -> Allocation:
        factor = factors.get(row.parent, Fraction(1))
        by_pool = {pool: share * factor for pool, share in row.share_by_pool.items()}
        return replace(row, share=row.share * factor, share_by_pool=by_pool)

    return replace(snapshot, budgets=tuple(map(vertex, snapshot.budgets)))


def heavier(snapshot: Snapshot) -> Snapshot:
    """All shares seven times as large."""
    return weigh(snapshot, dict.fromkeys({vertex.parent for vertex in snapshot.budgets}, Fraction(7)))


def in_percent(snapshot: Snapshot) -> Snapshot:
    """Shares of the top level in percent of what they were, others in thirds."""
    parents = {vertex.parent for vertex in snapshot.budgets}
    return weigh(snapshot, {parent: Fraction(1, 100) if parent is None else Fraction(1, 3) for parent in parents})


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", [*range(8 * TIMES), *SIZES])
def test_the_order_of_lists_does_not_matter(name: str | int, engine: str) -> None:
    other = shuffle(given(name))
    assert other != given(name) or isinstance(name, int)
    assert snapshot_digest(other) == snapshot_digest(given(name))
    assert encode_decision(solve(other, engine)) == encode_decision(decided(name, engine))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("change", [rename, heavier, in_percent])
@pytest.mark.parametrize("name", [*range(4 * TIMES), *SIZES])
def test_neither_names_nor_units_of_weight_matter(name: str | int, change: Callable[[Snapshot], Snapshot], engine: str) -> None:
    assert undated(solve(change(given(name)), engine)) == undated(decided(name, engine))


def with_idle_vertices(snapshot: Snapshot, share: Fraction) -> Snapshot:
    """A further program, and a further child of every inner vertex, without work."""
    parents = {vertex.parent for vertex in snapshot.budgets}
    idle = tuple(
        Allocation(id=f"{parent or ''}zz-idle", parent=parent, share=share, funds=funds)
        for parent in parents
        for funds in (parent is None,)
    )
    return replace(snapshot, budgets=snapshot.budgets + idle)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("share", [Fraction(0), Fraction(1, 10**12)], ids=["weightless", "light"])
@pytest.mark.parametrize("name", [*range(4 * TIMES), *SIZES])
def test_idle_vertices_do_not_matter(name: str | int, share: Fraction, engine: str) -> None:
    """Weight takes budget from the siblings; this light, it takes less than a GPU-second."""
    decision = solve(with_idle_vertices(given(name), share), engine)
    expected = decided(name, engine)
    assert decision.solver == expected.solver
    assert rows(decision) == rows(expected)


def rows(decision: Decision) -> tuple[object, ...]:
    """What a decision does."""
    return decision.starts, decision.preemptions, decision.promotions, decision.renewals, decision.contract_broken


def later(snapshot: Snapshot, seconds: int) -> Snapshot:
    """The same facts, all that much later."""

    def shift(moment: int | None) -> int | None:
        return None if moment is None else moment + seconds

    def work(row: Workload) -> Workload:
        run, stopped = row.run, row.stopped
        if run is not None:
            fields = ("start_time", "charged_since", "granted_at", "protected_until", "last_checkpoint", "terminating_until")
            run = replace(run, **{field: shift(getattr(run, field)) for field in fields})  # type: ignore[arg-type]
        if stopped is not None:
            stopped = replace(stopped, at=stopped.at + seconds)
        since = shift(row.entitled_since)
        return replace(row, submit_time=row.submit_time + seconds, run=run, stopped=stopped, entitled_since=since)

    def record(row: UsageRecord) -> UsageRecord:
        return replace(row, start=row.start + seconds, end=row.end + seconds)

    nodes = tuple(replace(node, drain_deadline=shift(node.drain_deadline)) for node in snapshot.cluster.nodes)
    return replace(
        snapshot,
        now=snapshot.now + seconds,
        cluster=replace(snapshot.cluster, nodes=nodes),
        workloads=tuple(map(work, snapshot.workloads)),
        usage=tuple(map(record, snapshot.usage)),
    )


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", [*range(4 * TIMES), *SIZES])
def test_the_origin_of_the_clock_does_not_matter(name: str | int, engine: str) -> None:
    span = 1_234_567
    decision, expected = solve(later(given(name), span), engine), decided(name, engine)
    assert decision.solver == expected.solver
    assert decision.starts == tuple(
        replace(row, protected_until=row.protected_until + span if row.protected_until is not None else None)
        for row in expected.starts
    )
    assert decision.promotions == tuple(replace(row, protected_until=row.protected_until + span) for row in expected.promotions)
    assert decision.preemptions == tuple(replace(row, stop_by=row.stop_by + span) for row in expected.preemptions)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", [*range(4 * TIMES), *SIZES])
def test_calls_before_do_not_matter(name: str | int, engine: str) -> None:
    expected = decided(name, engine)
    other = solve(tiny_snapshot(77), engine)
    assert encode_decision(solve(given(name), engine)) == encode_decision(expected)
    told = allocate(given(name), engine=engine, time_limit=LIMIT, previous=other)
    assert encode_decision(replace(told, timing={})) == encode_decision(expected)


@pytest.mark.parametrize("engine", EXACT_ENGINES)
def test_a_warm_child_decides_as_a_cold_one(engine: str) -> None:
    for name in SIZES:
        warm = decided(name, engine)
        shared_process().kill()
        assert encode_decision(solve(given(name), engine)) == encode_decision(warm)


@pytest.mark.parametrize("seeds", chunks(usual=30, long=1500, size=30 if not FUZZ else 150))
def test_another_seed_proves_the_same_objective(seeds: range) -> None:
    for seed in seeds:
        snapshot = tiny_snapshot(seed)
        scores = set()
        for number in (0, 1, 12345):
            solver = allocate(snapshot, seed=number, time_limit=LIMIT).solver
            assert solver.seed == number
            scores.add((solver.objective, solver.bound) if solver.status == "optimal" else None)
        assert len(scores) == 1


@pytest.mark.parametrize("engine", ["portfolio", *EXACT_ENGINES])
@pytest.mark.parametrize("family", SIZES)
def test_more_time_is_never_worse(family: str, engine: str) -> None:
    limits = (1e-6, 0.1, 1.0, LIMIT)
    objectives = [allocate(given(family), engine=engine, time_limit=limit).solver.objective for limit in limits]
    assert objectives == sorted(objectives, reverse=True)


@pytest.mark.parametrize("engine", ["portfolio", *EXACT_ENGINES])
def test_a_wider_gap_is_kept(engine: str) -> None:
    """Whoever stops early is within the gap that was asked for, and its bound holds."""
    best = decided("mixed", engine).solver
    assert best.status == "optimal"
    for gap in (0.0, 1e-4, 1e-2, 1.0):
        solver = allocate(given("mixed"), engine=engine, gap=gap, time_limit=LIMIT).solver
        assert solver.gap is not None
        assert solver.bound is not None
        assert solver.gap <= gap
        assert solver.bound <= best.objective <= solver.objective
