"""Tiny snapshots in the middle of things: victims that are leaving, starts that have been ordered, leases and reservations."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from allocator.domain import NodeState, Reservation, Run, Snapshot, Workload
from tests.engines.tiny import HOUR, NOW, tiny_snapshot


def tiny_contract(seed: int) -> Snapshot:
    """A tiny snapshot in which earlier decisions have been carried out in part; consistent by construction."""
    rng = Random(~seed)
    snapshot = tiny_snapshot(seed)
    works = [_leaving(rng, work) for work in snapshot.workloads]
    works = _ordered(rng, snapshot, works)
    works = [_lease(rng, work) for work in works]
    gpus = {pool: sum(node.gpus for node in snapshot.cluster.nodes if node.pool == pool) for pool in ("a", "b")}
    works = [_marked(rng, work, gpus) for work in works]
    budgets = [replace(vertex, interactive_limit=rng.choice([None, None, 1, 2, 4])) for vertex in snapshot.budgets]
    snapshot = replace(snapshot, workloads=tuple(works), budgets=tuple(budgets))
    return replace(snapshot, reservations=tuple(_reservations(rng, snapshot))).canonical()


def _lease(rng: Random, work: Workload) -> Workload:
    """Half of the charged runs are sessions; some have been renewed before."""
    run = work.run
    if run is None or not run.charged or run.start_time is None or rng.random() > 0.5:
        return work
    if rng.random() < 0.4 and run.start_time < NOW - HOUR:
        run = replace(run, granted_at=NOW - HOUR, protected_until=NOW + rng.choice([0, 0, HOUR]))
    return replace(work, renew=True, run=run)


def _marked(rng: Random, work: Workload, gpus: dict[str, int]) -> Workload:
    """Some large gangs that wait have been entitled for a while."""
    if work.run is not None or work.min_runtime == 0 or 4 * work.gpus < max(gpus.values()) or rng.random() > 0.6:
        return work
    return replace(work, entitled_since=NOW - rng.choice([0, 60, HOUR]))


def _reservations(rng: Random, snapshot: Snapshot) -> list[Reservation]:
    """Reservations of earlier decisions, some of which cannot be kept."""
    pools = sorted({node.pool for node in snapshot.cluster.nodes})
    return [
        Reservation(
            workload=work.id, pool=rng.choice(work.pools or pools), domain=rng.choice([(), ("c",), ("c", "l0"), ("c", "gone")]),
            nodes=rng.randint(1, 2), start=NOW + rng.choice([-60, 0, 60, HOUR]), eligible_since=work.entitled_since,
            bound=NOW + 8 * HOUR,
        )
        for work in snapshot.workloads
        if work.run is None and work.entitled_since is not None and rng.random() < 0.6
    ]  # fmt: skip


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
            if node.state is NodeState.UP
            and room[node.name] >= work.gpus_per_task
            and cpus[node.name] >= (work.cpus_per_task or 0)
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
