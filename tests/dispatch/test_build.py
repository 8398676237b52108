"""The snapshot: what is left of nodes, states, leavers, marks, refusals by name; and orders from decisions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from allocator import allocate
from allocator.dispatch.build import budgets_for, build, leaves_of
from allocator.dispatch.config import Config, Maintenance
from allocator.dispatch.facts import JobFact, JobState, NodeCondition, View
from allocator.dispatch.memory import JobMemory, Memory
from allocator.dispatch.observe import observe
from allocator.dispatch.plan import plan
from allocator.dispatch.requests import requests_of
from allocator.dispatch.scope import scope_of
from allocator.dispatch.shadow import differences
from allocator.domain import NodeState, Snapshot
from tests.dispatch.test_observe import held
from tests.dispatch.test_requests import NOW, job, node, view


def snapshot_of(seen: View, memory: Memory | None = None, config: Config | None = None) -> Snapshot:
    config, memory = config or Config(), memory or Memory()
    scope = scope_of(seen, config.pools)
    requests = requests_of(seen, scope, config, leaves_of(budgets_for(seen, config)))
    found = observe(seen, memory, scope, requests, config.policy.protection_cap)
    return build(seen, found.memory, scope, requests, config)


def known(**more: Any) -> Memory:
    return Memory(jobs={"1": replace(JobMemory(id="1", submit_time=NOW - 9000), **more)})


def test_accounts_without_accounting_have_equal_shares() -> None:
    found = snapshot_of(view(job(), job("2", account="vision", user="bo")))
    assert {(item.id, item.parent, int(item.share)) for item in found.budgets} == {
        ("nlp", None, 1),
        ("nlp/ana", "nlp", 1),
        ("vision", None, 1),
        ("vision/bo", "vision", 1),
    }
    assert allocate(found, engine="greedy").starts


@pytest.mark.parametrize(
    ("condition", "state", "gpus"),
    [
        (NodeCondition.OPEN, NodeState.UP, 8),
        (NodeCondition.CLOSED, NodeState.DOWN, 8),
        (NodeCondition.DRAIN, NodeState.DRAIN, 8),
        (NodeCondition.DOWN, NodeState.DOWN, 8),
    ],
)
def test_conditions_of_nodes(condition: NodeCondition, state: NodeState, gpus: int) -> None:
    (found,) = snapshot_of(view(nodes=(node("n1", condition=condition, reason="xid"),))).cluster.nodes
    assert (found.state, found.gpus, found.reason) == (state, gpus, "xid")


def test_what_runs_on_a_closed_node_stays() -> None:
    running = job(state=JobState.RUNNING, nodes=("n1",), start_time=NOW - 50, gpus=4, gpus_per_node=4)
    found = snapshot_of(view(running, nodes=(node("n1", condition=NodeCondition.CLOSED),)))
    assert found.cluster.nodes[0].gpus == 4
    assert allocate(found, engine="greedy").preemptions == ()


def test_what_others_use_is_taken_off() -> None:
    foreign = job("9", state=JobState.RUNNING, nodes=("n1", "cpu1"), gpus=2, gpus_per_node=1, num_nodes=2)
    seen = view(foreign, nodes=(node("n1", cpus_used=20, memory_used_mib=100 << 10), node("n2")))
    first = snapshot_of(seen).cluster.nodes[0]
    assert (first.gpus, first.cpus, first.memory_gib) == (7, 44, 924)


def test_a_node_outside_the_topology_hangs_somewhere() -> None:
    seen = view(nodes=(node("n1"),))
    seen = replace(seen, fabric=replace(seen.fabric, domains={}))
    assert snapshot_of(seen).cluster.nodes[0].domains == ("elsewhere", "elsewhere")


def test_what_is_remembered_stands_in_the_snapshot() -> None:
    (waiting,) = snapshot_of(view(job()), known(preempted=2, entitled_since=NOW - 50, failed_resumes=2)).workloads
    assert (waiting.submit_time, waiting.preempted, waiting.entitled_since) == (NOW - 9000, 2, NOW - 50)
    assert waiting.resumable is False
    running = job(state=JobState.RUNNING, nodes=("n1",))
    (found,) = snapshot_of(view(running), known(held=held(), entitled_since=NOW - 50)).workloads
    assert found.run is not None
    assert (found.run.protected_until, found.entitled_since) == (NOW + 500, None)


def test_what_is_leaving_still_holds_its_nodes() -> None:
    leaving = job(state=JobState.LEAVING, nodes=("n1",), incarnation=1)
    (stopped,) = snapshot_of(view(leaving), known()).workloads
    assert stopped.run is not None
    assert (stopped.run.charged, stopped.run.terminating_until) == (False, NOW + 60)
    (ending,) = snapshot_of(view(replace(leaving, incarnation=0)), known(held=held())).workloads
    assert ending.run is not None
    assert (ending.run.charged, ending.run.terminating_until) == (True, NOW + 60)
    other = job("2", gpu_type="h100")
    snapshot = snapshot_of(view(leaving, other, nodes=(node("n1"),)), known())
    assert allocate(snapshot, engine="greedy").starts == ()


def test_what_cannot_be_decided_is_left_out() -> None:
    assert snapshot_of(view(job(eligible=False))).workloads == ()
    assert snapshot_of(view(job()), known(retry_at=NOW + 5)).workloads == ()
    assert len(snapshot_of(view(job()), known(retry_at=NOW)).workloads) == 1


def test_nonsense_is_refused_by_name() -> None:
    found = snapshot_of(view(job(comment='{"allocator": {"allocation": "other"}}'), job("2")))
    assert [item.workload for item in found.rejected] == ["1"]
    assert "allocation" in found.rejected[0].detail
    assert [item.id for item in found.workloads] == ["2"]


def test_maintenance_is_announced_then_due_then_over() -> None:
    window = Maintenance(nodes=("n1",), start=NOW + 100, end=NOW + 200, reason="firmware")
    config = Config(maintenance=(window,))
    seen = view(nodes=(node("n1"),))
    (announced,) = snapshot_of(seen, config=config).cluster.nodes
    assert (announced.state, announced.drain_deadline, announced.reason) == (NodeState.UP, NOW + 100, "firmware")
    due = replace(seen, now=NOW + 150)
    assert snapshot_of(due, config=config).cluster.nodes[0].state is NodeState.DRAIN
    assert orders(due, config).drains == {"allocator: firmware": ("n1",)}
    drained = view(nodes=(node("n1", condition=NodeCondition.DRAIN, reason="allocator: firmware"),))
    assert orders(replace(drained, now=NOW + 150), config).drains == {}
    assert orders(replace(drained, now=NOW + 300), config).resumes == ("n1",)
    by_hand = view(nodes=(node("n1", condition=NodeCondition.DRAIN, reason="xid 79"),))
    assert orders(replace(by_hand, now=NOW + 300), config).resumes == ()


def orders(seen: View, config: Config | None = None) -> Any:
    config = config or Config()
    decision = allocate(snapshot_of(seen, config=config), engine="greedy")
    return plan(decision, seen, scope_of(seen, config.pools), ["7"], config)


def test_orders_name_nodes_and_the_split_where_it_is_open() -> None:
    found = orders(
        view(
            job(gpu_type="h100"),
            job("2", num_nodes=1, gpus=16, gpus_per_node=0, gpu_type="h100"),
            nodes=tuple(node(f"n{i}") for i in range(1, 5)),
        )
    )
    by_job = {order.job: order for order in found.starts}
    assert by_job["1"].gpus_per_node == 0
    assert (by_job["2"].gpus_per_node, len(by_job["2"].nodes)) == (8, 2)
    assert found.lines[0] == "hold 7: it would start by itself"
    assert f"start 1 on {by_job['1'].nodes[0]}" in found.lines
    assert found.begin_or_end_work


def test_parts_of_a_job_never_share_a_node() -> None:
    gang = job(num_nodes=2, gpus=4, gpus_per_node=2, gpu_type="h100")
    found = orders(view(gang, nodes=(node("n1"), node("n2"))))
    assert [order.nodes for order in found.starts] == [("n1", "n2")]
    assert orders(view(gang, nodes=(node("n1"),))).starts == ()


def shown(*jobs: JobFact) -> View:
    return view(*jobs, nodes=(node("n1"), node("n2")))


def test_shadow_tells_where_both_differ() -> None:
    waiting = [job(key, gpu_type="h100") for key in ("1", "2")]
    before = shown(*waiting, job("3", gpus=64, gpus_per_node=64))
    decision = allocate(snapshot_of(before), engine="greedy")
    placed = {row.workload: tuple(row.placement) for row in decision.starts}
    same = replace(waiting[0], state=JobState.RUNNING, nodes=placed["1"])
    own = job("3", state=JobState.RUNNING, nodes=("n1",))
    found = differences(before, decision, shown(same, waiting[1], own))
    assert (found.both, found.only_allocator, found.only_scheduler, found.elsewhere) == (("1",), ("2",), ("3",), ())
    assert not found.agree
    moved = replace(waiting[0], state=JobState.RUNNING, nodes=placed["2"])
    assert differences(before, decision, shown(moved, waiting[1])).elsewhere == ("1",)
