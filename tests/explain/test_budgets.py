"""Change sets: read, checked against the budgets, tried, and told before they take effect."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest

from allocator.domain import Snapshot, SnapshotError
from allocator.entitlement import entitle
from allocator.explain import apply_changes, budgets_view, try_view
from allocator.wire.changes import ChangeKind, ChangeSet, decode_changes, load_changes
from tests.builders import HOUR, NOW, budget, job, node, nodes, running, snapshot, used


def changes(*rows: dict[str, Any], **fields: Any) -> ChangeSet:
    return decode_changes(json.dumps({"author": "ana", "reason": "less is more", "changes": rows} | fields).encode())


def issues(call: Any) -> list[str]:
    with pytest.raises(SnapshotError) as caught:
        call()
    return [str(issue) for issue in caught.value.issues]


BUDGETS = [
    budget("p", 3),
    budget("a", 1, "p", gpu_limit=64, share_by_pool={"b200": 5}),
    budget("b", 2, "p"),
    budget("q", 1),
]


@pytest.fixture
def snap() -> Snapshot:
    return snapshot([*nodes(2), node("m1", pool="b200")], BUDGETS, [running("r", "a", {"n1": 1}), job("w", "b")])


# --- the document ------------------------------------------------------------------------------------------------------


def test_a_change_set_is_read_exactly(tmp_path: Any) -> None:
    text = {"author": "ana", "reason": "r", "effective": NOW, "changes": [{"id": "a", "share": 0.1, "gpu_limit": None}]}
    path = tmp_path / "changes.json"
    path.write_text(json.dumps(text))
    found = load_changes(path)
    assert (found.author, found.reason, found.effective) == ("ana", "r", NOW)
    assert found.changes[0].kind is ChangeKind.CHANGE
    assert found.changes[0].values == {"share": Fraction(1, 10), "gpu_limit": None}


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"id": "a"}, '$.changes[0]: nothing changes for "a"'),
        ({"id": "a", "share": None}, "$.changes[0].share: null is not valid here"),
        ({"id": "a", "share": -1}, "$.changes[0].share: -1 is not valid here"),
        ({"id": "a", "shar": 1}, '$.changes[0].shar: unknown field "shar"; did you mean "share"?'),
        ({"share": 1}, "$.changes[0].id: the field is missing"),
        ({"id": "n", "add": True, "share": 1}, "$.changes[0].parent: a new allocation needs it"),
        ({"id": "n", "add": True, "parent": None}, "$.changes[0].share: a new allocation needs it"),
        ({"id": "a", "remove": True, "share": 1}, "$.changes[0]: a removal that also sets share"),
        ({"id": "a", "remove": True, "add": True}, "$.changes[0]: both add and remove"),
    ],
)
def test_what_makes_no_sense_is_named_with_its_place(row: dict[str, Any], problem: str) -> None:
    assert issues(lambda: changes(row))[0].startswith(problem)


def test_all_problems_are_named() -> None:
    found = issues(lambda: changes({"id": "a", "share": "1"}, {"id": "", "funds": 1}, author=""))
    assert [issue.split(":")[0] for issue in found] == [
        "$.author",
        "$.changes[0].share",
        "$.changes[1].id",
        "$.changes[1].funds",
    ]
    twice = issues(lambda: changes({"id": "a", "share": 1}, {"id": "a", "share": 2}))
    assert twice[0].startswith('$.changes[1].id: "a" is changed before, at $.changes[0]')


def test_what_is_no_json_is_refused_with_line_and_column() -> None:
    assert "line 1" in issues(lambda: decode_changes(b'{"author": "a", "reason": NaN}'))[0]


# --- applied to budgets ------------------------------------------------------------------------------------------------


def test_changes_are_made_together(snap: Snapshot) -> None:
    after = apply_changes(
        snap,
        changes(
            {"id": "a", "share": 4, "gpu_limit": None, "share_by_pool": {"b200": None, "h100": 7}},
            {"id": "q", "remove": True},
            {"id": "c", "add": True, "parent": "new", "share": 1, "funds": False},
            {"id": "new", "add": True, "parent": None, "share": 2, "interactive_limit": 8},
            {"id": "b", "parent": "new", "name": "Bee"},
        ),
    )
    found = {vertex.id: vertex for vertex in after.budgets}
    assert sorted(found) == ["a", "b", "c", "new", "p"]
    assert (found["a"].share, found["a"].gpu_limit, dict(found["a"].share_by_pool)) == (
        Fraction(4),
        None,
        {"h100": Fraction(7)},
    )
    assert (found["b"].parent, found["b"].name, found["b"].share) == ("new", "Bee", Fraction(2))
    assert (found["c"].parent, found["c"].funds, found["new"].interactive_limit) == ("new", False, 8)
    assert after.workloads == snap.workloads


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([{"id": "aa", "share": 1}], '$.changes[0].id: there is no allocation "aa"; did you mean "a"?'),
        ([{"id": "zzz", "remove": True}], '$.changes[0].id: there is no allocation "zzz"'),
        ([{"id": "a", "add": True, "parent": None, "share": 1}], '$.changes[0].id: "a" exists already'),
        ([{"id": "a", "share_by_pool": {"h10": 1}}], '$.changes[0].share_by_pool.h10: there is no pool "h10"'),
        ([{"id": "p", "remove": True}], '$.changes[0]: "a" would lose its parent "p"'),
        ([{"id": "a", "parent": "zzz"}], '$.changes[0].parent: there is no allocation "zzz"'),
        ([{"id": "p", "parent": "a"}], '$.changes[0].parent: "p" would hang under itself'),
        ([{"id": "p", "parent": "q"}, {"id": "q", "parent": "b"}], '$.changes[0].parent: "p" would hang under itself'),
        ([{"id": "a", "parent": "a"}], '$.changes[0].parent: "a" would hang under itself'),
    ],
)
def test_what_does_not_fit_the_budgets_is_named(snap: Snapshot, rows: list[dict[str, Any]], problem: str) -> None:
    assert issues(lambda: apply_changes(snap, changes(*rows)))[0].startswith(problem)


def test_an_empty_tree_of_changes_that_undo_each_other(snap: Snapshot) -> None:
    there = apply_changes(snap, changes({"id": "a", "share": 9}))
    assert apply_changes(there, changes({"id": "a", "share": 1})) == snap


# --- what people see ---------------------------------------------------------------------------------------------------


def test_the_tree_is_listed_parents_first(snap: Snapshot) -> None:
    view = budgets_view(entitle(snap))
    assert [(row["id"], row["pool"], row["depth"]) for row in view["rows"]][::2] == [
        ("p", "b200", 0),
        ("a", "b200", 1),
        ("b", "b200", 1),
        ("q", "b200", 0),
    ]
    row = next(row for row in view["rows"] if (row["id"], row["pool"]) == ("a", "h100"))
    assert (row["share_of_parent"], row["share"], row["gpu_hours_per_day"]) == (1 / 3, 1 / 4, 16 * 24 / 4)
    assert (row["charged_gpus"], row["gpu_limit"], row["parent"]) == (8, 64, "p")
    budget_of_a = 16 * (7 * 24 + 8) * HOUR // 4
    assert (row["budget_gpu_seconds"], row["usage_gpu_seconds"]) == (budget_of_a, 80 * HOUR)
    assert row["balance_gpu_seconds"] == budget_of_a - 80 * HOUR - row["promised_gpu_seconds"]


def test_a_vertex_that_cannot_fund_what_waits_is_named() -> None:
    works = [job("w1", "a", 8), job("w2", "a", 8), job("gang", "a", 64)]
    snap = snapshot(nodes(8), [budget("a"), budget("b", 99)], works, window=2 * HOUR, protection_cap=2 * HOUR)
    found = budgets_view(entitle(snap))["warnings"]
    # a has a hundredth of 64 GPUs times 4 h; what waits costs 16, 16 and 128 GPU-hours.
    assert found[0] == (
        "a in h100: what waits asks for promises of 160.0 GPU-hours, 2.6 of 2.6 are left; 0 of 3 workloads funded"
    )
    assert found[1].startswith("gang (64 GPUs for 2 h) costs 128.0 GPU-hours, more than the whole budget of a in h100 (2.6)")
    assert not budgets_view(entitle(snapshot(nodes(8), [budget("a")], works)))["warnings"]


def test_a_trial_shows_both_sides(snap: Snapshot) -> None:
    tried = changes({"id": "b", "share": 8}, {"id": "q", "remove": True}, {"id": "z", "add": True, "parent": None, "share": 1})
    view = try_view(entitle(snap), entitle(apply_changes(snap, tried)), tried)
    found = {(row["id"], row["pool"]): row for row in view["rows"]}
    assert {key for key, row in found.items() if row["change"] == "added"} == {("z", "h100"), ("z", "b200")}
    assert {key for key, row in found.items() if row["change"] == "removed"} == {("q", "h100"), ("q", "b200")}
    assert found["b", "h100"]["before"]["share"] == 0.5
    assert found["b", "h100"]["after"]["share"] == pytest.approx(0.75 * 8 / 9)
    assert found["p", "h100"]["change"] == "same"
    assert (view["author"], view["effective"]) == ("ana", None)
    json.dumps(view, allow_nan=False)


def test_a_trial_tells_whose_funds_come_and_go() -> None:
    snap = snapshot(nodes(2), [budget("a"), budget("b")], [job("w", "a"), job("v", "b")], usage=[used("a", 16_000)])
    tried = changes({"id": "b", "remove": True})
    view = try_view(entitle(snap), entitle(apply_changes(snap, tried)), tried)
    assert view["funded"]["before"] == {"workloads": 1, "of_workloads": 2, "gpus": 8, "of_gpus": 16}
    assert view["funded"]["after"]["of_workloads"] == 1
    assert view["cannot_be_decided"] == ["v"]
