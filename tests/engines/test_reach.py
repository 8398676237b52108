"""What fits once every victim has gone, and nothing beyond that, is on offer."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from allocator.domain import Allocation, Run, Snapshot, TopologyWish, Workload
from allocator.entitlement import entitle
from allocator.epoch import EpochProblem, compile_epoch
from tests.engines.epochs import T0, World

HOUR = 3600


def _empty(seed: int = 0) -> Snapshot:
    """A small cluster of racks with two nodes of four GPUs and three allocations without limits, without work."""
    snapshot = World.new(seed).snapshot
    policy = replace(snapshot.policy, max_preemptions=None)
    return replace(
        snapshot,
        workloads=(),
        budgets=tuple(Allocation(id=key, parent=None, share=Fraction(1)) for key in "xyz"),
        policy=policy,
    )


def _work(key: str, tasks: int, gpus: int, **fields: object) -> Workload:
    plain = Workload(
        id=key, allocation="x", submit_time=T0 - 60, tasks=tasks, gpus_per_task=gpus, min_runtime=0, resumable=True
    )
    return replace(plain, **fields)  # type: ignore[arg-type]


def _problem(snapshot: Snapshot, *works: Workload) -> EpochProblem:
    return compile_epoch(entitle(replace(snapshot, workloads=works).canonical()))


def _on_offer(problem: EpochProblem) -> set[str]:
    """What waits and is on offer; what runs may be on offer to start again elsewhere."""
    return {problem.names[row] for row in problem.offers.work[problem.offers.victim < 0].tolist()}


def _run(snapshot: Snapshot, key: str, nodes: int, *, protected: bool) -> Workload:
    """Work on all GPUs of the first nodes that may, or may not, be stopped."""
    names = [node.name for node in snapshot.cluster.nodes[:nodes]]
    until = T0 + HOUR if protected else T0 - HOUR
    run = Run(
        placement=dict.fromkeys(names, 1), charged=True, start_time=T0 - 2 * HOUR, charged_since=T0 - 2 * HOUR,
        granted_at=T0 - 2 * HOUR, protected_until=until,
    )  # fmt: skip
    return _work(key, nodes, 4, min_runtime=HOUR, run=run)


def test_a_gang_that_fits_beside_no_promise_is_no_offer() -> None:
    snapshot = _empty()
    size = len(snapshot.cluster.nodes)
    wide, narrow = _work("wide", size - 1, 4), _work("narrow", size - 2, 4)
    problem = _problem(snapshot, _run(snapshot, "held", 2, protected=True), wide, narrow)
    assert _on_offer(problem) == {"narrow"}


def test_what_fits_once_victims_have_gone_is_on_offer() -> None:
    snapshot = _empty()
    size = len(snapshot.cluster.nodes)
    held = _run(snapshot, "held", 2, protected=False)
    held = replace(held, allocation="z", run=replace(held.run, charged=False, protected_until=None))  # type: ignore[type-var]
    problem = _problem(snapshot, held, _work("wide", size, 4, allocation="y", min_runtime=HOUR))
    assert len(problem.victims.work) == 1
    assert _on_offer(problem) == {"wide"}


@pytest.mark.parametrize(("required", "offered"), [("rack", set()), (None, {"gang"})])
def test_a_required_domain_has_to_hold_the_gang_on_its_own(required: str | None, offered: set[str]) -> None:
    snapshot = _empty()
    keep = _run(snapshot, "held", 1, protected=True)
    others = [
        replace(_run(snapshot, f"held{i}", 1, protected=True), run=replace(keep.run, placement={node.name: 1}))  # type: ignore[type-var]
        for i, node in enumerate(snapshot.cluster.nodes)
        if i % 2 == 0
    ]
    gang = _work("gang", 2, 4, topology=TopologyWish(required=required))
    assert _on_offer(_problem(snapshot, *others, gang)) == offered


def test_a_queue_is_as_long_as_what_could_start_of_it() -> None:
    snapshot = _empty()
    size = len(snapshot.cluster.nodes)
    held = _run(snapshot, "held", size - 1, protected=True)
    waiting = [_work(f"w{i:02d}", 1, 1, submit_time=T0 - i) for i in range(20)]
    problem = _problem(snapshot, held, *waiting)
    assert len(problem.offers.work) == 4, "one node is free"
    assert np.all(np.diff(problem.offers.gain) <= 0), "those that gain most by starting come first"


def test_unallocated_work_of_all_leaves_without_a_limit_is_one_queue() -> None:
    snapshot = _empty()
    held = _run(snapshot, "held", len(snapshot.cluster.nodes) - 1, protected=True)
    waiting = [_work(f"w{i:02d}", 1, 1, submit_time=T0 - i, allocation="xyz"[i % 3]) for i in range(20)]
    open_to_all = _problem(snapshot, held, *waiting)
    assert len(open_to_all.offers.work) == 4
    assert len(set(open_to_all.offers.queue.tolist())) == 1
    limited = replace(snapshot, budgets=tuple(replace(vertex, gpu_limit=2) for vertex in snapshot.budgets))
    by_leaf = _problem(limited, held, *waiting)
    assert len(set(by_leaf.offers.queue.tolist())) == 3


def test_charged_work_of_two_leaves_is_two_queues() -> None:
    snapshot = _empty()
    waiting = [_work(f"w{i}", 1, 1, min_runtime=HOUR, allocation="xy"[i % 2]) for i in range(4)]
    assert len(set(_problem(snapshot, *waiting).offers.queue.tolist())) == 2
