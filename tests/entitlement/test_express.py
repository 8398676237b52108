"""The express lane: who is let in, and for how many it has room."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from allocator.domain import ExpressLane, LastStop, NodeState, Policy, Reservation, Snapshot, Workload
from allocator.entitlement import entitle
from tests.entitlement.builders import HOUR, NOW, allocation, node, running, snapshot, work


def lane(*works: Workload, num_nodes: int = 2, policy: Policy | None = None, **fields: Any) -> list[str]:
    """Ids that the lane takes; A has no budget left to speak of."""
    nodes = [node(f"n{i:02}", **fields) for i in range(num_nodes)]
    ent = entitle(snapshot(nodes, [allocation("A", 0), allocation("B")], works, policy=policy))
    return [ent.snapshot.workloads[row].id for row in ent.works.express.nonzero()[0]]


def quick(key: str, gpus: int = 1, **fields: Any) -> Workload:
    stated: dict[str, Any] = {"min_runtime": 1800, "user": key}
    return work(key, gpus=gpus, **stated | fields)


@pytest.mark.parametrize(
    ("fields", "let_in"),
    [
        pytest.param({}, True, id="short and small"),
        pytest.param({"min_runtime": 1801}, False, id="too long"),
        pytest.param({"min_runtime": 0}, False, id="unallocated"),
        pytest.param({"gpus": 16}, False, id="too large"),
        pytest.param({"user": None}, False, id="nobody's"),
        pytest.param({"preempted": 1}, False, id="stopped before"),
        pytest.param({"stopped": LastStop(at=NOW - 9, pool="p", gpus=1, charged=True)}, False, id="a stop is known"),
        pytest.param({"pools": ("q",)}, False, id="fits nowhere"),
    ],
)
def test_who_is_let_in(fields: dict[str, Any], let_in: bool) -> None:
    assert lane(quick("w", **fields)) == ["w"] * let_in


def test_the_lane_is_funded_and_entitled_whatever_its_allocation_holds() -> None:
    ent = entitle(snapshot([node("n")], [allocation("A", 0), allocation("B")], [quick("w"), work("x")]))
    assert ent.works.funded.tolist() == [True, False]
    assert ent.works.entitled.tolist() == [True, False]
    assert ent.works.entitled_since.tolist() == [0, 0]


def test_the_lane_of_a_small_pool_has_eight_gpus() -> None:
    # 4 + 4 fill it; 1 finds no room.
    assert lane(quick("a", 4), quick("b", 4), quick("c", 1)) == ["a", "b"]


def test_the_lane_of_a_large_pool_is_a_share_of_it() -> None:
    # 45 nodes x 8 GPUs = 360; a twentieth is 18: two gangs of 8, the third is passed over, 2 still fit.
    assert lane(quick("a", 8), quick("b", 8), quick("c", 8), quick("d", 2), num_nodes=45) == ["a", "b", "d"]


def test_the_lane_is_filled_in_queue_order() -> None:
    late, early = quick("a", 8, submit_time=NOW - 1), quick("b", 8, submit_time=NOW - 2)
    assert lane(late, early) == ["b"]
    assert lane(replace(late, priority=1), early) == ["a"]


def test_two_workloads_a_user() -> None:
    assert lane(*(quick(key, user="u") for key in "abc"), quick("d")) == ["a", "b", "d"]
    runs = running("r", "n00", user="u", min_runtime=1800, express=True)
    assert lane(runs, *(quick(key, user="u") for key in "abc")) == ["a"]
    assert lane(runs, *(quick(key, user="u") for key in "abc"), policy=Policy(express=ExpressLane(per_user=3))) == ["a", "b"]


def test_runs_of_the_lane_take_its_room() -> None:
    runs = running("r", "n00", gpus=6, min_runtime=1800, express=True, user="v")
    assert lane(runs, quick("a", 2), quick("b", 1)) == ["a"]
    ordinary = running("r", "n00", gpus=6, min_runtime=1800, user="v")
    assert lane(ordinary, quick("a", 8)) == ["a"]


def test_a_run_that_must_leave_frees_the_lane() -> None:
    runs = running("r", "n00", gpus=6, min_runtime=1800, express=True, user="v")
    ent = entitle(snapshot([node("n00", state=NodeState.DOWN), node("n01")], [allocation("A")], [runs, quick("a", 8)]))
    assert ent.works.express.tolist() == [True, False]
    assert ent.express_room.tolist() == [8]


def test_what_started_at_now_is_still_a_candidate() -> None:
    started = running("a", "n00", since=0, gpus=8, min_runtime=1800, express=True, granted_at=NOW, user="v")
    assert lane(started, quick("b", 1, submit_time=NOW)) == ["a"]


def test_the_lane_must_keep_its_promise_on_a_draining_cluster() -> None:
    assert lane(quick("a"), drain_deadline=NOW + HOUR) == ["a"]
    assert lane(quick("a"), drain_deadline=NOW + 1799) == []


KEPT = Reservation(
    workload="w", pool="p", domain=(), nodes=1, start=NOW + HOUR, eligible_since=NOW - HOUR, bound=NOW + 9 * HOUR
)  # fmt: skip


def busy(share: int) -> Snapshot:
    """`w` waits for the node on which `r` is protected for an hour; its budget has some share."""
    held = running("r", "n", leaf="B", gpus=8, granted_at=NOW - 9, protected_until=NOW + HOUR)
    return snapshot([node("n")], [allocation("A", share), allocation("B")], [held, quick("w", 8)])


def test_a_gang_keeps_its_reservation_rather_than_take_the_lane() -> None:
    # The lane was full when it was reserved for; room there now must not cost it the nodes that are being kept.
    ent = entitle(replace(busy(1), reservations=(KEPT,)))
    assert not ent.works.express.any()
    assert [ent.snapshot.workloads[one.row].id for one in ent.reserved] == ["w"]


def test_a_gang_that_loses_its_reservation_may_take_the_lane_at_once() -> None:
    """Its budget has nothing left: it is kept nothing, and the next call at this instant would not know that it ever was."""
    now, again = entitle(replace(busy(0), reservations=(KEPT,))), entitle(busy(0))
    assert now.reserved == again.reserved == ()
    assert now.works.express.tolist() == again.works.express.tolist() == [False, True]


@pytest.mark.parametrize("express", [True, False])
def test_what_starts_now_counts_in_the_lane_only_if_it_starts_there(express: bool) -> None:
    """A gang that was due has left its reservation behind: it must not take the room of others in the next call."""
    begun = quick("g", 8)
    run = running("x", "n00", since=0, granted_at=NOW, protected_until=NOW + 1800, express=express).run
    assert lane(replace(begun, run=run), quick("w", 8)) == (["g"] if express else ["w"])
