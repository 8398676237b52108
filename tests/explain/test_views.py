"""Views for people: plain data that JSON can hold, and text that fits a page."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.domain import Decision, Rejection, Snapshot, SnapshotError
from allocator.engine import allocate
from allocator.entitlement import Entitlement, entitle
from allocator.explain import allocation_view, annotate, apply_changes, budgets_view, epoch_view, try_view, workload_view
from allocator.explain.render import as_text
from allocator.explain.words import counted, duration, gpu_hours, gpus, listed
from allocator.wire.changes import decode_changes
from tests.builders import HOUR, NOW, budget, decision, job, node, nodes, running, snapshot, start, stop
from tests.engines.tiny import tiny_snapshot


@pytest.fixture
def epoch() -> tuple[Entitlement, Decision]:
    """One workload starts, one gives way for it, one is promoted, one waits and one could not be read."""
    works = [
        running("r1", "a", {"n1": 1}),
        running("r2", "a", {"n2": 1}, protected_until=NOW + HOUR),
        running("r3", "a", {"n3": 1}, charged=False),
        job("v", "b"),
        job("w", "b", 16),
    ]
    bad = Rejection(workload="bad", reason="invalid_request", detail="tasks: 0 is not valid here")
    budgets = [replace(budget("p"), name="Pre-training"), budget("a", parent="p"), budget("b", parent="p")]
    snap = snapshot([*nodes(3), node("n4", state="drain")], budgets, works, rejected=(bad,))
    ent = entitle(snap)
    rows = decision(snap, starts=[start("v", {"n1": 1})], stops=[stop("r1", "v")], promotions=["r3"])
    return ent, annotate(ent, rows)


def test_the_epoch_in_numbers(epoch: tuple[Entitlement, Decision]) -> None:
    view = epoch_view(*epoch)
    assert view["starts"] == {"workloads": 1, "gpus": 8, "charged_gpus": 8, "express": 0}
    assert view["stops"] == [{"reason": "share", "workloads": 1, "gpus": 8, "lost_gpu_seconds": 0}]
    assert view["promotions"] == {"workloads": 1, "gpus": 8}
    assert {row["reason"]: row["workloads"] for row in view["waiting"]}["invalid_request"] == 1
    assert view["pools"][0]["used_before"] == view["pools"][0]["used_after"] == 24
    text = as_text(view)
    for said in ("1 workload on 8 GPUs", "share", "invalid_request", "n4", "Answered by greedy"):
        assert said in text


@pytest.mark.parametrize(
    ("key", "state", "said"),
    [
        ("v", "starts", "Stopped for its sake\nr1"),
        ("r1", "stops", "stopped now (share) for v"),
        ("r2", "runs", "(in 1 h)"),
        ("r3", "is promoted", "(in 2 h)"),
        ("w", "waits", "Waits: "),
        ("bad", "rejected", "tasks: 0 is not valid here"),
    ],
)
def test_one_workload(epoch: tuple[Entitlement, Decision], key: str, state: str, said: str) -> None:
    view = workload_view(*epoch, key)
    assert view["state"] == state
    assert said in as_text(view)


def test_a_claim_is_shown_where_there_may_be_one(epoch: tuple[Entitlement, Decision]) -> None:
    shown = {key for key in ("v", "r1", "r2", "r3", "w") if "\nentitled " in as_text(workload_view(*epoch, key))}
    assert shown == {"v", "r3", "w"}  # r1 and r2 are charged and have their place


def test_whoever_was_stopped_often_is_told_what_that_is_worth() -> None:
    snap = snapshot(nodes(1), [budget("a")], [job("seldom", preempted=7), job("often", preempted=8, min_runtime=0)])
    ent = entitle(snap)
    said = {key: as_text(workload_view(ent, annotate(ent, decision(snap)), key)) for key in ("seldom", "often")}
    assert "1 d, 0.0 GPU-hours" in said["often"]
    assert "8 times, so it is assured" in said["often"]
    assert "7 times\n" in said["seldom"]


def test_one_allocation_with_all_below_it(epoch: tuple[Entitlement, Decision]) -> None:
    view = allocation_view(*epoch, "p")
    assert (view["name"], view["path"], view["children"]) == ("Pre-training", ["p"], ["a", "b"])
    assert [view[key]["workloads"] for key in ("runs", "promoted", "starts", "stops")] == [2, 1, 1, 1]
    assert sum(row["workloads"] for row in view["waiting"]) == 2, "the rejected one is nobody's"
    leaf = allocation_view(*epoch, "b")
    assert (leaf["path"], leaf["pools"][0]["gpus_before"], leaf["pools"][0]["gpus_after"]) == (["p", "b"], 0, 8)


@pytest.mark.parametrize("view", [workload_view, allocation_view])
def test_what_does_not_exist_is_named_with_what_does(epoch: tuple[Entitlement, Decision], view: Any) -> None:
    with pytest.raises(SnapshotError, match=r"there is no (workload|allocation) .*; (did you mean|valid are)"):
        view(*epoch, "bb")


def test_a_decision_for_another_snapshot_is_refused(epoch: tuple[Entitlement, Decision]) -> None:
    other = entitle(snapshot(nodes(1), [budget("a")]))
    with pytest.raises(SnapshotError, match=r"starts\[0\].workload: v is not in the snapshot"):
        epoch_view(other, epoch[1])


def all_views(snap: Snapshot) -> list[dict[str, Any]]:
    ent, answer = entitle(snap), allocate(snap, engine="greedy")
    text = {"author": "x", "reason": "y", "changes": [{"id": snap.budgets[0].id, "share": 3}]}
    tried = decode_changes(json.dumps(text).encode())
    return [
        epoch_view(ent, answer),
        budgets_view(ent),
        try_view(ent, entitle(apply_changes(snap, tried)), tried),
        *(workload_view(ent, answer, work.id) for work in snap.workloads),
        *(allocation_view(ent, answer, vertex.id) for vertex in snap.budgets),
    ]


@pytest.mark.slow
@settings(max_examples=settings().max_examples // 3)
@given(st.integers(0, 1 << 30))
def test_every_view_is_json_and_fits_a_page(seed: int) -> None:
    for view in all_views(tiny_snapshot(seed)):
        assert json.loads(json.dumps(view, allow_nan=False)) == view
        text = as_text(view)
        assert max(map(len, text.splitlines())) <= 100
        assert "\x1b" not in text
        assert text.isascii()


def test_names_that_look_like_markup_are_shown_as_they_are() -> None:
    snap = snapshot(nodes(1), [budget("[red]a[/red]")], [job("[bold]w", "[red]a[/red]", min_runtime=0)])
    view = workload_view(entitle(snap), allocate(snap, engine="greedy"), "[bold]w")
    assert "[bold]w" in as_text(view)
    assert "[red]a[/red]" in as_text(view)


def test_long_names_are_folded_and_not_cut() -> None:
    name = "a-very-long-name-of-an-allocation-" * 4
    text = as_text(budgets_view(entitle(snapshot(nodes(1), [budget(name)]))))
    folded = "".join(line.split(" ")[0] for line in text.splitlines() if line.startswith(("a-", "v", "l", "n", "o")))
    assert "".join(char for char in name if char != " ")[:40] in folded


def test_ids_that_are_paths_are_not_repeated_below_their_parents() -> None:
    parents = {"base": None, "base/data": "base", "base/data/u1": "base/data", "basement": "base"}
    tree = [budget(name, parent=parent) for name, parent in parents.items()]
    lines = as_text(budgets_view(entitle(snapshot(nodes(1), tree)))).splitlines()
    assert [line[:12].rstrip() for line in lines[4:8]] == ["base", "  /data", "    /u1", "  basement"]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (59, "59 s"), (60, "1 min"), (125, "2 min 5 s"), (3600, "1 h"), (3900, "1 h 05 min"), (90_000, "1 d 1 h")],
)
def test_spans_in_words(seconds: int, words: str) -> None:
    assert duration(seconds) == words


def test_numbers_in_words() -> None:
    assert (gpus(12_000), gpus(12_345)) == ("12", "12.3")
    assert gpu_hours(9_000) == "2.5"
    assert (counted(1, "node"), counted(1234, "node")) == ("1 node", "1,234 nodes")
    assert (listed(["a", "b"]), listed(list("abcde")), listed(["a"], of=9, most=1)) == (
        "a, b",
        "a, b, c and 2 more",
        "a and 8 more",
    )
