"""What is said about the future holds: found by brute force on tiny clusters, and by letting time pass."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator import transition
from allocator.domain import Decision, Node, NodeState, Reason, Snapshot, Workload
from allocator.engine import allocate
from allocator.entitlement import Entitlement, entitle
from allocator.explain import annotate
from allocator.explain.after import build_after
from allocator.explain.horizon import Horizon
from tests.builders import decision
from tests.engines.tiny import tiny_snapshot

SEEDS = st.integers(0, 1 << 30)
FEWER = 400 if os.environ.get("ALLOCATOR_FUZZ") == "1" else 20
"""Examples where each takes several calls."""


# --- the first instant with a place, one node and one task at a time ---------------------------------------------------


def releases(snap: Snapshot, answer: Decision, ent: Entitlement) -> dict[str, tuple[dict[str, int], int]]:
    """What runs afterwards: where, and until when it may not be touched (`now` if it may)."""
    stopped = {row.workload for row in answer.preemptions}
    nodes = {node.name: node for node in snap.cluster.nodes}
    found = {}
    for index, work in enumerate(snap.workloads):
        if work.run is None or work.id in stopped:
            continue
        until = int(ent.works.protected_until[index]) if work.run.charged else 0
        deadlines = [nodes[name].drain_deadline for name in work.run.placement]
        until = min([until, *(deadline for deadline in deadlines if deadline is not None)])
        found[work.id] = (dict(work.run.placement), max(snap.now, until))
    for start in answer.starts:
        found[start.workload] = (dict(start.placement), start.protected_until or snap.now)
    for promotion in answer.promotions:
        found[promotion.workload] = (found[promotion.workload][0], promotion.protected_until)
    return found


def has_place(snap: Snapshot, work: Workload, held: dict[str, tuple[dict[str, int], int]], instant: int) -> bool:
    """Whether the gang can be laid beside the work that may not be touched then."""
    by_id = {one.id: one for one in snap.workloads}
    room = {}
    for node in snap.cluster.nodes:
        if not _takes(snap, node, work):
            continue
        there = [(by_id[key], nodes.get(node.name, 0)) for key, (nodes, until) in held.items() if until > instant]
        gpus = node.gpus - _used(snap.now, [(one, tasks * one.gpus_per_task) for one, tasks in there])
        room[node.name] = gpus // work.gpus_per_task
        if node.cpus is not None and work.cpus_per_task:
            cpus = node.cpus - _used(snap.now, [(one, tasks * (one.cpus_per_task or 0)) for one, tasks in there])
            room[node.name] = min(room[node.name], cpus // work.cpus_per_task)
    return any(_respects(snap, work, placement) for placement in _placements(room, work.tasks))


def _used(now: int, amounts: list[tuple[Workload, int]]) -> int:
    """What is leaving and what is ordered for later may share a place: the larger of the two counts."""
    leaves = sum(amount for one, amount in amounts if one.run is not None and one.run.terminating_until is not None)
    comes = sum(amount for one, amount in amounts if one.run is not None and (one.run.start_time or 0) > now)
    return sum(amount for _, amount in amounts) - min(leaves, comes)


def _takes(snap: Snapshot, node: Node, work: Workload) -> bool:
    expired = node.drain_deadline is not None and node.drain_deadline <= snap.now
    labels = all(node.labels.get(key) == value for key, value in work.node_labels.items())
    accepted = not work.pools or node.pool in work.pools
    return node.state is NodeState.UP and not expired and labels and accepted and node.name not in work.exclude_nodes


def _placements(room: dict[str, int], tasks: int) -> Iterator[dict[str, int]]:
    names = sorted(room)
    for counts in itertools.product(*(range(min(tasks, room[name]) + 1) for name in names)):
        if sum(counts) == tasks:
            yield {name: count for name, count in zip(names, counts, strict=True) if count}


def _respects(snap: Snapshot, work: Workload, placement: dict[str, int]) -> bool:
    nodes = {node.name: node for node in snap.cluster.nodes}
    if len({nodes[name].pool for name in placement}) > 1:
        return False
    wish, levels = work.topology, snap.cluster.levels
    path = {name: (*nodes[name].domains, name) for name in placement}
    if wish.required is not None and len({path[name][: levels.index(wish.required) + 1] for name in placement}) > 1:
        return False
    if wish.segment is not None:
        depth = levels.index(wish.segment.level) + 1
        if wish.required is None or levels.index(wish.required) < depth - 1:
            domains = {path[name][:depth] for name in placement}
            counts = [sum(n for name, n in placement.items() if path[name][:depth] == domain) for domain in domains]
            return sum(count % wish.segment.tasks != 0 for count in counts) <= 1
    return True


@given(SEEDS)
def test_the_first_instant_is_the_one_that_brute_force_finds(seed: int) -> None:
    snap = tiny_snapshot(seed)
    ent = entitle(snap)
    answer = allocate(snap, engine="greedy")
    horizon, held = Horizon(ent, build_after(ent, answer)), releases(snap, answer, ent)
    instants = sorted({snap.now, *(until for _, until in held.values())})
    works = {work.id: work for work in snap.workloads}
    for row in answer.waiting:
        if row.never:
            continue
        found = horizon.earliest(works[row.workload])
        expected = next((instant for instant in instants if has_place(snap, works[row.workload], held, instant)), None)
        assert (None if found is None else found.instant) == expected
        if found is not None and found.instant > snap.now:
            assert found.blockers
            assert all(snap.now < held[key][1] <= found.instant for key in found.blockers)


# --- time passes -------------------------------------------------------------------------------------------------------


@settings(max_examples=FEWER)
@given(SEEDS)
def test_nothing_starts_before_it_was_told_and_nothing_ever_that_never_can(seed: int) -> None:
    snap, rng = tiny_snapshot(seed), Random(seed)
    told: dict[str, int] = {}
    never: set[str] = set()
    for _ in range(6):
        answer = allocate(snap, engine="greedy")
        started = {row.workload for row in answer.starts}
        assert {key: told[key] for key in started if told.get(key, snap.now) > snap.now} == {}
        assert not started & never
        told |= {row.workload: row.not_before for row in answer.waiting if row.not_before is not None}
        never |= {row.workload for row in answer.waiting if row.never}
        soon = sorted({instant - snap.now for instant in told.values() if instant > snap.now})
        snap = transition.apply(snap, answer, rng.choice([60, 600, 3600, *soon, *(max(1, span - 1) for span in soon)]))


@given(SEEDS)
def test_every_row_is_consistent(seed: int) -> None:
    snap = tiny_snapshot(seed)
    answer = allocate(snap, engine="greedy")
    runs = {work.id for work in snap.workloads if work.run is not None}
    after = (runs - {row.workload for row in answer.preemptions}) | {row.workload for row in answer.starts}
    assert [row.workload for row in answer.waiting] == sorted({work.id for work in snap.workloads} - after)
    for row in answer.waiting:
        assert row.detail
        assert row.never == (row.reason in (Reason.INVALID_REQUEST, Reason.TOPOLOGY_IMPOSSIBLE))
        assert row.not_before is None or row.not_before >= snap.now
        assert (row.not_before is None) == (row.never or row.reason is Reason.POOL_DOWN)
        assert bool(row.blockers) == (row.reason is Reason.BLOCKED_BY_PROTECTION)
        assert set(row.blockers) <= after
        assert row.reason is not Reason.SEARCH_TRUNCATED or answer.solver.status != "optimal"


@given(SEEDS)
def test_to_keep_everything_can_be_explained_too(seed: int) -> None:
    snap = tiny_snapshot(seed)
    ent = entitle(snap)
    keep = decision(snap)
    found = annotate(ent, keep)
    assert {row.workload for row in found.waiting} == {work.id for work in snap.workloads if work.run is None}


@given(SEEDS)
def test_allocations_add_up(seed: int) -> None:
    snap = tiny_snapshot(seed)
    answer = allocate(snap, engine="greedy")
    parent = {vertex.id: vertex.parent for vertex in snap.budgets}
    works = {work.id: work for work in snap.workloads}
    running = [work for work in snap.workloads if work.run is not None]
    stopped = {row.workload for row in answer.preemptions}
    after = [work for work in running if work.id not in stopped] + [works[row.workload] for row in answer.starts]
    assert sum(row.gpus_before for row in answer.allocations if parent[row.id] is None) == sum(work.gpus for work in running)
    assert sum(row.gpus_after for row in answer.allocations if parent[row.id] is None) == sum(work.gpus for work in after)
    for row in answer.allocations:
        below = [other for other in answer.allocations if parent[other.id] == row.id and other.pool == row.pool]
        assert not below or row.gpus_after == sum(other.gpus_after for other in below)
        assert row.share == pytest.approx(sum(other.share for other in below)) or not any(other.share for other in below)
