"""Tiny snapshots in the middle of things: victims that are leaving, starts that have been ordered, leases and reservations."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from allocator.domain import NodeState, Run, Snapshot, Workload
from tests.engines.tiny import HOUR, NOW, tiny_snapshot


def tiny_contract(seed: int) -> Snapshot:
    """A tiny snapshot in which earlier decisions have been carried out in part; consistent by construction."""
    rng = Random(~seed)
    snapshot = tiny_snapshot(seed)
    works = [_leaving(rng, work) for work in snapshot.workloads]
    works = _ordered(rng, snapshot, works)
    return replace(snapshot, workloads=tuple(works)).canonical()


def _leaving(rng: Random, work: Workload) -> Workload:
    if work.run is None or rng.random() > 0.25:
        return work
    return replace(work, run=replace(work.run, terminating_until=NOW + rng.choice([60, 60, 0, -30])))


def _ordered(rng: Random, snapshot: Snapshot, works: list[Workload]) -> list[Workload]:
    """Some single tasks that wait have been ordered to start in a minute, perhaps where others leave."""
    room = {node.name: node.gpus for node in snapshot.cluster.nodes}
    cpus = {node.name: node.cpus if node.cpus is not None else 1 << 30 for node in snapshot.cluster.nodes}
    for work in works:
        if work.run is not None and work.run.terminating_until is None:
            for name, tasks in work.run.placement.items():
                room[name] -= tasks * work.gpus_per_task
                cpus[name] -= tasks * (work.cpus_per_task or 0)
    found = []
    for work in works:
        fits = [
            node.name for node in snapshot.cluster.nodes
            if node.state is NodeState.UP and room[node.name] >= work.gpus_per_task and cpus[node.name] >= (work.cpus_per_task or 0)
        ]  # fmt: skip
        if work.run is not None or work.tasks > 1 or not fits or rng.random() > 0.2 or work.min_runtime == 0:
            found.append(work)
            continue
        name = rng.choice(fits)
        room[name] -= work.gpus_per_task
        cpus[name] -= work.cpus_per_task or 0
        start = NOW + 60
        run = Run(
            placement={name: 1}, charged=True, start_time=start, charged_since=start, granted_at=NOW - 60,
            protected_until=start + min(work.min_runtime, 8 * HOUR),
        )  # fmt: skip
        found.append(replace(work, run=run))
    return found
