"""The queue, home pools, healthy placement, and demand up the tree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.domain import LastStop, NodeState, TopologyWish, Workload
from allocator.entitlement import Entitlement, entitle
from allocator.entitlement.contract import Contract, read_contract
from allocator.entitlement.demand import queue_order
from allocator.topology import IntArray, build_layout
from tests.entitlement.builders import HOUR, NOW, allocation, drained, node, running, snapshot, work


def queue(*works: Workload) -> list[str]:
    """Ids in queue order."""
    ordered = sorted(works, key=lambda one: one.id)
    leaves = sorted({one.allocation for one in works})
    case = snapshot([node("n")], [allocation(leaf) for leaf in leaves], ordered)
    leaf = np.array([leaves.index(one.allocation) for one in ordered])
    order = queue_order(_contract(case), leaf, np.ones(len(works), dtype=bool))
    return [ordered[row].id for row in order]


def _contract(case: Any) -> Contract:
    return read_contract(case, build_layout(case))


def test_the_queue_goes_by_submit_time_then_id() -> None:
    assert queue(work("a", submit_time=3), work("b", submit_time=1), work("c", "B", submit_time=1)) == ["b", "c", "a"]


def test_priority_moves_work_inside_the_places_of_its_leaf_only() -> None:
    # A holds the places 1 and 3, B the place 2: the urgent work of A takes the first of A's, and does not pass B by more.
    a1, a2 = work("a1", submit_time=1), work("a2", submit_time=3, priority=5)
    assert queue(a1, work("b", "B", submit_time=2), a2) == ["a2", "b", "a1"]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(-1, 1)), min_size=1, max_size=9))
def test_the_queue_agrees_with_its_definition(drawn: list[tuple[int, int, int]]) -> None:
    works = [work(f"w{i}", "ABC"[leaf], submit_time=at, priority=how) for i, (leaf, at, how) in enumerate(drawn)]
    places = sorted(works, key=lambda one: (one.submit_time, one.id))
    urgent = {leaf: sorted(places, key=lambda one: (-one.priority, one.submit_time, one.id)) for leaf in "ABC"}
    waiting = {leaf: iter([one for one in urgent[leaf] if one.allocation == leaf]) for leaf in "ABC"}
    assert queue(*works) == [next(waiting[place.allocation]).id for place in places]


def two_pools(*works: Workload) -> Entitlement:
    nodes = [node("a1", pool="a"), node("b1", pool="b"), node("b2", pool="b")]
    return entitle(snapshot(nodes, [allocation("A")], works))


@pytest.mark.parametrize(
    ("one", "home"),
    [
        pytest.param(work("w"), 1, id="none named: the largest"),
        pytest.param(work("w", pools=("x", "a", "b")), 0, id="the first that exists"),
        pytest.param(work("w", pools=("x",)), -1, id="none exists"),
        pytest.param(running("w", "a1", pools=("b", "a")), 0, id="where it runs"),
        pytest.param(running("w", "a1", since=0, granted_at=NOW), 1, id="started now: where it counted as it waited"),
        pytest.param(work("w", stopped=LastStop(at=NOW, pool="a", gpus=1, charged=True)), 0, id="where it was stopped now"),
        pytest.param(work("w", stopped=LastStop(at=NOW - 1, pool="a", gpus=1, charged=True)), 1, id="stopped earlier"),
    ],
)
def test_home_pool(one: Workload, home: int) -> None:
    assert two_pools(one).works.home.tolist() == [home]


def test_equal_pools_go_by_name() -> None:
    ent = entitle(snapshot([node("n1", pool="b"), node("n2", pool="a")], [allocation("A")], [work("w")]))
    assert ent.works.home.tolist() == [0]


def by_id(ent: Entitlement, values: IntArray) -> dict[str, int]:
    return {key: int(values[vertex, 0]) for vertex, key in enumerate(ent.tree.ids) if key}


def test_demand_is_charged_work_and_what_waits_with_funds() -> None:
    # Charged 4 (2 of them protected), uncharged with a min runtime 1, unallocated 1 running and 8 waiting, waiting 8.
    works = [
        running("r1", "n1", gpus=2, protected_until=NOW + 1),
        running("r2", "n1", gpus=2, protected_until=NOW),
        running("r3", "n1", gpus=1, charged=False),
        running("r4", "n1", gpus=1, charged=False, min_runtime=0),
        work("w1", gpus=8, min_runtime=0),
        work("w2", gpus=8),
    ]
    ent = entitle(snapshot([node("n1"), node("n2")], [allocation("P"), allocation("A", parent="P")], works))
    assert by_id(ent, ent.market.held) == {"P": 4, "A": 4}
    assert by_id(ent, ent.market.floor) == {"P": 2, "A": 2}
    assert by_id(ent, ent.market.demand) == {"P": 13, "A": 13}


def test_limits_cap_demand_on_the_way_up_but_not_what_is_promised() -> None:
    budgets = [allocation("P", gpu_limit=10), allocation("A", parent="P", gpu_limit=4), allocation("B", parent="P")]
    works = [*(work(f"a{i}") for i in range(6)), *(work(f"b{i}", "B") for i in range(9))]
    ent = entitle(snapshot([node("n1"), node("n2")], budgets, works))
    # A 6 capped to 4, B 9, together 13 capped to 10.
    assert by_id(ent, ent.market.demand) == {"P": 10, "A": 4, "B": 9}
    promised = [running(f"r{i}", "n1", protected_until=NOW + 1) for i in range(6)]
    ent = entitle(snapshot([node("n1"), node("n2")], budgets, promised))
    assert by_id(ent, ent.market.demand) == {"P": 6, "A": 6, "B": 0}


def test_what_must_stop_is_wanted_but_has_no_floor() -> None:
    ent = entitle(snapshot([drained("n1", NOW), node("n2")], [allocation("A")], [running("r", "n1", gpus=4)]))
    assert by_id(ent, ent.market.held) == {"A": 4}
    assert by_id(ent, ent.market.floor) == {"A": 0}
    assert by_id(ent, ent.market.demand) == {"A": 4}


def test_what_can_be_handed_out() -> None:
    nodes = [node("up"), node("announced", drain_deadline=NOW + 1), node("due", drain_deadline=NOW), drained("drain")]
    nodes.append(node("down", state=NodeState.DOWN))
    works = [
        running("kept", "drain", gpus=3, protected_until=NOW + 1),
        running("leaves", "drain", gpus=2, protected_until=NOW),
        running("broken", "due", gpus=4, protected_until=NOW + 1),
    ]
    ent = entitle(snapshot(nodes, [allocation("A")], works))
    assert ent.market.installed.tolist() == [40]
    assert ent.market.schedulable.tolist() == [8 + 8 + 3]


def judged(one: Workload, *nodes: Any, levels: tuple[str, ...] = ("cluster", "node")) -> tuple[str | None, bool, bool]:
    """Reason why it can never start, whether it may start now, whether it counts in the demand."""
    ent = entitle(snapshot(nodes or [node("n1"), node("n2")], [allocation("A")], [one], levels=levels))
    reason = ent.works.impossible.get(0)
    return (None if reason is None else reason[0]), bool(ent.works.candidate[0]), bool(ent.works.funded[0])


INVALID, NO_PLACE = "invalid_request", "topology_impossible"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        pytest.param({"pools": ("x",)}, INVALID, id="no such pool"),
        pytest.param({"gpus_per_task": 9}, INVALID, id="more GPUs than a node has"),
        pytest.param({"cpus_per_task": 65}, INVALID, id="more CPUs than a node has"),
        pytest.param({"memory_gib_per_task": 257}, INVALID, id="more memory than a node has"),
        pytest.param({"gpus_per_task": 8, "cpus_per_task": 64}, INVALID, id="no node has both"),
        pytest.param({"node_labels": {"arch": "z"}}, INVALID, id="no such label"),
        pytest.param({"node_labels": {"arch": "x", "disk": "fast"}}, INVALID, id="labels on different nodes"),
        pytest.param({"exclude_nodes": ("n1", "n2")}, INVALID, id="all excluded"),
        pytest.param({"allocation": "Z"}, INVALID, id="no such allocation"),
        pytest.param({"tasks": 13}, NO_PLACE, id="more than the pool"),
        pytest.param({"tasks": 9, "topology": TopologyWish(required="node")}, NO_PLACE, id="more than a domain"),
        pytest.param({"topology": TopologyWish(required="rack")}, NO_PLACE, id="no such level"),
        pytest.param({"tasks": 12}, None, id="the whole pool"),
    ],
)
def test_what_can_never_start(fields: dict[str, Any], reason: str | None) -> None:
    nodes = [
        node("n1", 8, cpus=32, memory_gib=256, labels={"arch": "x"}),
        node("n2", 4, cpus=64, memory_gib=128, labels={"disk": "fast"}),
    ]
    assert judged(work("w", **fields), *nodes)[0] == reason


def test_what_only_waits_for_nodes_to_come_back_is_not_impossible() -> None:
    gang = work("w", gpus=16)
    assert judged(gang) == (None, True, True)
    assert judged(gang, node("n1"), node("n2", state=NodeState.DOWN)) == (None, False, False)
    assert judged(gang, node("n1"), drained("n2", NOW + 9 * HOUR)) == (None, False, False)


def test_a_promise_that_outlasts_the_drain_is_no_demand() -> None:
    one = work("w", gpus=16, min_runtime=HOUR)
    assert judged(one, node("n1"), node("n2", drain_deadline=NOW + HOUR)) == (None, True, True)
    assert judged(one, node("n1"), node("n2", drain_deadline=NOW + HOUR - 1)) == (None, True, False)


def test_an_orphan_keeps_running_under_a_share_of_zero() -> None:
    gone, inner = running("r", "n1", leaf="gone", gpus=2, protected_until=NOW + 1), running("s", "n1", leaf="P")
    budgets = [allocation("P"), allocation("A", parent="P")]
    ent = entitle(snapshot([node("n1")], budgets, [gone, inner, work("w", "gone"), work("x")]))
    orphan = int(ent.works.leaf[0])
    assert ent.tree.ids[orphan] == "gone"
    assert ent.market.held[orphan, 0] == ent.market.floor[orphan, 0] == 2
    assert ent.works.leaf[2] == -1
    assert ent.works.candidate.tolist() == [False, False, False, True]
    assert set(ent.works.impossible) == {0, 1, 2}
    assert sum("no leaf of the budgets" in warning for warning in ent.warnings) == 2


def test_uncharged_work_of_an_orphan_is_not_promoted() -> None:
    ent = entitle(snapshot([node("n1")], [allocation("A")], [running("r", "n1", leaf="gone", charged=False)]))
    assert not ent.works.promotable.any()
    assert not ent.works.funded.any()
