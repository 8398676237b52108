"""Promises, forced stops, and who held what just before now."""

from __future__ import annotations

from typing import Any

import pytest

from allocator.domain import LastStop, Node, NodeState, Policy, Run, Workload
from allocator.entitlement.contract import Contract, lost_gpu_seconds, read_contract
from allocator.entitlement.model import Forced
from allocator.topology import build_layout
from tests.entitlement.builders import HOUR, NOW, allocation, drained, node, running, snapshot, work


def contract_of(one: Workload, *nodes: Node, policy: Policy | None = None) -> Contract:
    """The contract of a single workload, on node `n` unless nodes are given."""
    case = snapshot(nodes or [node("n")], [allocation("A")], [one], policy=policy)
    return read_contract(case, build_layout(case))


@pytest.mark.parametrize(
    ("run", "until"),
    [
        pytest.param({}, NOW - HOUR + 2 * HOUR, id="from the start"),
        pytest.param({"charged_since": NOW - 60}, NOW - 60 + 2 * HOUR, id="from when it was charged"),
        pytest.param({"charged_since": NOW - 60, "granted_at": NOW - 5}, NOW - 5 + 2 * HOUR, id="from when it was granted"),
        pytest.param({"protected_until": NOW + 7}, NOW + 7, id="as recorded"),
        pytest.param({"since": None}, NOW + 2 * HOUR, id="start not known: from now"),
        pytest.param({"since": -100}, NOW + 100 + 2 * HOUR, id="start in the future"),
        pytest.param({"since": -100, "protected_until": NOW - 9}, NOW + 100 + 2 * HOUR, id="future start, stale promise"),
    ],
)
def test_a_charged_run_is_protected_until(run: dict[str, Any], until: int) -> None:
    contract = contract_of(running("w", "n", min_runtime=2 * HOUR, **run))
    assert contract.protected_until.tolist() == [until]
    assert contract.protected.all()


def test_a_recorded_promise_outlives_a_lower_cap() -> None:
    one = running("w", "n", min_runtime=8 * HOUR, protected_until=NOW + 7 * HOUR)
    assert contract_of(one, policy=Policy(protection_cap=HOUR)).protected_until.tolist() == [NOW + 7 * HOUR]


def test_the_cap_bounds_what_is_not_recorded() -> None:
    one = running("w", "n", since=60, min_runtime=20 * HOUR)
    assert contract_of(one).protected_until.tolist() == [NOW - 60 + 8 * HOUR]


def test_a_promise_that_ends_now_has_ended() -> None:
    assert not contract_of(running("w", "n", protected_until=NOW)).protected.any()
    assert contract_of(running("w", "n", protected_until=NOW + 1)).protected.all()


def test_uncharged_work_is_never_protected() -> None:
    contract = contract_of(running("w", "n", since=-10, charged=False, protected_until=NOW + HOUR))
    assert not contract.protected.any()
    assert contract.protected_until.tolist() == [0]


@pytest.mark.parametrize(
    ("run", "waited"),
    [
        pytest.param({"since": -1}, True, id="starts later"),
        pytest.param({"since": 0, "granted_at": NOW}, True, id="started now by decision"),
        pytest.param({"since": 0, "charged": False}, True, id="started now, uncharged"),
        pytest.param({"since": 0}, False, id="said to start now, no decision known"),
        pytest.param({"since": 0, "granted_at": NOW - 1}, False, id="granted earlier"),
        pytest.param({"since": None}, False, id="start not known"),
        pytest.param({"since": 1, "granted_at": NOW}, False, id="renewed now"),
    ],
)
def test_who_waited_just_before_now(run: dict[str, Any], waited: bool) -> None:
    contract = contract_of(running("w", "n", **run))
    assert contract.waiting_before.tolist() == [waited]
    assert contract.fresh.tolist() == [waited]
    assert contract.held_before.tolist() == [not waited]


def test_a_promotion_at_now_ran_uncharged_before() -> None:
    contract = contract_of(running("w", "n", charged_since=NOW, granted_at=NOW))
    assert contract.held_before.all()
    assert not contract.charged_before.any()
    assert contract.protected.all()
    assert not contract.protected_before.any()
    assert contract.new_promise.all()


def test_a_renewal_at_now_was_charged_but_not_protected_before() -> None:
    contract = contract_of(running("w", "n", charged_since=NOW - HOUR, granted_at=NOW))
    assert contract.charged_before.all()
    assert not contract.protected_before.any()
    assert contract.new_promise.all()


def test_what_stopped_at_now_still_ran_before() -> None:
    stop = LastStop(at=NOW, pool="p", gpus=4, charged=True, placement={"n": 1})
    contract = contract_of(work("w", gpus=4, preempted=1, stopped=stop))
    assert contract.held_before.all()
    assert contract.charged_before.all()
    assert contract.held_gpus.tolist() == [4]
    assert not contract.protected_before.any()
    assert not contract.running.any()
    assert contract.placements.before.tolist() == [True]
    assert contract.placements.present.tolist() == [False]


def test_an_earlier_stop_is_history() -> None:
    stop = LastStop(at=NOW - 1, pool="p", gpus=4, charged=True, placement={"n": 1})
    contract = contract_of(work("w", gpus=4, preempted=1, stopped=stop))
    assert contract.waiting_before.all()
    assert len(contract.placements.row) == 0


@pytest.mark.parametrize(
    ("where", "protected", "reason"),
    [
        pytest.param(node("n"), False, Forced.NONE, id="healthy"),
        pytest.param(node("n", drain_deadline=NOW + 1), False, Forced.NONE, id="announced drain"),
        pytest.param(node("n", drain_deadline=NOW), True, Forced.DRAIN_DEADLINE, id="announced drain, due"),
        pytest.param(drained("n"), True, Forced.NONE, id="drain waits for a promise"),
        pytest.param(drained("n"), False, Forced.DRAIN, id="drain"),
        pytest.param(drained("n", NOW + 1), True, Forced.NONE, id="drain before its deadline"),
        pytest.param(drained("n", NOW), True, Forced.DRAIN_DEADLINE, id="drain, due"),
        pytest.param(drained("n", NOW), False, Forced.DRAIN_DEADLINE, id="drain, due, no promise"),
        pytest.param(node("n", state=NodeState.DOWN, drain_deadline=NOW), True, Forced.NODE_DOWN, id="dead before all else"),
    ],
)
def test_what_must_stop(where: Node, protected: bool, reason: Forced) -> None:
    until = NOW + 60 if protected else NOW
    contract = contract_of(running("w", "n", protected_until=until), where)
    assert contract.forced.tolist() == [reason]
    assert contract.protected_before.tolist() == [protected and reason is Forced.NONE]


def test_one_dead_node_stops_the_whole_gang() -> None:
    gang = work("w", gpus=16, run=Run(placement={"a": 1, "b": 1}, charged=True, start_time=NOW - 60))
    assert contract_of(gang, node("a"), node("b", state=NodeState.DOWN)).forced.tolist() == [Forced.NODE_DOWN]


def test_a_leaving_victim_is_not_stopped_again() -> None:
    one = running("w", "n", protected_until=NOW, terminating_until=NOW + 60)
    assert contract_of(one, drained("n")).forced.tolist() == [Forced.NONE]


@pytest.mark.parametrize(
    ("fields", "lost"),
    [
        # Two GPUs that ran for 5,000 s.
        pytest.param({"checkpoint_on_notice": True}, 0, id="saves when told"),
        pytest.param({}, 2 * 5000, id="no checkpoint known"),
        pytest.param({"checkpoint_interval": 1800}, 2 * (5000 - 3600), id="every half hour: the last at 3,600 s"),
        pytest.param({"last_checkpoint": NOW - 70, "checkpoint_interval": 1800}, 2 * 70, id="recorded"),
        pytest.param({"last_checkpoint": NOW - 9000}, 2 * 5000, id="recorded before this run"),
        pytest.param({"last_checkpoint": NOW + 5}, 0, id="recorded in the future"),
        pytest.param({"resumable": False, "last_checkpoint": NOW, "checkpoint_on_notice": True}, 2 * 5000, id="cannot resume"),
        pytest.param({"since": None}, 0, id="start not known"),
        pytest.param({"since": -50}, 0, id="start in the future"),
    ],
)
def test_lost_work(fields: dict[str, Any], lost: int) -> None:
    one = running("w", "n", **{"since": 5000, "gpus": 2} | fields)
    assert one.run is not None
    assert lost_gpu_seconds(one, one.run, NOW) == lost
