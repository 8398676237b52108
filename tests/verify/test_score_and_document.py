"""What a decision says of itself: its score and proof, and rows that can be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from allocator.domain import (
    AllocationRow,
    Decision,
    DrainRow,
    Policy,
    Preemption,
    Reason,
    Rejection,
    Snapshot,
    Start,
    StopReason,
    WaitingRow,
)
from allocator.verify import verify
from allocator.wire import snapshot_digest
from tests.builders import HOUR, NOW, budget, decision, job, node, nodes, running, snapshot, start, stop, weights
from tests.verify.judge import broken, details

AB = [budget("a"), budget("b")]


@pytest.fixture
def snap() -> Snapshot:
    """`a` holds the only node, `b` waits for it."""
    return snapshot(nodes(1), AB, [running("old", "a", {"n1": 1}), job("new", "b")])


@pytest.fixture
def good(snap: Snapshot) -> Decision:
    """The node goes to `b`."""
    return decision(snap, [start("new", {"n1": 1})], [stop("old", "new")])


def solver(answer: Decision, **fields: Any) -> Decision:
    return replace(answer, solver=replace(answer.solver, **fields))


def test_score_is_recomputed(snap: Snapshot, good: Decision) -> None:
    assert broken(snap, good) == ()
    assert verify(snap, good).score.total == good.solver.objective
    worse = good.solver.objective + 1
    assert broken(snap, solver(good, objective=worse, bound=worse)) == ("score",)


@pytest.mark.parametrize("terms", [{}, {"idle": 1}, {"luck": -5}])
def test_score_compares_every_term(snap: Snapshot, good: Decision, terms: Mapping[str, int]) -> None:
    wrong = dict(good.solver.terms) | dict(terms) if terms else {}
    assert broken(snap, solver(good, terms=wrong)) == ("score",)


def test_score_bounds(snap: Snapshot, good: Decision) -> None:
    best = good.solver.objective
    # The gap is the difference over 1000 x 3600 s x 8 GPUs.
    assert broken(snap, solver(good, bound=best - 288_000, gap=0.01)) == ()
    assert broken(snap, solver(good, bound=None, gap=None)) == ()
    for bound, gap in (
        (best + 1, 0.0),
        (best - 288_000, 0.02),
        (best, None),
        (None, 0.0),
        (best - 288_000, float("nan")),
        (-(10**400), 0.5),
    ):
        assert broken(snap, solver(good, bound=bound, gap=gap)) == ("score",)


def test_score_of_stops(snap: Snapshot) -> None:
    works = [running("old", "a", {"n1": 1}, resumable=False, checkpoint_on_notice=False), job("new", "b")]
    snap = snapshot(nodes(1), AB, works)
    good = decision(snap, [start("new", {"n1": 1})], [stop("old", "new")])
    assert good.preemptions[0].lost_gpu_seconds == 10 * HOUR * 8
    assert broken(snap, good) == ()
    assert broken(snap, decision(snap, [start("new", {"n1": 1})], [stop("old", "new", lost_gpu_seconds=0)])) == ("score",)


UNIT = 1000 * Policy().planning_step
"""One GPU for one planning step, in 1/1000 GPU-second."""


def test_score_terms_by_hand() -> None:
    # Two racks of two nodes, two leaves. `a` runs 4 GPUs on n1, nothing else runs; `b` starts 16 GPUs over both racks.
    works = [running("old", "a", {"n1": 1}, 4), job("wide", "b", 16), job("late", "a", 64, submit_time=NOW - 1)]
    snap = snapshot(nodes(4, per_rack=2), AB, works, slowdown={"rack": 0.05}, weights=weights(fragmentation=1, order=1))
    score = verify(snap, decision(snap, [start("wide", {"n2": 1, "n3": 1})])).score
    assert score.idle == 12 * UNIT  # 4 on n1, 8 on n4
    assert score.spread == 16 * UNIT // 20  # one rack more than the fewest
    assert score.fragmentation == 8 * UNIT  # r2 was free: 8 placed, 8 left; r1 was not; n2 and n3 are filled
    assert score.order == 0  # `late` fits no pool, so it is in no ranking
    assert score.lost_work == score.express == 0


def test_score_of_lane_candidates_and_order() -> None:
    works = [
        running("old", "a", {"n1": 1}, protected_until=NOW + HOUR),
        job("quick", "b", 2, min_runtime=600, user="u1"),
        job("slow", "b", 4, submit_time=NOW),
    ]
    snap = snapshot(nodes(1), AB, works, weights=weights(order=1))
    score = verify(snap, decision(snap)).score
    assert score.express == 10 * 2 * UNIT
    assert score.order == 2 * UNIT + 4 * UNIT // 2


def test_score_of_lost_work() -> None:
    # 10 h x 4 GPUs are lost, more than the cap of four steps; of unallocated work one tenth counts.
    works = [
        running("paid", "a", {"n1": 1}, 4, resumable=False, checkpoint_on_notice=False),
        running("free", "a", {"n2": 1}, 4, charged=False, min_runtime=0, resumable=False, checkpoint_on_notice=False),
    ]
    snap = snapshot([node("n1", state="down"), node("n2", state="drain")], AB, works)
    score = verify(snap, decision(snap, stops=[stop("paid"), stop("free")])).score
    assert score.lost_work == UNIT * Fraction(3, 2) * 4 * 4 + UNIT * Fraction(3, 2) * 4 * 4 / 10


def test_document_is_of_the_snapshot(snap: Snapshot, good: Decision) -> None:
    assert broken(snap, replace(good, snapshot=snapshot_digest(snap))) == ()
    assert broken(snap, replace(good, snapshot="sha256:0")) == ("document",)
    assert broken(snap, replace(good, now=NOW + 1)) == ("document",)


def test_document_order_of_lists_does_not_matter(snap: Snapshot, good: Decision) -> None:
    mixed = replace(snap, workloads=snap.workloads[::-1], budgets=snap.budgets[::-1])
    assert verify(mixed, good) == verify(snap, good)


def test_document_names_what_it_cannot_read(snap: Snapshot, good: Decision) -> None:
    (begin,), (end,) = good.starts, good.preemptions
    cases = {
        "nobody: stands in starts": replace(good, starts=(begin, replace(begin, workload="nobody"))),
        "nobody: stands in preemptions": replace(good, preemptions=(end, replace(end, workload="nobody"))),
        "new: stands in preemptions, but does not run": replace(good, preemptions=(end, replace(end, workload="new"))),
        "old: stands in preemptions more than once": replace(good, preemptions=(end, end)),
        "old: is to stop by": replace(good, preemptions=(replace(end, stop_by=NOW - 1),)),
    }
    for text, answer in cases.items():
        assert broken(snap, answer) == ("document",)
        assert text in details(snap, answer)


def test_document_promotes_only_what_runs_uncharged() -> None:
    snap = snapshot(nodes(2), AB, [running("w", "a", {"n1": 1}), running("x", "a", {"n2": 1}, charged=False)])
    good = decision(snap, promotions=["x"])
    assert broken(snap, good) == ()
    (row,) = good.promotions
    assert broken(snap, replace(good, promotions=(row, replace(row, workload="w")))) == ("document",)
    assert broken(snap, replace(good, promotions=(row, row))) == ("document",)


def test_document_lists_all_that_waits() -> None:
    works = [running("old", "a", {"n1": 1}, protected_until=NOW + HOUR), job("w", "b")]
    snap = snapshot(nodes(1), AB, works, rejected=(Rejection(workload="odd", reason="invalid_request", detail="0 tasks"),))
    rows = tuple(
        WaitingRow(workload=name, reason=Reason.NO_CAPACITY, not_before=None, never=False, detail="", entitled_since=since)
        for name, since in (("odd", None), ("w", NOW))
    )
    good = decision(snap, waiting=rows)
    assert broken(snap, good) == ()
    assert broken(snap, replace(good, waiting=rows[1:])) == ("document",)
    assert broken(snap, replace(good, waiting=(*rows, rows[0]))) == ("document",)
    assert broken(snap, replace(good, waiting=(*rows, replace(rows[0], workload="old")))) == ("document",)
    assert broken(snap, replace(good, waiting=(rows[0], replace(rows[1], entitled_since=None)))) == ("document",)


def test_document_says_which_nodes_are_drained() -> None:
    machines = [node("n1", state="drain"), node("n2", state="drain")]
    snap = snapshot(machines, AB, [running("old", "a", {"n1": 1}, protected_until=NOW + HOUR)])
    rows = tuple(DrainRow(node=name, drained=name == "n2", free_at=None, waits_for=()) for name in ("n1", "n2"))
    good = decision(snap, drains=rows)
    assert broken(snap, good) == ()
    assert broken(snap, replace(good, drains=(replace(rows[0], drained=True),))) == ("document",)
    assert broken(snap, replace(good, drains=(replace(rows[0], node="n9"),))) == ("document",)


@pytest.mark.parametrize("key", ["budget_gpu_seconds", "usage_gpu_seconds", "entitled_milli", "gpus_before", "gpus_after"])
def test_document_figures_of_allocations(snap: Snapshot, good: Decision, key: str) -> None:
    # `a` holds the node before and `b` after; each has half of 8 GPUs x 633,600 s. `a` has used 10 hours of the node.
    usual: dict[str, Any] = {"pool": "h100", "share": 0.5, "budget_gpu_seconds": 4 * 633_600}
    rows = (
        AllocationRow(id="a", usage_gpu_seconds=80 * HOUR, entitled_milli=0, gpus_before=8, gpus_after=0, **usual),
        AllocationRow(id="b", usage_gpu_seconds=0, entitled_milli=8000, gpus_before=0, gpus_after=8, **usual),
    )
    assert broken(snap, replace(good, allocations=rows)) == ()
    wrong = replace(rows[1], **{key: getattr(rows[1], key) + 1})
    assert broken(snap, replace(good, allocations=(rows[0], wrong))) == ("document",)
    assert broken(snap, replace(good, allocations=(replace(rows[0], id="c"),))) == ("document",)


HOSTILE: list[dict[str, Any]] = [
    {"starts": None},
    {"starts": (None, 5, "w")},
    {"starts": (Start(workload=["new"], placement={"n1": 1}, charged=True, protected_until=0),)},  # type: ignore[arg-type]
    {"starts": (Start(workload="new", placement=None, charged=True, protected_until=0),)},  # type: ignore[arg-type]
    {"starts": (Start(workload="new", placement={"n1": True, 5: 1, None: -1}, charged=True, protected_until=0),)},  # type: ignore[dict-item]
    {"starts": (Start(workload="new", placement={"n1": 10**30}, charged=True, protected_until=10**40),)},
    {"starts": (Start(workload="new", placement={"n1": 1 << 20}, charged=1, protected_until=-1),)},  # type: ignore[arg-type]
    {"preemptions": (Preemption(workload="old", reason="share", beneficiaries=(), lost_gpu_seconds=0, stop_by=0),)},  # type: ignore[arg-type]
    {
        "preemptions": (
            Preemption(workload="old", reason=StopReason.SHARE, beneficiaries=({},), lost_gpu_seconds=0, stop_by=NOW),  # type: ignore[arg-type]
        )
    },
    {"preemptions": [1], "renewals": {}, "reservations": 5, "contract_broken": ("x",), "waiting": "abc"},
    {"solver": None},
    {"now": None, "snapshot": 5},
]


@pytest.mark.parametrize("fields", HOSTILE)
def test_nothing_crashes_the_verifier(snap: Snapshot, good: Decision, fields: dict[str, Any]) -> None:
    verdict = verify(snap, replace(good, **fields))
    assert not verdict.ok
    assert all(violation.rule and violation.detail for violation in verdict.violations)


def test_huge_tasks_do_not_overflow() -> None:
    snap = snapshot(nodes(2), AB, [job("w", tasks=10**9, gpus_per_task=8, memory_gib_per_task=10**15)])
    answer = decision(snap)
    many = Start(workload="w", placement={"n1": 1 << 20, "n2": 1 << 20}, charged=True, protected_until=NOW + 2 * HOUR)
    assert "capacity" in broken(snap, replace(answer, starts=(many,)))


@pytest.mark.parametrize("field", ["objective", "bound", "gap", "terms"])
def test_score_of_an_odd_report(snap: Snapshot, good: Decision, field: str) -> None:
    assert broken(snap, solver(good, **{field: "much"})) == ("score",)
