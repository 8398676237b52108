"""From a job to its workload: shape, comment, QOS, features, accounts; and what is in the scope at all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from allocator.dispatch.build import budgets_for, leaves_of
from allocator.dispatch.config import Config
from allocator.dispatch.facts import Fabric, JobFact, JobState, NodeCondition, NodeFact, View
from allocator.dispatch.requests import requests_of
from allocator.dispatch.scope import scope_of

NOW = 1_764_430_000


def node(name: str, kind: str = "h100", **more: Any) -> NodeFact:
    known = NodeFact(
        name=name,
        condition=NodeCondition.OPEN,
        gpus=8,
        gpu_type=kind,
        cpus=64,
        memory_mib=1 << 20,
        features=frozenset({kind, "ib"}),
        partitions=("batch",),
    )
    return replace(known, **more)


def job(key: str = "1", **more: Any) -> JobFact:
    known = JobFact(
        id=key,
        state=JobState.WAITING,
        held=True,
        account="nlp",
        user="ana",
        partition="batch",
        gpus=8,
        gpus_per_node=8,
        cpus=8,
        memory_mib=9000,
        submit_time=NOW - 5,
    )
    return replace(known, **more)


def view(*jobs: JobFact, nodes: tuple[NodeFact, ...] = (), fabric: Fabric | None = None) -> View:
    nodes = nodes or (node("n1"), node("n2"), node("a1", "a100"))
    fabric = fabric or Fabric(levels=("cluster", "leaf", "node"), domains={item.name: ("east", "l1") for item in nodes})
    return View(now=NOW, jobs={item.id: item for item in jobs}, nodes={item.name: item for item in nodes}, fabric=fabric)


def request(found: JobFact, config: Config | None = None, **more: Any) -> dict[str, Any]:
    seen, config = view(found, **more), config or Config()
    scope = scope_of(seen, config.pools)
    return dict(requests_of(seen, scope, config, leaves_of(budgets_for(seen, config)))[found.id])


def test_a_plain_job() -> None:
    found = request(job(gpu_type="h100", time_limit=7200, min_runtime=1800, resumable=False))
    assert found == {
        "id": "1",
        "allocation": "nlp/ana",
        "user": "ana",
        "tasks": 1,
        "gpus_per_task": 8,
        "cpus_per_task": 8,
        "memory_gib_per_task": 9,
        "pools": ["h100"],
        "node_labels": {},
        "exclude_nodes": [],
        "min_runtime": 1800,
        "resumable": False,
        "max_runtime": 7200,
    }


@pytest.mark.parametrize(
    ("num_nodes", "gpus", "shape"), [(1, 4, (1, 4)), (1, 16, (2, 8)), (2, 16, (2, 8)), (1, 12, (2, 6)), (1, 18, (3, 6))]
)
def test_gpus_that_may_be_split_get_the_fewest_even_parts(num_nodes: int, gpus: int, shape: tuple[int, int]) -> None:
    found = request(job(num_nodes=num_nodes, gpus=gpus, gpus_per_node=0))
    assert (found["tasks"], found["gpus_per_task"]) == shape


def test_parts_that_could_share_a_node_need_more_than_half_of_it() -> None:
    assert request(job(num_nodes=2, gpus=8, gpus_per_node=4))["cpus_per_task"] == 33
    assert request(job(num_nodes=2, gpus=16, gpus_per_node=8))["cpus_per_task"] == 4
    assert request(job(num_nodes=1, gpus=2, gpus_per_node=2))["cpus_per_task"] == 8


def test_running_work_lies_where_it_lies() -> None:
    even = request(job(state=JobState.RUNNING, nodes=("n1", "n2"), num_nodes=2, gpus=16))
    assert (even["tasks"], even["placement"]) == (2, {"n1": 1, "n2": 1})
    uneven = request(job(state=JobState.RUNNING, nodes=("n1", "n2"), num_nodes=2, gpus=9, gpus_per_node=0))
    assert (uneven["tasks"], uneven["gpus_per_task"], uneven["placement"]) == (9, 1, {"n1": 5, "n2": 4})


def test_qos_defaults_then_the_job_itself() -> None:
    qos: dict[str, dict[str, Any]] = {
        "default": {"min_runtime": 600, "unfunded": "wait"},
        "high": {"min_runtime": 1200, "priority": 5},
    }
    config = Config(qos=qos)
    assert request(job(), config)["min_runtime"] == 600
    high = request(job(qos="high"), config)
    assert (high["min_runtime"], high["unfunded"], high["priority"]) == (1200, "wait", 5)
    assert request(job(qos="high", min_runtime=60), config)["min_runtime"] == 60
    said = request(job(qos="high", comment='{"allocator": {"unfunded": "run", "checkpoint_interval": "30m"}}'), config)
    assert (said["unfunded"], said["checkpoint_interval"]) == ("run", 1800)


@pytest.mark.parametrize("comment", ["training", '{"mine": 1}', "{broken", "[1]", ""])
def test_other_comments_are_nobody_s_business(comment: str) -> None:
    assert request(job(comment=comment)) == request(job())


@pytest.mark.parametrize(
    ("comment", "problem"),
    [
        ('{"allocator": {"allocation": "other"}}', "unknown field `allocation`"),
        ('{"allocator": {"priority": 9}}', "unknown field `priority`"),
        ('{"allocator": {"restart_time": "soon"}}', "no span of time"),
        ('{"allocator": 5}', "Expected `object`"),
        ('{"allocator": {]', "Expected `object`"),
    ],
)
def test_a_comment_that_cannot_be_understood_refuses_a_waiting_job_only(comment: str, problem: str) -> None:
    (refused,) = (name for name in request(job(comment=comment)) if name.startswith("comment"))
    assert problem in refused
    running = job(state=JobState.RUNNING, nodes=("n1",), comment=comment)
    assert not any(name.startswith("comment") for name in request(running))


def test_an_unknown_level_counts_only_while_it_waits() -> None:
    comment = '{"allocator": {"topology": {"required": "rack"}}}'
    assert request(job(comment=comment))["topology"] == {"required": "rack"}  # the reader of the snapshot names the levels
    assert "topology" not in request(job(state=JobState.RUNNING, nodes=("n1",), comment=comment))


def test_features_are_labels_where_they_can_be_and_excluded_nodes_where_not() -> None:
    assert request(job(features="h100&ib"))["node_labels"] == {"h100": "yes", "ib": "yes"}
    either = request(job(features="a100|gold"))
    assert (either["node_labels"], either["exclude_nodes"]) == ({}, ["n1", "n2"])
    assert request(job(exclude=("n2", "unknown")))["exclude_nodes"] == ["n2"]


def test_partitions_keep_jobs_to_their_nodes() -> None:
    nodes = (node("n1"), node("n2", partitions=("other",)), node("a1", "a100", partitions=("other",)))
    found = request(job(), nodes=nodes)
    assert (found["pools"], found["exclude_nodes"]) == (["h100"], ["n2"])


def test_who_pays() -> None:
    budgets = ({"id": "nlp", "parent": None, "share": 1}, {"id": "vision", "parent": None, "share": 1})
    import msgspec

    from allocator.wire.snapshot_doc import AllocationDoc

    config = Config(budgets=tuple(msgspec.convert(row, AllocationDoc) for row in budgets))
    assert request(job(), config)["allocation"] == "nlp"
    assert request(job(account="gone"), config)["allocation"] == "gone/ana"  # refused by name, as unknown


def test_pools_are_handed_over_one_by_one() -> None:
    on_both = job("1", gpu_type=None)
    typed, other = job("2", gpu_type="h100"), job("3", gpu_type="a100")
    running = job("4", state=JobState.RUNNING, nodes=("a1",))
    ended, without = job("5", state=JobState.ENDED), job("6", gpus=0, gpus_per_node=0)
    strange = job("7", problem="heterogeneous")
    seen = view(on_both, typed, other, running, ended, without, strange)
    assert set(scope_of(seen, frozenset({"h100"})).jobs) == {"2"}
    assert set(scope_of(seen, frozenset()).jobs) == {"1", "2", "3", "4"}
    assert set(scope_of(seen, frozenset({"h100"})).pools) == {"n1", "n2"}


def test_separate_fabrics_are_pools_of_their_own() -> None:
    fabric = Fabric(levels=("cluster", "node"), domains={"n1": ("east",), "n2": ("west",), "a1": ("west",)})
    assert scope_of(view(fabric=fabric), frozenset()).pools == {"n1": "h100-east", "n2": "h100-west", "a1": "a100-west"}
