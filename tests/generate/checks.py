"""Whether a generated snapshot agrees with itself, by plain arithmetic that shares nothing with the generator."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest

from allocator.domain import Allocation, Run, Snapshot, Workload

ROUNDING = 1.001
"""Records are whole seconds of whole gangs, so usage meets its target to a thousandth only."""


def shared_file(name: str) -> Path:
    """A real file that is not part of this repository; the test is skipped where it is absent."""
    root = Path(os.environ.get("ALLOCATOR_SHARED", Path(__file__).parents[3] / "shared"))
    path = root / "traces" / name
    if not path.exists():
        pytest.skip(f"{path} is not here; set ALLOCATOR_SHARED")
    return path


def runs(snapshot: Snapshot) -> Iterator[tuple[Workload, Run]]:
    """Everything that runs."""
    return ((work, work.run) for work in snapshot.workloads if work.run is not None)


def complaints(snapshot: Snapshot) -> list[str]:
    """Everything that does not fit together; empty for a good snapshot."""
    return [
        *_nodes(snapshot),
        *_placements(snapshot),
        *_times(snapshot),
        *_promises(snapshot),
        *_express(snapshot),
        *_limits(snapshot),
        *_budgets(snapshot),
    ]


def _nodes(snapshot: Snapshot) -> Iterator[str]:
    for resource in ("gpus", "cpus", "memory_gib"):
        used: dict[str, int] = defaultdict(int)
        for work, run in runs(snapshot):
            for name, tasks in run.placement.items():
                used[name] += tasks * (getattr(work, f"{resource}_per_task") or 0)
        for node in snapshot.cluster.nodes:
            limit = getattr(node, resource)
            if limit is not None and used[node.name] > limit:
                yield f"{node.name}: {used[node.name]} {resource} of {limit}"


def _placements(snapshot: Snapshot) -> Iterator[str]:
    nodes = {node.name: node for node in snapshot.cluster.nodes}
    for work, run in runs(snapshot):
        pools = {nodes[name].pool for name in run.placement}
        if sum(run.placement.values()) != work.tasks or len(pools) != 1:
            yield f"{work.id}: not a whole gang in one pool"
        if work.pools and not pools <= set(work.pools):
            yield f"{work.id}: runs in a pool that it does not accept"
        if set(run.placement) & set(work.exclude_nodes):
            yield f"{work.id}: runs on a node that it excludes"
        if work.topology.required is not None:
            depth = snapshot.cluster.levels.index(work.topology.required) + 1
            if len({nodes[name].domains[:depth] for name in run.placement}) > 1:
                yield f"{work.id}: its required level is not met"


def _times(snapshot: Snapshot) -> Iterator[str]:
    now = snapshot.now
    for work in snapshot.workloads:
        if work.submit_time >= now:
            yield f"{work.id}: submitted at {work.submit_time}"
        if work.run is None:
            if work.stopped is not None and not work.submit_time <= work.stopped.at < now:
                yield f"{work.id}: stopped at {work.stopped.at}"
            continue
        start = work.run.start_time
        if start is None or not work.submit_time <= start < now:
            yield f"{work.id}: started at {start}"
        elif work.run.last_checkpoint is not None and not start <= work.run.last_checkpoint <= now:
            yield f"{work.id}: checkpoint at {work.run.last_checkpoint}"
    yield from (f"{record.id}: {record}" for record in snapshot.usage if not record.start < record.end <= now)


def _promises(snapshot: Snapshot) -> Iterator[str]:
    for work, run in runs(snapshot):
        if not run.charged:
            if run.protected_until is not None or run.granted_at is not None or run.charged_since is not None:
                yield f"{work.id}: free of charge with a promise"
            if work.min_runtime and work.unfunded != "run":
                yield f"{work.id}: runs unfunded and does not accept that"
            continue
        promise = min(work.min_runtime, snapshot.policy.protection_cap)
        if not work.min_runtime or run.granted_at is None or run.charged_since is None:
            yield f"{work.id}: charged without a promise"
        elif not (run.start_time or 0) <= run.charged_since <= run.granted_at <= snapshot.now:
            yield f"{work.id}: charged and granted out of order"
        elif run.protected_until != run.granted_at + promise:
            yield f"{work.id}: promised {run.protected_until}, not {run.granted_at + promise}"


def _express(snapshot: Snapshot) -> Iterator[str]:
    lane = snapshot.policy.express
    users: dict[str | None, int] = defaultdict(int)
    held: dict[str, int] = defaultdict(int)
    pool_of = {node.name: node.pool for node in snapshot.cluster.nodes}
    for work, run in runs(snapshot):
        if run.express:
            users[work.user] += 1
            held[pool_of[next(iter(run.placement))]] += work.gpus
            if not run.charged or work.gpus > lane.gpus or not 0 < work.min_runtime <= lane.min_runtime:
                yield f"{work.id}: no express work"
    yield from (f"{user}: {count} express workloads" for user, count in users.items() if count > lane.per_user or user is None)
    for pool, gpus in held.items():
        installed = sum(node.gpus for node in snapshot.cluster.nodes if node.pool == pool)
        if gpus > max(8, int(lane.pool_share * installed)):
            yield f"{pool}: {gpus} express GPUs"


def _limits(snapshot: Snapshot) -> Iterator[str]:
    parents = {vertex.parent for vertex in snapshot.budgets}
    leaves = {vertex.id: vertex for vertex in snapshot.budgets if vertex.id not in parents}
    held: dict[str, int] = defaultdict(int)
    for work in snapshot.workloads:
        if work.allocation not in leaves:
            yield f"{work.id}: {work.allocation} is no leaf"
        held[work.allocation] += work.gpus if work.run is not None else 0
    yield from (f"{leaf}: {gpus} GPUs" for leaf, gpus in held.items() if gpus > (leaves[leaf].gpu_limit or 1 << 40))


def _budgets(snapshot: Snapshot) -> Iterator[str]:
    """Where promises are open, usage and promises stay inside the budget of every vertex that funds."""
    for (vertex, pool), (usage, promised) in usage_and_promises(snapshot).items():
        budget = budget_of(snapshot, vertex, pool)
        if promised and usage + promised > budget * ROUNDING:
            yield f"{vertex} in {pool}: {usage} used and {promised} promised of {float(budget):.0f}"


def usage_and_promises(snapshot: Snapshot) -> dict[tuple[str, str], tuple[int, int]]:
    """Charged GPU-seconds in the window, and open ordinary promises, of each vertex that funds."""
    now, first = snapshot.now, snapshot.now - snapshot.policy.window
    vertices = {vertex.id: vertex for vertex in snapshot.budgets}
    pool_of = {node.name: node.pool for node in snapshot.cluster.nodes}
    totals: dict[tuple[str, str], tuple[int, int]] = defaultdict(lambda: (0, 0))

    def add(leaf: str, pool: str, usage: int, promised: int) -> None:
        for vertex in _path(vertices, leaf):
            if vertices[vertex].funds:
                before = totals[vertex, pool]
                totals[vertex, pool] = (before[0] + usage, before[1] + promised)

    for record in snapshot.usage:
        if record.charged:
            add(record.allocation, record.pool, record.gpus * max(0, record.end - max(record.start, first)), 0)
    for work, run in runs(snapshot):
        if run.charged:
            promised = 0 if run.express else work.gpus * max(0, (run.protected_until or 0) - now)
            pool = pool_of[next(iter(run.placement))]
            add(work.allocation, pool, work.gpus * (now - max(run.charged_since or now, first)), promised)
    return totals


def budget_of(snapshot: Snapshot, vertex: str, pool: str) -> Fraction:
    """Budget of a vertex in GPU-seconds, straight from its definition."""
    vertices = {vertex.id: vertex for vertex in snapshot.budgets}
    share = Fraction(1)
    for name in _path(vertices, vertex):
        siblings = [other for other in snapshot.budgets if other.parent == vertices[name].parent]
        total = sum((other.share_by_pool.get(pool, other.share) for other in siblings), Fraction(0))
        share *= vertices[name].share_by_pool.get(pool, vertices[name].share) / total
    installed = sum(node.gpus for node in snapshot.cluster.nodes if node.pool == pool)
    return share * installed * (snapshot.policy.window + snapshot.policy.protection_cap)


def _path(vertices: dict[str, Allocation], leaf: str) -> list[str]:
    path = [leaf]
    while (parent := vertices[path[-1]].parent) is not None:
        path.append(parent)
    return path
