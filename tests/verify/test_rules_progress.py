"""Work that waits: for each rule a decision that holds and one that is broken at one place."""

from __future__ import annotations

from typing import Any

import pytest

from allocator.domain import Unfunded
from tests.builders import HOUR, NOW, budget, decision, job, node, nodes, running, snapshot, start, stop, stopped, used
from tests.verify.judge import broken, details

AB = [budget("a"), budget("b")]


def test_work_conservation() -> None:
    snap = snapshot(nodes(1), AB, [job("w")])
    assert broken(snap, decision(snap, [start("w", {"n1": 1})])) == ()
    answer = decision(snap)
    assert broken(snap, answer) == ("work_conservation",)
    assert "could start (charged) on n1" in details(snap, answer)


def test_work_conservation_of_unallocated_work() -> None:
    snap = snapshot(nodes(1), AB, [job("w", min_runtime=0)])
    answer = decision(snap)
    assert broken(snap, answer) == ("work_conservation",)
    assert "could start (uncharged) on n1" in details(snap, answer)


def test_work_conservation_of_unfunded_work() -> None:
    usage = [used("a", 3000)]
    snap = snapshot(nodes(1), AB, [job("w")], usage=usage)
    assert broken(snap, decision(snap)) == ("work_conservation",)
    snap = snapshot(nodes(1), AB, [job("w", unfunded=Unfunded.WAIT)], usage=usage)
    assert broken(snap, decision(snap)) == ()


@pytest.mark.parametrize(
    "fields",
    [
        {"gpus": 16},
        {"required": "node", "gpus": 16},
        {"pools": ("b200",)},
        {"exclude_nodes": ("n1",)},
        {"node_labels": {"arch": "arm"}},
        {"allocation": "nobody"},
    ],
)
def test_work_conservation_knows_who_cannot_start(fields: dict[str, Any]) -> None:
    snap = snapshot(nodes(1), AB, [job("w", **fields)])
    assert broken(snap, decision(snap)) == ()


def test_work_conservation_respects_limits_and_drains() -> None:
    snap = snapshot(nodes(1), [budget("a", gpu_limit=7)], [job("w")])
    assert broken(snap, decision(snap)) == ()
    snap = snapshot([node("n1", drain_deadline=NOW + HOUR)], AB, [job("w")])
    assert broken(snap, decision(snap)) == ()
    snap = snapshot([node("n1", state="drain")], AB, [job("w")])
    assert broken(snap, decision(snap)) == ()


def test_work_conservation_leaves_what_was_just_stopped() -> None:
    snap = snapshot(nodes(1), AB, [stopped(job("w"), NOW)])
    assert broken(snap, decision(snap)) == ()


def test_work_conservation_restarts_what_a_dead_node_stopped() -> None:
    works = [running("w", "a", {"n1": 1}, protected_until=NOW)]
    snap = snapshot([node("n1", state="down"), node("n2")], AB, works)
    assert broken(snap, decision(snap, stops=[stop("w")])) == ("work_conservation",)


def test_work_conservation_needs_one_domain() -> None:
    works = [running("x", "a", {"n2": 1}), running("y", "a", {"n3": 1}), job("w", "b", 16, required="rack")]
    snap = snapshot(nodes(4, per_rack=2), AB, works, reserve_from=2)  # else w would be due a rack
    assert broken(snap, decision(snap)) == ()
    works = [running("x", "a", {"n1": 1}), running("y", "a", {"n2": 1}), job("w", "b", 16, required="rack")]
    snap = snapshot(nodes(4, per_rack=2), AB, works)
    assert broken(snap, decision(snap)) == ("work_conservation",)


def test_unallocated_last() -> None:
    works = [running("free", "a", {"n1": 1}, charged=False, min_runtime=0), job("new", "b")]
    snap = snapshot(nodes(1), AB, works)
    assert broken(snap, decision(snap, [start("new", {"n1": 1})], [stop("free", "new")])) == ()
    answer = decision(snap)
    assert broken(snap, answer) == ("unallocated_last",)
    assert "could start on n1 if free gave way" in details(snap, answer)


def test_unallocated_last_is_for_entitled_work() -> None:
    # `b` has had all of the week's usage, so `a`, which wants both nodes as well, is owed them.
    works = [
        running("free", "a", {"n1": 1}, charged=False, min_runtime=0),
        running("paid", "a", {"n2": 1}, protected_until=NOW + HOUR),
        job("new", "b"),
        job("more", "a", 16),
    ]
    snap = snapshot(nodes(2), AB, works, usage=[used("b", 1000)])
    assert broken(snap, decision(snap)) == ()


def test_unallocated_last_spares_gangs_that_are_too_large() -> None:
    gang = {"n1": 1, "n2": 1, "n3": 1}
    for size, expected in ((16, ("unallocated_last",)), (8, ())):
        works = [running("free", "a", gang, 24, charged=False, min_runtime=0), job("new", "b", size)]
        snap = snapshot(nodes(3), AB, works)
        assert broken(snap, decision(snap)) == expected


def test_unallocated_last_counts_free_gpus() -> None:
    works = [
        running("free", "a", {"n1": 1}, 4, charged=False, min_runtime=0),
        running("paid", "a", {"n2": 1}, 8, protected_until=NOW + HOUR),
        job("new", "b", 8),
    ]
    snap = snapshot(nodes(2), AB, works)
    assert broken(snap, decision(snap)) == ("unallocated_last",)


def test_unallocated_last_holds_for_what_starts_now_as_well() -> None:
    works = [job("new", "b"), job("free", "a", min_runtime=0)]
    snap = snapshot(nodes(1), AB, works)
    assert broken(snap, decision(snap, [start("new", {"n1": 1})])) == ()
    assert broken(snap, decision(snap, [start("free", {"n1": 1})])) == ("unallocated_last",)


def test_unallocated_last_respects_protection_of_promoted_work() -> None:
    works = [running("now paid", "a", {"n1": 1}, charged=False), job("new", "b")]
    snap = snapshot(nodes(1), AB, works)
    assert broken(snap, decision(snap, promotions=["now paid"])) == ()


def test_unallocated_last_works_within_a_gpu_limit() -> None:
    # `b` may hold 8 GPUs and holds them uncharged: its own unallocated work has to give way, not that of `a`.
    works = [
        running("mine", "b", {"n1": 1}, charged=False, min_runtime=0),
        running("theirs", "a", {"n2": 1}, charged=False, min_runtime=0),
        job("new", "b"),
    ]
    snap = snapshot(nodes(2), [budget("a"), budget("b", gpu_limit=8)], works)
    answer = decision(snap)
    assert broken(snap, answer) == ("unallocated_last",)
    assert "if mine gave way" in details(snap, answer)
    assert broken(snap, decision(snap, [start("new", {"n1": 1})], [stop("mine", "new")])) == ()
