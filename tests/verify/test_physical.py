"""The rules of placement alone, each broken once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from allocator import allocate
from allocator.domain import Decision, Snapshot, Start
from allocator.verify import verify_physical
from tests.builders import NOW, budget, decision, job, node, nodes, running, snapshot, stop


def clear(*works: object, **fields: object) -> Snapshot:
    return snapshot(fields.pop("nodes", nodes(4, per_rack=2)), [budget("a")], list(works))  # type: ignore[arg-type]


def starting(snap: Snapshot, workload: str, placement: dict[str, int], *stops: str) -> Decision:
    plain = decision(snap, stops=[stop(key, workload) for key in stops])
    start = Start(workload=workload, placement=placement, charged=False, protected_until=None)
    return replace(plain, starts=(start,))


def broken(snap: Snapshot, answer: Decision) -> list[str]:
    return [violation.rule for violation in verify_physical(snap, answer)]


def test_what_fits_is_fine() -> None:
    snap = clear(job("new", gpus=16), running("old", "a", {"n1": 1}))
    assert broken(snap, starting(snap, "new", {"n2": 1, "n3": 1})) == []
    assert broken(snap, starting(snap, "new", {"n1": 1, "n2": 1}, "old")) == []


@pytest.mark.parametrize(
    ("placement", "rule"),
    [
        ({"n1": 1, "n2": 1}, "capacity"),
        ({"n2": 1}, "gang"),
        ({"n2": 2, "n3": 0}, "gang"),
        ({"n2": 1, "x": 1}, "eligibility"),
        ({"n2": 1, "other": 1}, "gang"),
        ({"n2": 1, "down": 1}, "health"),
        ({"n2": 1, "late": 1}, "health"),
        ({"n2": 1, "small": 1}, "single_node_task"),
    ],
)
def test_a_placement_that_cannot_be(placement: dict[str, int], rule: str) -> None:
    more = (
        node("other", pool="b200"),
        node("down", state="down"),
        node("late", drain_deadline=NOW),
        node("small", gpus=4),
    )
    snap = clear(job("new", gpus=16), running("old", "a", {"n1": 1}), nodes=(*nodes(4, per_rack=2), *more))
    assert rule in broken(snap, starting(snap, "new", placement))


def test_wishes_are_respected() -> None:
    snap = clear(
        job("rack", gpus=16, required="rack"),
        job("pool", pools=("b200",)),
        job("label", node_labels={"net": "ib"}),
        job("not", exclude_nodes=("n1",)),
        job("segment", gpus=32, segment=("rack", 2)),
    )
    assert broken(snap, starting(snap, "rack", {"n1": 1, "n3": 1})) == ["topology"]
    assert broken(snap, starting(snap, "rack", {"n1": 1, "n2": 1})) == []
    assert broken(snap, starting(snap, "pool", {"n1": 1})) == ["eligibility"]
    assert broken(snap, starting(snap, "label", {"n1": 1})) == ["eligibility"]
    assert broken(snap, starting(snap, "not", {"n1": 1})) == ["eligibility"]
    assert broken(snap, starting(snap, "segment", {"n1": 1, "n2": 1, "n3": 1, "n4": 1})) == []


def test_segments_are_not_torn() -> None:
    snap = clear(job("segment", gpus=32, segment=("rack", 2)), nodes=nodes(6, per_rack=3))
    assert broken(snap, starting(snap, "segment", {"n1": 1, "n2": 1, "n3": 1, "n4": 1})) == ["topology"]


def test_rows_that_make_no_sense() -> None:
    snap = clear(job("new"), running("old", "a", {"n1": 1}))
    assert broken(snap, starting(snap, "old", {"n2": 1})) == ["gang"]
    assert broken(snap, starting(snap, "nobody", {"n2": 1})) == ["gang"]
    twice = starting(snap, "new", {"n2": 1})
    assert "gang" in broken(snap, replace(twice, starts=twice.starts * 2))
    gone = starting(snap, "new", {"n2": 1}, "old")
    assert "gang" in broken(clear(job("new")), gone)


def test_work_has_to_leave_a_dead_node() -> None:
    snap = clear(running("old", "a", {"n1": 1}), nodes=(node("n1", state="down"),))
    assert broken(snap, decision(snap)) == ["health"]


def test_the_decisions_of_the_product_pass() -> None:
    snap = clear(job("new", gpus=16), job("small", gpus=2), running("old", "a", {"n1": 1}))
    answer = allocate(snap, engine="greedy")
    assert answer.starts
    assert verify_physical(snap, answer) == ()
