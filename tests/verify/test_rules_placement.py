"""Where work lies: for each rule a decision that holds and one that is broken at one place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.builders import HOUR, NOW, budget, decision, job, node, nodes, running, snapshot, start, stop
from tests.verify.judge import broken, details


def test_capacity_counts_gpus() -> None:
    snap = snapshot(nodes(2), [budget("a")], [job("w1"), job("w2")])
    assert broken(snap, decision(snap, [start("w1", {"n1": 1}), start("w2", {"n2": 1})])) == ()
    answer = decision(snap, [start("w1", {"n1": 1}), start("w2", {"n1": 1})])
    assert broken(snap, answer) == ("capacity",)
    assert "n1: 16 of 8 GPUs would be in use by w1, w2" in details(snap, answer)


@pytest.mark.parametrize("resource", ["cpus", "memory_gib"])
def test_capacity_counts_cpus_and_memory(resource: str) -> None:
    needs: dict[str, Any] = {f"{resource}_per_task": 40}
    snap = snapshot(
        nodes(2, **dict[str, Any]({resource: 64})),
        [budget("a")],
        [running("old", "a", {"n1": 1}, 1, **needs), job("w", "a", 1, **needs)],
    )
    assert broken(snap, decision(snap, [start("w", {"n2": 1})])) == ()
    assert broken(snap, decision(snap, [start("w", {"n1": 1})])) == ("capacity",)


def test_capacity_counts_kept_work() -> None:
    snap = snapshot(nodes(2), [budget("a")], [running("old", "a", {"n1": 1}), job("w")])
    assert broken(snap, decision(snap, [start("w", {"n2": 1})])) == ()
    assert broken(snap, decision(snap, [start("w", {"n1": 1})])) == ("capacity",)


def test_gang_runs_whole() -> None:
    snap = snapshot(nodes(3), [budget("a")], [job("w", gpus=24)])
    whole = {"n1": 1, "n2": 1, "n3": 1}
    assert broken(snap, decision(snap, [start("w", whole)])) == ()
    assert broken(snap, decision(snap, [start("w", {"n1": 1, "n2": 1})])) == ("gang",)
    assert broken(snap, decision(snap, [start("w", {})])) == ("gang",)
    assert broken(snap, decision(snap, [start("w", whole | {"n3": -1})])) == ("gang",)
    assert broken(snap, decision(snap, [start("w", whole), start("w", whole)])) == ("gang",)


def test_gang_runs_in_one_pool() -> None:
    machines = [*nodes(2), *nodes(2, prefix="b", pool="b200")]
    snap = snapshot(machines, [budget("a")], [job("w", gpus=16)])
    assert broken(snap, decision(snap, [start("w", {"b1": 1, "b2": 1})])) == ()
    answer = decision(snap, [start("w", {"n1": 1, "b1": 1})])
    assert broken(snap, answer) == ("gang",)
    assert "spread over the pools b200, h100" in details(snap, answer)


def test_gang_that_runs_is_not_started_again() -> None:
    snap = snapshot(nodes(2), [budget("a")], [running("w", "a", {"n1": 1})])
    assert broken(snap, decision(snap)) == ()
    assert "gang" in broken(snap, decision(snap, [start("w", {"n2": 1})]))


def test_single_node_task() -> None:
    snap = snapshot([node("n1"), node("s1", gpus=4), node("s2", gpus=4)], [budget("a")], [job("w")])
    good = decision(snap, [start("w", {"n1": 1})])
    assert broken(snap, good) == ()
    halves = replace(good.starts[0], placement={"s1": 0.5, "s2": 0.5})  # type: ignore[dict-item]
    assert "single_node_task" in broken(snap, replace(good, starts=(halves,)))
    assert "single_node_task" in broken(snap, decision(snap, [start("w", {"s1": 1})]))


def test_topology_required_level() -> None:
    snap = snapshot(nodes(8), [budget("a")], [job("w", gpus=16, required="rack")])
    assert broken(snap, decision(snap, [start("w", {"n5": 1, "n6": 1})])) == ()
    answer = decision(snap, [start("w", {"n4": 1, "n5": 1})])
    assert broken(snap, answer) == ("topology",)
    assert "must lie in one rack, but is placed on 2 domains" in details(snap, answer)


def test_topology_domains_are_whole_paths() -> None:
    machines = [node("n1", domains=("east", "r1")), node("n2", domains=("west", "r1")), node("n3", domains=("west", "r1"))]
    snap = snapshot(machines, [budget("a")], [job("w", gpus=16, required="rack")])
    assert broken(snap, decision(snap, [start("w", {"n2": 1, "n3": 1})])) == ()
    assert broken(snap, decision(snap, [start("w", {"n1": 1, "n2": 1})])) == ("topology",)


def test_topology_segments_leave_one_remainder() -> None:
    snap = snapshot(nodes(8), [budget("a")], [job("w", gpus=40, segment=("rack", 2))])
    good = {"n1": 1, "n2": 1, "n5": 1, "n6": 1, "n7": 1}
    assert broken(snap, decision(snap, [start("w", good)])) == ()
    assert broken(snap, decision(snap, [start("w", dict.fromkeys(("n1", "n2", "n3", "n4", "n5"), 1))])) == ()
    snap = snapshot(nodes(8), [budget("a")], [job("w", gpus=32, segment=("rack", 2))])
    assert broken(snap, decision(snap, [start("w", dict.fromkeys(("n1", "n5", "n6", "n7"), 1))])) == ("topology",)


def test_eligibility() -> None:
    machines = [node("n1", labels={"arch": "arm"}), node("n2", labels={"arch": "x86"}), node("b1", pool="b200")]
    for wish in ({"node_labels": {"arch": "x86"}}, {"pools": ("h100",), "exclude_nodes": ("n1",)}):
        snap = snapshot(machines, [budget("a")], [job("w", **wish)])
        assert broken(snap, decision(snap, [start("w", {"n2": 1})])) == ()
        assert broken(snap, decision(snap, [start("w", {"n1": 1})])) == ("eligibility",)
        assert broken(snap, decision(snap, [start("w", {"b1": 1})])) == ("eligibility",)


def test_eligibility_of_nodes_that_do_not_exist() -> None:
    snap = snapshot(nodes(1), [budget("a")], [job("w")])
    good = decision(snap, [start("w", {"n1": 1})])
    elsewhere = replace(good, starts=(replace(good.starts[0], placement={"n9": 1}),))
    assert "eligibility" in broken(snap, elsewhere)
    assert "'n9', which is no node" in details(snap, elsewhere)


def test_eligibility_needs_a_leaf() -> None:
    snap = snapshot(nodes(1), [budget("a"), budget("leaf", parent="a")], [job("w", "a")])
    assert broken(snap, decision(snap)) == ()
    answer = decision(snap, [start("w", {"n1": 1})])
    assert "eligibility" in broken(snap, answer)
    assert "belongs to a, which is no leaf" in details(snap, answer)


@pytest.mark.parametrize("state", ["drain", "down"])
def test_health_of_starts(state: str) -> None:
    snap = snapshot([node("n1", state=state), node("n2")], [budget("a")], [job("w")])
    assert broken(snap, decision(snap, [start("w", {"n2": 1})])) == ()
    assert broken(snap, decision(snap, [start("w", {"n1": 1})])) == ("health",)


def test_health_of_promises_before_a_drain() -> None:
    machines = [node("n1", drain_deadline=NOW + HOUR), node("n2", drain_deadline=NOW + 2 * HOUR)]
    snap = snapshot(machines, [budget("a")], [job("w")])
    assert broken(snap, decision(snap, [start("w", {"n2": 1})])) == ()
    answer = decision(snap, [start("w", {"n1": 1})])
    assert broken(snap, answer) == ("health",)
    assert f"until {NOW + 2 * HOUR}, but it drains at {NOW + HOUR}" in details(snap, answer)


def test_health_allows_unallocated_work_before_a_drain() -> None:
    snap = snapshot([node("n1", drain_deadline=NOW + HOUR)], [budget("a")], [job("w", min_runtime=0)])
    assert broken(snap, decision(snap, [start("w", {"n1": 1})])) == ()


@pytest.mark.parametrize(
    ("machine", "until"),
    [
        ({"state": "down"}, NOW + HOUR),
        ({"state": "drain"}, NOW),
        ({"state": "drain", "drain_deadline": NOW}, NOW + HOUR),
        ({"drain_deadline": NOW}, NOW + HOUR),
    ],
)
def test_health_moves_work_off(machine: dict[str, Any], until: int) -> None:
    snap = snapshot([node("n1", **machine)], [budget("a")], [running("w", "a", {"n1": 1}, protected_until=until)])
    good = decision(snap, stops=[stop("w")])
    assert broken(snap, good) == ()
    assert broken(snap, decision(snap)) == ("health",)


def test_health_leaves_protected_work_on_a_draining_node() -> None:
    works = [running("w", "a", {"n1": 1}, protected_until=NOW + HOUR)]
    snap = snapshot([node("n1", state="drain")], [budget("a")], works)
    assert broken(snap, decision(snap)) == ()
    assert "protection" in broken(snap, decision(snap, stops=[stop("w")]))
