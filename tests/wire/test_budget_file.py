"""Budget files: the tree of the first day, and every change since."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest

from allocator.domain import SnapshotError
from allocator.explain.budgets import budgets_at, trees_of
from allocator.wire.budget_file import BudgetFile, decode_budget_change
from allocator.wire.changes import ChangeSet

TREE = [{"id": "a", "parent": None, "share": 0.1}, {"id": "b", "parent": "a", "share": 2}]


def change(at: int | None, share: float, name: str = "a") -> dict[str, Any]:
    return {"author": "ana", "reason": f"{share}", "effective": at, "changes": [{"id": name, "share": share}]}


def decoded(*change_sets: Any, budgets: Any = TREE) -> BudgetFile:
    raw = {"version": 1, "budgets": budgets, "change_sets": list(change_sets)}
    found = decode_budget_change(json.dumps(raw).encode())
    assert isinstance(found, BudgetFile)
    return found


def told(*change_sets: Any, budgets: Any = TREE) -> list[str]:
    with pytest.raises(SnapshotError) as caught:
        decoded(*change_sets, budgets=budgets)
    return [str(issue) for issue in caught.value.issues]


def test_each_change_set_changes_the_tree_before_it() -> None:
    file = decoded(change(10, 5), change(20, 7, "b"), change(20, 8))
    assert file.budgets[0].share == Fraction(1, 10)
    trees = [[vertex.share for vertex in tree] for _, tree in trees_of(file, [])]
    assert trees == [[Fraction(1, 10), 2], [5, 2], [5, 7], [8, 7]]
    reasons = [last.reason if last else None for last, _ in (budgets_at(file, at, []) for at in (9, 10, 19, 20))]
    assert reasons == [None, "5", "5", "8"]


def test_what_has_no_tree_is_a_change_set() -> None:
    found = decode_budget_change(json.dumps(change(None, 3)).encode())
    assert isinstance(found, ChangeSet)
    assert found.effective is None
    with pytest.raises(SnapshotError, match="the field is missing"):
        decode_budget_change(b"{}")


def test_every_issue_is_told_with_its_place() -> None:
    twice = {"author": "b", "reason": "r", "effective": 4, "changes": [{"id": "a", "share": 1}, {"id": "a", "share": 2}]}
    issues = told(change(5, 1), change(None, 1), twice)
    assert [each.split(": ")[0] for each in issues] == [
        "$.change_sets[1].effective", "$.change_sets[2].changes[1].id", "$.change_sets[2].effective",
    ]  # fmt: skip
    assert "$.change_sets[2].changes[0]" in issues[1]
    assert "before the change set above it" in issues[2]
    assert any("unknown parent" in each for each in told(budgets=[{"id": "a", "parent": "z", "share": 1}]))
    assert any("$.change_sets[0].author" in each for each in told({"reason": "r"}))


def test_a_change_that_does_not_fit_its_tree_says_which() -> None:
    with pytest.raises(SnapshotError, match=r"\$\.change_sets\[1\]\.changes\[0\]\.id: there is no allocation"):
        trees_of(decoded(change(1, 1), change(2, 1, "z")), [])
