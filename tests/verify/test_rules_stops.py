"""Stops that are a choice: for each rule a decision that holds and one that is broken at one place."""

from __future__ import annotations

from typing import Any

import pytest

from allocator.domain import Snapshot, StopReason, Workload
from tests.builders import NOW, budget, decision, job, node, nodes, running, snapshot, start, stop, stopped, used
from tests.verify.judge import broken, details

AB = [budget("a"), budget("b")]


def rich_a(works: list[Workload], **fields: Any) -> Snapshot:
    """One node, and `a` is entitled to whatever it holds: its share is nine times that of `b`, which has had its part."""
    return snapshot(nodes(1), [budget("a", 9), budget("b")], works, usage=[used("b", 20)], **fields)


def debug(name: str, gpus: int = 1) -> Workload:
    """A candidate of the express lane."""
    return job(name, "b", gpus, min_runtime=600, user="u1")


def two_of_a() -> Snapshot:
    """Two nodes, both held by `a` beyond its promises; `b` waits with two nodes' worth."""
    works = [running("old1", "a", {"n1": 1}), running("old2", "a", {"n2": 1}), job("new1", "b"), job("new2", "b")]
    return snapshot(nodes(2), AB, works, max_preemptions=1)


def test_max_preemptions() -> None:
    snap = two_of_a()
    assert broken(snap, decision(snap, [start("new1", {"n1": 1})], [stop("old1", "new1")])) == ()
    both = [start("new1", {"n1": 1}), start("new2", {"n2": 1})]
    answer = decision(snap, both, [stop("old1", "new1"), stop("old2", "new2")])
    assert broken(snap, answer) == ("max_preemptions",)
    assert "2 stops of charged work, the policy allows 1" in details(snap, answer)


def test_max_preemptions_counts_those_of_this_instant() -> None:
    works = [running("old", "a", {"n1": 1}), job("new", "b")]
    for at, expected in ((NOW - 1, ()), (NOW, ("max_preemptions",))):
        gone = stopped(job("gone", "a", 16, submit_time=NOW), at)
        snap = snapshot(nodes(2), AB, [*works, gone], max_preemptions=1, preempt_under_entitlement=True)
        answer = decision(snap, [start("new", {"n1": 1})], [stop("old", "new")])
        assert broken(snap, answer) == expected


def test_max_preemptions_does_not_count_unallocated_work() -> None:
    works = [running("old", "a", {"n1": 1}, charged=False, min_runtime=0), job("new", "b")]
    snap = snapshot(nodes(1), AB, works, max_preemptions=0)
    assert broken(snap, decision(snap, [start("new", {"n1": 1})], [stop("old", "new")])) == ()


def test_licence() -> None:
    works = [running("old", "a", {"n1": 1}), job("new", "b")]
    snap = snapshot(nodes(1), AB, works)
    assert broken(snap, decision(snap, [start("new", {"n1": 1})], [stop("old", "new")])) == ()
    snap = rich_a(works)
    answer = decision(snap, [start("new", {"n1": 1})], [stop("old", "new")])
    assert broken(snap, answer) == ("licence",)
    assert "a holds 8 GPUs and is entitled to" in details(snap, answer)


def test_licence_is_not_needed_under_the_policy() -> None:
    works = [running("old", "a", {"n1": 1}), job("new", "b")]
    snap = rich_a(works, preempt_under_entitlement=True)
    assert broken(snap, decision(snap, [start("new", {"n1": 1})], [stop("old", "new")])) == ()


def test_licence_is_not_needed_for_express_starts() -> None:
    works = [running("old", "a", {"n1": 1}), debug("new")]
    snap = rich_a(works)
    answer = decision(snap, [start("new", {"n1": 1})], [stop("old", "new")])
    assert answer.preemptions[0].reason is StopReason.EXPRESS
    assert broken(snap, answer) == ()
    wrong = decision(snap, [start("new", {"n1": 1})], [stop("old", "new", reason=StopReason.SHARE)])
    assert broken(snap, wrong) == ("beneficiary",)


def test_licence_for_express_only_where_it_needs_the_place() -> None:
    # The express start has 4 free GPUs; the ordinary start is what needs the place of `old`.
    works = [running("old", "a", {"n1": 1}, gpus=4), debug("quick"), job("slow", "b", 4)]
    snap = rich_a(works)
    assert broken(snap, decision(snap, [start("quick", {"n1": 1})])) == ()
    starts = [start("quick", {"n1": 1}), start("slow", {"n1": 1})]
    assert broken(snap, decision(snap, starts, [stop("old", "quick", "slow")])) == ("licence",)


def test_licence_is_not_needed_to_stop_unallocated_work() -> None:
    works = [running("old", "a", {"n1": 1}, charged=False, min_runtime=0), job("new", "b")]
    snap = rich_a(works)
    assert broken(snap, decision(snap, [start("new", {"n1": 1})], [stop("old", "new")])) == ()


def test_beneficiary_is_a_start_on_a_node_of_the_victim() -> None:
    works = [running("old", "a", {"n1": 1}), job("new", "b"), job("other", "b"), job("late", "b", 16)]
    snap = snapshot(nodes(2), AB, works)
    starts = [start("new", {"n1": 1}), start("other", {"n2": 1})]
    assert broken(snap, decision(snap, starts, [stop("old", "new")])) == ()
    for names in ((), ("late",), ("nobody",), ("other",), ("new", "other"), ("new", "new")):
        assert broken(snap, decision(snap, starts, [stop("old", *names)])) == ("beneficiary",), names


@pytest.mark.parametrize("reason", [StopReason.EXPRESS, StopReason.DRAIN, StopReason.RELOCATE, StopReason.RESERVATION])
def test_beneficiary_goes_with_the_reason(reason: StopReason) -> None:
    snap = snapshot(nodes(1), AB, [running("old", "a", {"n1": 1}), job("new", "b")])
    answer = decision(snap, [start("new", {"n1": 1})], [stop("old", "new", reason=reason)])
    assert broken(snap, answer) == ("beneficiary",)
    assert f"with reason {reason}, not share" in details(snap, answer)


def test_beneficiary_of_forced_stops_is_nobody() -> None:
    works = [running("w", "a", {"n1": 1}), job("x", "b")]
    snap = snapshot([node("n1", state="drain"), node("n2")], AB, works)
    starts = [start("x", {"n2": 1})]
    assert broken(snap, decision(snap, starts, [stop("w")])) == ()
    assert broken(snap, decision(snap, starts, [stop("w", "x")])) == ("beneficiary",)
    assert broken(snap, decision(snap, starts, [stop("w", reason=StopReason.NODE_DOWN)])) == ("beneficiary",)


def test_charged_first() -> None:
    works = [
        running("paid", "a", {"n1": 1}, gpus=4),
        running("free", "a", {"n1": 1}, gpus=4, charged=False, min_runtime=0),
        job("new", "b", 4),
    ]
    snap = snapshot(nodes(1), AB, works, preempt_under_entitlement=True)
    assert broken(snap, decision(snap, [start("new", {"n1": 1})], [stop("free", "new")])) == ()
    assert broken(snap, decision(snap, [start("new", {"n1": 1})], [stop("paid", "new")])) == ("charged_first",)


def test_charged_first_is_not_for_uncharged_starts() -> None:
    works = [running("paid", "a", {"n1": 1}), job("new", "b", min_runtime=0)]
    snap = snapshot(nodes(1), AB, works, preempt_under_entitlement=True)
    assert broken(snap, decision(snap)) == ()
    assert broken(snap, decision(snap, [start("new", {"n1": 1})], [stop("paid", "new")])) == ("charged_first",)


def test_charged_first_counts_cpus() -> None:
    works = [
        running("paid", "a", {"n1": 1}, gpus=4, cpus_per_task=40),
        running("free", "a", {"n1": 1}, gpus=4, charged=False, min_runtime=0),
        job("new", "b", 4, cpus_per_task=30),
    ]
    snap = snapshot(nodes(1, cpus=64), AB, works, preempt_under_entitlement=True)
    assert broken(snap, decision(snap, [start("new", {"n1": 1})], [stop("paid", "new")])) == ()


def test_minimal() -> None:
    works = [
        running("free1", "a", {"n1": 1}, gpus=4, charged=False, min_runtime=0),
        running("free2", "a", {"n1": 1}, gpus=4, charged=False, min_runtime=0),
        job("new", "b", 4),
    ]
    snap = snapshot(nodes(1), AB, works)
    one = [start("new", {"n1": 1})]
    assert broken(snap, decision(snap, one, [stop("free1", "new")])) == ()
    assert broken(snap, decision(snap, one, [stop("free1", "new"), stop("free2", "new")])) == ("minimal",)


def test_minimal_looks_at_every_node_of_the_victim() -> None:
    works = [running("wide", "a", {"n1": 1, "n2": 1}, gpus=16, charged=False, min_runtime=0), job("new", "b")]
    snap = snapshot(nodes(3), AB, works)
    answer = decision(snap, [start("new", {"n1": 1})], [stop("wide", "new")])
    assert broken(snap, answer) == ()
