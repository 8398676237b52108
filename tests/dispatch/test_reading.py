"""Reading Slurm: every form of one situation gives the same facts, and what real clusters print can be read."""

from __future__ import annotations

import gzip
import json
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from allocator.dispatch.facts import JobState, NodeCondition
from allocator.dispatch.features import fulfils, plain_labels
from allocator.dispatch.slurm import values
from allocator.dispatch.slurm.accounts import read_associations, read_tree
from allocator.dispatch.slurm.jobs import read_jobs
from allocator.dispatch.slurm.nodes import are_unknown, read_fabric, read_nodes
from allocator.dispatch.slurm.text import job_records, node_records
from tests.dispatch import samples
from tests.dispatch.samples import NOW
from tests.generate.checks import shared_file


@pytest.fixture
def utc() -> Iterator[None]:
    """Times in the text samples are local ones, of a host on UTC."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = "UTC"
    time.tzset()
    yield
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


def test_what_each_job_is() -> None:
    jobs = read_jobs(samples.jobs(), NOW)
    running = jobs["1"]
    assert (running.state, running.nodes) == (JobState.RUNNING, ("n01", "n02"))
    assert (running.num_nodes, running.gpus, running.gpus_per_node) == (2, 16, 8)
    assert (running.min_runtime, running.time_limit, running.start_time) == (1800, 7200, 1_795_992_568)
    assert running.features == "h100&ib"
    split = jobs["2"]
    assert (split.state, split.held, split.gpus, split.gpus_per_node) == (JobState.WAITING, True, 16, 0)
    tasks = jobs["4"]
    assert (tasks.gpus, tasks.gpus_per_node, tasks.exclude, tasks.resumable) == (4, 4, ("n03",), False)
    assert (jobs["5"].eligible, jobs["5"].gpu_type) == (False, "h100")  # a dependency
    assert not jobs["6"].eligible  # a begin time
    assert (jobs["7"].state, jobs["7"].end_time) == (JobState.ENDED, 1_795_992_569)
    requeued = jobs["8"]
    assert (requeued.incarnation, requeued.held, requeued.wanted_nodes) == (1, True, ("n03",))
    assert requeued.eligible, "the begin time that Slurm sets at a requeue is not the user's"


def test_an_array_shows_no_more_tasks_than_may_run() -> None:
    jobs = read_jobs(samples.jobs(), NOW)
    assert jobs["3_1"].state is JobState.RUNNING
    assert {key for key in jobs if key.startswith("3_")} == {"3_1", "3_0"}  # two at a time, one of them runs
    free = [record | {"array_task_string": "5-7"} if record["job_id"] == 3 else record for record in samples.jobs()]
    free = [record | {"array_max_tasks": 0} for record in free]
    assert {key for key in read_jobs(free, NOW) if key.startswith("3_")} == {"3_1", "3_5", "3_6", "3_7"}
    apart = {"array_job_id": 3, "array_task_id": 2, "job_id": 10, "array_task_string": ""}
    both = [*samples.jobs(), *({**record, **apart} for record in samples.jobs() if record["job_id"] == 3)]
    facts = read_jobs(both, NOW)
    assert [facts[key].eligible for key in ("3_2",)] == [True]
    assert "3_0" not in facts


def test_newer_json_says_the_same() -> None:
    old, new = read_jobs(samples.jobs(), NOW), read_jobs(map(samples.modern_job, samples.jobs()), NOW)
    assert new == old
    assert read_nodes(map(samples.modern_node, samples.nodes())) == read_nodes(samples.nodes())


@pytest.mark.usefixtures("utc")
def test_text_says_the_same() -> None:
    from dataclasses import replace

    old = read_jobs(samples.jobs(), NOW)
    new = read_jobs(job_records(samples.text("scontrol_jobs_2205.txt")), NOW)
    assert {key: replace(job, reason="") for key, job in new.items()} == {
        key: replace(job, reason="") for key, job in old.items()
    }
    assert read_nodes(node_records(samples.text("scontrol_nodes_2205.txt"))) == read_nodes(samples.nodes())


def test_nodes_and_topology() -> None:
    nodes = read_nodes(samples.nodes())
    conditions = [nodes[name].condition for name in ("n01", "n03", "n04")]
    assert conditions == [NodeCondition.OPEN, NodeCondition.DRAIN, NodeCondition.DOWN]
    assert (nodes["n01"].gpus, nodes["n01"].gpu_type, nodes["n01"].cpus) == (8, "h100", 64)
    assert nodes["n03"].reason == "xid 79"
    fabric = read_fabric(samples.text("scontrol_topology_2205.txt"))
    assert fabric.levels == ("cluster", "leaf", "node")
    assert fabric.domains["n03"] == ("spine", "leaf2")
    assert read_fabric("") == read_fabric("topology/none")


@pytest.mark.parametrize(
    ("state", "condition"),
    [
        ("IDLE*", NodeCondition.CLOSED),
        ("IDLE~", NodeCondition.CLOSED),
        ("MIXED+DRAIN", NodeCondition.DRAIN),
        ("DOWN*+DRAIN", NodeCondition.DOWN),
        ("ALLOCATED+COMPLETING", NodeCondition.OPEN),
        ("IDLE+MAINT+RESERVED", NodeCondition.CLOSED),
        ("IDLE+POWERED_DOWN", NodeCondition.CLOSED),
        ("FAIL", NodeCondition.DRAIN),
    ],
)
def test_states_of_nodes(state: str, condition: NodeCondition) -> None:
    records = node_records(f"NodeName=n1 CPUTot=8 Gres=gpu:4 State={state} Reason=a b [root@2026-01-01T00:00:00]")
    node = read_nodes(records)["n1"]
    assert node.condition is condition
    assert (node.gpus, node.gpu_type, node.reason) == (4, None, "a b")


def test_nodes_that_have_not_reported_are_named() -> None:
    assert are_unknown([{"name": "n2", "state": ["UNKNOWN"]}, {"name": "n1", "state": "idle"}]) == ["n2"]


def test_the_association_tree() -> None:
    tree = {vertex.id: vertex for vertex in read_tree(samples.text("sacctmgr_tree_2205.txt"))}
    assert list(tree) == ["nlp", "nlp/root", "root/root", "vision", "vision/root"]
    nlp = tree["nlp"]
    assert (nlp.parent, int(nlp.share), nlp.gpu_limit, nlp.funds) == (None, 60, 24, True)
    assert (tree["nlp/root"].parent, tree["nlp/root"].funds) == ("nlp", False)
    assert (tree["root/root"].parent, tree["vision"].gpu_limit) == (None, None)


def test_the_association_tree_of_newer_versions() -> None:
    limit = {"tres": {"total": [{"type": "gres", "name": "gpu", "count": 24}]}}
    rows = [
        {"account": "root", "user": "", "parent_account": "", "shares_raw": 1},
        {"account": "nlp", "user": "", "parent_account": "root", "shares_raw": 60, "max": limit},
        {"account": "nlp", "user": "ana", "parent_account": "", "shares_raw": 2**31 - 1},
        {"account": "nlp", "user": "ana", "parent_account": "", "shares_raw": 7, "partition": "b"},
    ]
    tree = {vertex.id: vertex for vertex in read_associations(rows)}
    assert (int(tree["nlp"].share), tree["nlp"].gpu_limit, tree["nlp"].parent) == (60, 24, None)
    assert tree["nlp/ana"].share == 1, "parent counts like a sibling; the first of several rows counts"


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (7, 7),
        (None, None),
        ({"set": True, "infinite": False, "number": 3}, 3),
        ({"set": True, "infinite": True, "number": 0}, None),
        ({"set": False, "infinite": False, "number": 0}, None),
        ("12", 12),
        ("N/A", None),
    ],
)
def test_numbers(value: Any, found: int | None) -> None:
    assert values.number(value) == found


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("gres:gpu:h100:8", (8, "h100")),
        ("gres:gpu:8", (8, None)),
        ("gres/gpu:4", (4, None)),
        ("gpu:h100:4(S:0-1)", (4, "h100")),
        ("gpu:a100:2,gpu:a100:2,nic:1", (4, "a100")),
        ("cpu=64,mem=64G,node=2,gres/gpu=16,gres/gpu:h100=16", (16, "h100")),
        ("gres:gpu", (1, None)),
        ("cpu=1", (0, None)),
        ("(null)", (0, None)),
    ],
)
def test_gpus(value: str, found: tuple[int, str | None]) -> None:
    assert values.gpus(value) == found


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("02:00:00", 7200),
        ("7-00:00:00", 604_800),
        ("30:00", 1800),
        ("UNLIMITED", None),
        (60, 3600),
        (0, None),
        ("1-12", 129_600),
    ],
)
def test_spans(value: Any, found: int | None) -> None:
    assert values.minutes(value) == found


@pytest.mark.parametrize(
    ("value", "found"), [("62.50G", 64_000), ("512M", 512), ("1T", 1 << 20), (None, 0), ("100K", 1), ("x", 0)]
)
def test_sizes(value: Any, found: int) -> None:
    assert values.mebibytes(value) == found


@pytest.mark.parametrize(
    ("expression", "features", "found"),
    [
        ("h100&ib", {"h100", "ib"}, True),
        ("h100|a100", {"a100"}, True),
        ("[rack1|rack2]&ib", {"rack2", "ib"}, True),
        ("[rack1|rack2]&ib", {"rack2"}, False),
        ("(a|b)&(c|d)", {"b", "d"}, True),
        ("a&b|c", {"c"}, True),
        ("!a", {"b"}, True),
        ("ib*2", {"ib"}, True),
        ("a&", {"a"}, False),
    ],
)
def test_features(expression: str, features: set[str], found: bool) -> None:
    assert fulfils(expression, features) is found


def test_plain_features_are_labels() -> None:
    assert plain_labels("h100&ib") == ["h100", "ib"]
    assert plain_labels("") == []
    assert plain_labels("a|b") is None


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("slurm2108_squeue.json", "jobs"),
        ("slurm2108_sinfo.json", "nodes"),
        ("slurm2405_jobs.json.gz", "jobs"),
        ("slurm2405_job-gpus-multi-nodes.json", "jobs"),
        ("slurm2405_job-gpus-pending.json", "jobs"),
        ("slurm2405_job-gpus-type.json", "jobs"),
        ("slurm2405_nodes.json.gz", "nodes"),
        ("slurm2405_node-with-gpus-model-allocated.json", "nodes"),
    ],
)
def test_what_real_clusters_print_is_read(name: str, kind: str) -> None:
    path = shared_file(f"slurm/{name}")
    records = json.loads(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())[kind]
    found: dict[str, Any] = dict(read_jobs(records, 1_800_000_000) if kind == "jobs" else read_nodes(records))
    assert len(found) >= len(records)
    if name == "slurm2405_job-gpus-pending.json":
        assert [(job.gpus, job.state) for job in found.values()] == [(4, JobState.WAITING)]
    if name == "slurm2405_job-gpus-multi-nodes.json":
        assert all(job.gpus == len(job.nodes) * job.gpus_per_node or job.gpus_per_node == 0 for job in found.values())
    if name == "slurm2405_node-with-gpus-model-allocated.json":
        assert [(node.gpus, node.gpu_type, node.condition) for node in found.values()] == [(4, "h100", NodeCondition.OPEN)]
    if name == "slurm2108_squeue.json":
        assert found["26515966"].features == "a100-80gb&preemptible&gpu-1"


def test_associations_of_a_real_cluster_are_read() -> None:
    path = shared_file("slurm/slurm2405_slurmdb-associations.json.gz")
    tree = read_associations(json.loads(gzip.decompress(path.read_bytes()))["associations"])
    ids = {vertex.id for vertex in tree}
    assert {vertex.parent for vertex in tree} - {None} <= ids
    assert len(tree) > 10
