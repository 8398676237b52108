"""The bars for large gangs and drains: played through on small clusters, and at 1,024 GPUs in the long runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from allocator.domain import Snapshot, Workload
from allocator.engine import allocate
from allocator.transition import apply, finish
from tests.builders import HOUR, NOW, budget, job, node, nodes, running, snapshot, used

MINUTE = 60
SIZES = [pytest.param(16, HOUR // 2, id="128 GPUs"), pytest.param(128, 5 * MINUTE, id="1,024 GPUs", marks=pytest.mark.fuzz)]


def staggered(count: int) -> list[Workload]:
    """A node each, with promises that end evenly over the next eight hours."""
    ends = [NOW + 8 * HOUR * (i + 1) // count for i in range(count)]
    return [
        running(f"d{i:03d}", "d", {f"n{i + 1}": 1}, since=end - 8 * HOUR, protected_until=end, min_runtime=8 * HOUR)
        for i, end in enumerate(ends)
    ]


def kept(snap: Snapshot, allocation: str) -> list[str]:
    """Running work of an allocation whose promise is over."""
    runs = [(work, work.run) for work in snap.workloads if work.run is not None and work.allocation == allocation]
    return [work.id for work, run in runs if (run.protected_until or 0) <= snap.now]


@pytest.mark.parametrize(("count", "epoch"), SIZES)
def test_a_gang_of_half_a_full_pool_lands_in_time_and_idles_little(count: int, epoch: int) -> None:
    """Whoever keeps its promise ends, more of the same waits, and so does unallocated one-GPU work without end."""
    gang = job("gang", "h", 8 * count // 2, min_runtime=8 * HOUR)
    more = [job(f"m{i:03d}", "d", 8, min_runtime=8 * HOUR) for i in range(count)]
    fillers = [job(f"u{i:04d}", "f", 1, min_runtime=0) for i in range(2 * 8 * count)]
    past = [used("d", 40 * 8 * count, ago=20 * HOUR)]
    budgets = [budget("h"), budget("d"), budget("f", 0)]
    snap = snapshot(nodes(count), budgets, [*staggered(count), gang, *more, *fillers], usage=past)
    idle = 0
    while True:
        found = allocate(snap, engine="greedy", explain=False)
        assert found.contract_broken == ()
        if any(row.workload == "gang" for row in found.starts):
            break
        (held,) = (row for row in found.reservations if row.workload == "gang")
        assert held.start <= NOW + 8 * HOUR
        snap = apply(snap, found, epoch)
        idle += epoch * (8 * count - sum(work.gpus for work in snap.workloads if work.run is not None))
        snap = finish(snap, *kept(snap, "d"))
        assert snap.now <= NOW + 8 * HOUR + epoch
    assert idle <= 0.03 * gang.gpus * (snap.now - NOW)


def drizzle() -> Iterator[Workload]:
    """One-GPU jobs of half an hour, without end."""
    number = 0
    while True:
        yield job(f"d{number:04d}", "d", 1, min_runtime=30 * MINUTE)
        number += 1


def running_drizzle(drops: Iterator[Workload]) -> list[Workload]:
    """Eight nodes full of them, at every point of their half hour."""
    found = []
    for i in range(64):
        drop, since = next(drops), NOW - i % 6 * 5 * MINUTE
        one = running(drop.id, "d", {f"n{i // 8 + 1}": 1}, 1, since=since, protected_until=since + 30 * MINUTE)
        found.append(replace(one, min_runtime=30 * MINUTE))
    return found


@pytest.mark.parametrize("engine", ["greedy", "portfolio"])
def test_a_gang_of_all_gpus_starts_within_35_minutes_of_a_drizzle(engine: str) -> None:
    """At every instant somebody has a promise, and new ones wait; unallocated work takes what they leave."""
    drops = drizzle()
    works = [*running_drizzle(drops), *(next(drops) for _ in range(64)), job("gang", "h", 64, min_runtime=HOUR)]
    works += [job(f"u{i}", "f", 1, min_runtime=0) for i in range(64)]
    past = [used("d", 64 * 12, ago=2 * HOUR)]
    snap = snapshot(nodes(8), [budget("h"), budget("d"), budget("f", 0)], works, usage=past)
    while True:
        found = allocate(snap, engine=engine, time_limit=60, explain=False)
        assert found.contract_broken == ()
        if any(row.workload == "gang" for row in found.starts):
            break
        snap = apply(snap, found, 5 * MINUTE)
        snap = finish(snap, *kept(snap, "d"))
        arrived = [replace(next(drops), submit_time=snap.now) for _ in range(11)]
        snap = replace(snap, workloads=(*snap.workloads, *arrived)).canonical()
        assert snap.now <= NOW + 35 * MINUTE


@pytest.mark.parametrize(
    ("count", "leaf", "epoch"),
    [
        pytest.param(8, 4, HOUR, id="4 of 8 nodes"),
        pytest.param(128, 32, 10 * MINUTE, id="32 of 128 nodes", marks=pytest.mark.fuzz),
    ],
)
def test_the_drain_of_a_leaf_in_a_full_pool_needs_nobody_and_breaks_no_promise(count: int, leaf: int, epoch: int) -> None:
    """Every node is in use, half of them beyond their promise, and more waits; each drains when it was said from the start."""
    leaves = count // leaf
    works = [_half_over(work) if i // leaves % 2 else work for i, work in enumerate(staggered(count))]
    works += [job(f"m{i:03d}", "d", 8, min_runtime=8 * HOUR) for i in range(count)]
    ways: list[dict[str, Any]] = [{} if i % leaves else {"state": "drain"} for i in range(count)]
    machines = [node(f"n{i + 1}", f"r{i % leaves}", **way) for i, way in enumerate(ways)]
    snap = snapshot(machines, [budget("d")], works)
    told = {row.node: row.free_at or NOW for row in allocate(snap, engine="greedy").drains}
    assert len(told) == leaf
    assert {told[name] == NOW for name in told} == {True, False}
    while True:
        found = allocate(snap, engine="greedy")
        assert found.contract_broken == ()
        assert all(row.drained == (told[row.node] <= snap.now) for row in found.drains)
        assert all(told.keys().isdisjoint(row.placement) for row in found.starts)
        if all(row.drained for row in found.drains):
            break
        snap = apply(snap, found, epoch)
        assert snap.now <= NOW + 8 * HOUR
    assert max(told.values()) <= snap.now < max(told.values()) + epoch


def _half_over(work: Workload) -> Workload:
    """The work, its promise over for an hour."""
    assert work.run is not None
    return replace(work, run=replace(work.run, protected_until=NOW - HOUR))
