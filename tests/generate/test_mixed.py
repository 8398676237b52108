"""The family `mixed`: determinism, consistency, and the marginals that it promises."""

from __future__ import annotations

from collections import Counter

import pytest

from allocator.domain import NodeState, SnapshotError
from allocator.generate import FAMILIES, generate_snapshot
from allocator.wire import decode_snapshot, encode_snapshot
from tests.generate.checks import budget_of, complaints, runs, usage_and_promises


@pytest.mark.parametrize("pools", [1, 3])
@pytest.mark.parametrize("history", [True, False])
@pytest.mark.parametrize("gpus", [64, 1024, 2048])
def test_a_snapshot_agrees_with_itself(gpus: int, history: bool, pools: int) -> None:
    for seed in range(3):
        assert complaints(generate_snapshot(gpus=gpus, seed=seed, pools=pools, history=history)) == []


@pytest.mark.parametrize("pools", [1, 3])
def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not(pools: int) -> None:
    first, again, other = (encode_snapshot(generate_snapshot(gpus=512, seed=seed, pools=pools)) for seed in (7, 7, 8))
    assert first == again
    assert first != other


@pytest.mark.parametrize("history", [True, False])
def test_the_wire_gives_back_what_it_took(history: bool) -> None:
    snapshot = generate_snapshot(gpus=1024, seed=5, pools=3, history=history)
    assert decode_snapshot(encode_snapshot(snapshot)) == snapshot


@pytest.mark.parametrize(("gpus", "leaves"), [(1024, 60), (102_400, 640)])
def test_the_number_of_researchers_follows_the_size(gpus: int, leaves: int) -> None:
    snapshot = generate_snapshot(gpus=gpus, seed=1, queue=1.0, history=False)
    assert sum(not vertex.funds for vertex in snapshot.budgets) == leaves


@pytest.mark.parametrize("leaves", [1, 2, 9, 100, 300])
def test_any_number_of_leaves_can_be_asked_for(leaves: int) -> None:
    snapshot = generate_snapshot(gpus=64, seed=1, leaves=leaves)
    parents = {vertex.parent for vertex in snapshot.budgets}
    assert sum(vertex.id not in parents for vertex in snapshot.budgets) == leaves
    assert complaints(snapshot) == []


@pytest.mark.parametrize("queue", [1.0, 2.5, 4.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_demand_is_the_asked_multiple_of_the_cluster(queue: float, seed: int) -> None:
    snapshot = generate_snapshot(gpus=1024, seed=seed, queue=queue)
    demand = sum(work.gpus for work in snapshot.workloads)
    assert demand == pytest.approx(queue * 1024, rel=0.1)


@pytest.mark.parametrize("seed", range(3))
def test_the_cluster_is_nearly_full_and_a_few_nodes_are_not_well(seed: int) -> None:
    snapshot = generate_snapshot(gpus=1024, seed=seed)
    held = sum(work.gpus for work, _ in runs(snapshot))
    assert 0.94 * 1024 <= held <= 1024
    states = Counter(node.state for node in snapshot.cluster.nodes)
    assert states[NodeState.DOWN] >= 1
    assert states[NodeState.DRAIN] >= 1
    assert any(node.drain_deadline for node in snapshot.cluster.nodes)


def test_work_is_in_every_state() -> None:
    snapshot = generate_snapshot(gpus=4096, seed=1)
    now = snapshot.now
    states = Counter(
        ("express" if run.express else "charged", (run.protected_until or 0) > now)
        if run.charged
        else ("free", work.min_runtime > 0)
        for work, run in runs(snapshot)
    )
    assert set(states) == {(kind, flag) for kind in ("express", "charged", "free") for flag in (True, False)}
    promises = {run.protected_until for _, run in runs(snapshot) if (run.protected_until or 0) > now}
    assert len(promises) > 20, "promises end at different times"
    assert any(run.charged_since != run.start_time for _, run in runs(snapshot) if run.charged), "something was promoted"


def test_the_queue_has_gangs_wishes_and_work_that_was_stopped() -> None:
    waiting = [work for work in generate_snapshot(gpus=1024, seed=1).workloads if work.run is None]
    assert max(work.gpus for work in waiting) >= 256
    assert {work.job_class for work in waiting} >= {"debug", "eval", "experiment", "ablation"}
    assert {work.topology.preferred for work in waiting} >= {None, "leaf", "su"}
    assert any(work.stopped is not None for work in waiting)
    many = [work for seed in range(4) for work in generate_snapshot(gpus=2048, seed=seed).workloads]
    assert any(work.topology.required == "leaf" for work in many)
    assert all(work.min_runtime == 0 for work in many if work.job_class == "eval")


@pytest.mark.parametrize("seed", range(3))
def test_history_puts_some_projects_ahead_and_some_behind(seed: int) -> None:
    snapshot = generate_snapshot(gpus=4096, seed=seed)
    usage = usage_and_promises(snapshot)
    projects = [vertex.id for vertex in snapshot.budgets if vertex.funds and "/" in vertex.id]
    parts = [usage[project, "h100"][0] / budget_of(snapshot, project, "h100") for project in projects]
    assert max(parts) > 0.93, "some project is near or over its budget"
    assert min(parts) < 0.7, "some project is far behind"
    total, _ = usage["org", "h100"]
    assert 0.6 < total / (4096 * snapshot.policy.window) < 1.0
    assert not generate_snapshot(gpus=1024, seed=seed, history=False).usage


def test_gangs_lie_compactly() -> None:
    """In a cluster of units of 32 nodes no gang touches more than two units more than it must."""
    snapshot = generate_snapshot(gpus=4096, seed=2)
    unit = {node.name: node.domains[1] for node in snapshot.cluster.nodes}
    for work, run in runs(snapshot):
        assert len({unit[name] for name in run.placement}) <= -(-work.gpus // 256) + 2


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"gpus": 63}, "gpus"),
        ({"gpus": 0}, "gpus"),
        ({"gpus": 16, "pools": 3}, "gpus"),
        ({"pools": 2}, "pools"),
        ({"queue": -1.0}, "queue"),
        ({"leaves": 0}, "leaves"),
        ({"seed": -1}, "seed"),
        ({"family": "mixd"}, "family"),
    ],
)
def test_what_cannot_be_generated_is_refused_with_a_remedy(options: dict[str, object], place: str) -> None:
    with pytest.raises(SnapshotError) as caught:
        generate_snapshot(**options)  # type: ignore[arg-type]
    assert [issue.path for issue in caught.value.issues] == [place]
    assert "give" in caught.value.issues[0].remedy


def test_every_family_is_described() -> None:
    assert all((family.__doc__ or "").strip() for family in FAMILIES.values())
