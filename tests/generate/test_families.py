"""Every family: what it promises, consistency, determinism, with history and cold."""

from __future__ import annotations

from collections import Counter

import pytest

from allocator.domain import NodeState, Snapshot, SnapshotError, Workload
from allocator.entitlement import entitle
from allocator.generate import FAMILIES, generate_snapshot
from allocator.wire import decode_snapshot, encode_snapshot
from tests.generate.checks import budget_of, complaints, runs, usage_and_promises

SMALL = {name: 576 if name == "nvl72" else 256 for name in FAMILIES}
"""Sizes at which every family is made in a moment."""


def waiting(snapshot: Snapshot) -> list[Workload]:
    return [work for work in snapshot.workloads if work.run is None]


@pytest.mark.parametrize("history", [True, False])
@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "fleet"])
def test_every_family_agrees_with_itself(family: str, history: bool) -> None:
    snapshot = generate_snapshot(family=family, gpus=SMALL[family], seed=2, history=history)
    assert complaints(snapshot) == []
    assert bool(snapshot.usage) == history
    assert waiting(snapshot)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_survives_the_wire_and_repeats(family: str) -> None:
    first, again = (generate_snapshot(family=family, gpus=SMALL[family], seed=4, leaves=30) for _ in range(2))
    data = encode_snapshot(first)
    assert data == encode_snapshot(again)
    assert decode_snapshot(data) == first


def test_odd_gangs() -> None:
    snapshot = generate_snapshot(family="odd", seed=1)
    sizes = Counter((work.gpus, work.gpus_per_task) for work in snapshot.workloads)
    assert set(sizes) == {(3, 3), (6, 6), (24, 8), (24, 3), (48, 8), (48, 6), (504, 8)}
    assert {work.gpus for work in waiting(snapshot)} == {3, 6, 24, 48, 504}


def test_cpus_and_memory_bind_before_gpus() -> None:
    snapshot = generate_snapshot(family="bound", seed=1)
    assert complaints(snapshot) == []
    free: dict[str, list[int]] = {
        node.name: [node.gpus, node.cpus or 0, node.memory_gib or 0]
        for node in snapshot.cluster.nodes
        if node.state is NodeState.UP
    }
    for work, run in runs(snapshot):
        for name, tasks in run.placement.items():
            if name in free:
                for row, need in enumerate((work.gpus_per_task, work.cpus_per_task or 0, work.memory_gib_per_task or 0)):
                    free[name][row] -= tasks * need
    starved = [name for name, (gpus, cpus, memory) in free.items() if gpus and (cpus < 8 * gpus or memory < 100 * gpus)]
    assert len(starved) > 10


def test_ones() -> None:
    snapshot = generate_snapshot(family="ones", seed=1)
    assert len(snapshot.cluster.nodes) == 500
    assert Counter((work.gpus, work.run is None) for work in snapshot.workloads) == {(1, True): 4000, (1, False): 4000}


def test_the_giant_is_owed_a_cluster_that_nothing_protects() -> None:
    snapshot = generate_snapshot(family="giant", seed=1)
    giant = max(waiting(snapshot), key=lambda work: work.gpus)
    assert giant.gpus == 4000 == sum(node.gpus for node in snapshot.cluster.nodes)
    assert all((run.protected_until or 0) <= snapshot.now for _, run in runs(snapshot))
    program = giant.allocation.split("/")[0]
    assert usage_and_promises(snapshot).get((program, "h100"), (0, 0)) == (0, 0)
    assert not any(work.allocation.startswith(f"{program}/") for work, _ in runs(snapshot))


def test_hopeless_gangs() -> None:
    snapshot = generate_snapshot(family="hopeless", seed=1)
    assert all((run.protected_until or 0) > snapshot.now for work, run in runs(snapshot))
    gangs = waiting(snapshot)
    assert any(work.topology.required == "leaf" and work.gpus > 256 for work in gangs), "too large for the domain"
    assert any(work.topology.required == "leaf" and work.gpus == 256 for work in gangs), "fits, but promises block it"
    over = [work for work in gangs if work.unfunded == "wait" and work.allocation.startswith("adapt/")]
    assert over
    usage = usage_and_promises(snapshot)
    assert all(
        usage[work.allocation.rsplit("/", 1)[0], "h100"][0] > budget_of(snapshot, work.allocation.rsplit("/", 1)[0], "h100")
        for work in over
    )


def test_victims() -> None:
    snapshot = generate_snapshot(family="victims", seed=1)
    assert len(snapshot.cluster.nodes) == 2000
    assert sum((run.protected_until or 0) <= snapshot.now for _, run in runs(snapshot)) == 700


def test_the_queue_is_40_workloads_a_gpu() -> None:
    snapshot = generate_snapshot(family="queue", gpus=64, seed=1)
    assert len(waiting(snapshot)) == 40 * 64
    with pytest.raises(SnapshotError, match="leave it out"):
        generate_snapshot(family="queue", gpus=64, seed=1, queue=2.0)


@pytest.mark.slow
@pytest.mark.fuzz
def test_the_queue_in_full() -> None:
    snapshot = generate_snapshot(family="queue", seed=1)
    assert (len(snapshot.cluster.nodes), len(waiting(snapshot))) == (1000, 320_000)


def test_nvl72_segments() -> None:
    snapshot = generate_snapshot(family="nvl72", seed=1)
    assert complaints(snapshot) == []
    racks = Counter(node.domains for node in snapshot.cluster.nodes)
    assert (len(racks), set(racks.values())) == (32, {18})
    assert {node.gpus for node in snapshot.cluster.nodes} == {4}
    assert {work.topology.segment.tasks for work in snapshot.workloads if work.topology.segment} == {1, 4, 16}
    rack = {node.name: node.domains for node in snapshot.cluster.nodes}
    for work, run in runs(snapshot):
        if work.topology.segment is not None:
            held: Counter[tuple[str, ...]] = Counter()
            for name, tasks in run.placement.items():
                held[rack[name]] += tasks
            assert sum(tasks % work.topology.segment.tasks != 0 for tasks in held.values()) <= 1, work.id


@pytest.mark.parametrize(("options", "problem"), [({"gpus": 6}, "8 to"), ({"gpus": 10}, "4-GPU"), ({"pools": 3}, "one pool")])
def test_nvl72_refuses_what_is_no_rack(options: dict[str, int], problem: str) -> None:
    with pytest.raises(SnapshotError, match=problem):
        generate_snapshot(family="nvl72", **options)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.fuzz
def test_the_fleet() -> None:
    snapshot = generate_snapshot(family="fleet", seed=1)
    assert len(snapshot.cluster.nodes) == 12_800
    assert {node.pool for node in snapshot.cluster.nodes} == {"h100", "b200", "b300"}
    assert sum(not vertex.funds for vertex in snapshot.budgets) == 3000
    assert complaints(snapshot) == []


def test_a_tenth_of_the_nodes_drains_at_staggered_deadlines() -> None:
    snapshot = generate_snapshot(family="drain", gpus=4096, seed=1)
    leaving = [node for node in snapshot.cluster.nodes if node.drain_deadline or node.state is NodeState.DRAIN]
    assert len(leaving) == 51
    assert {node.state for node in leaving} == {NodeState.UP, NodeState.DRAIN}
    deadlines = [node.drain_deadline for node in leaving if node.drain_deadline]
    assert len(set(deadlines)) > 30
    assert min(deadlines) < snapshot.now < max(deadlines)


def test_gangs_of_the_contract_are_kept_places_and_nodes_leave() -> None:
    reserved, draining = 0, 0
    for seed in range(1, 9):
        snapshot = generate_snapshot(family="contract", gpus=512, seed=seed)
        reserved += bool(entitle(snapshot).reserved)
        draining += any(node.state is NodeState.DRAIN for node in snapshot.cluster.nodes)
        owed = [work for work in waiting(snapshot) if work.entitled_since is not None]
        assert {work.gpus for work in owed} >= {64, 128}
        assert all(work.gpus >= 64 and work.submit_time <= (work.entitled_since or 0) < snapshot.now for work in owed)
    assert draining == 8
    assert reserved >= 3
