"""Budget files: the tree on its first day, and every change since, with its date, its author and its reason.

    { "version": 1,
      "budgets": [ { "id": "vision", "parent": null, "share": 2 }, ... ],
      "change_sets": [ { "author": "carla", "reason": "vision doubles", "effective": 1764547200, "changes": [ ... ] }, ... ] }

The change sets are those of `changes`, in the order of their dates; each is a change of the tree that the ones before it leave.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from allocator.domain import Allocation, Issue, SnapshotError
from allocator.wire.changes import ChangeSet, ChangeSetDoc, change_set_issues, change_set_of, decode_raw
from allocator.wire.consistency import check_budgets
from allocator.wire.decode import exact_fraction
from allocator.wire.draft import Draft
from allocator.wire.shapes import problems
from allocator.wire.snapshot_doc import AllocationDoc, ClusterDoc, Doc, SnapshotDoc


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetFile:
    """A tree, and its changes in the order of their dates; each of them has one."""

    budgets: tuple[Allocation, ...]
    change_sets: tuple[ChangeSet, ...]


class BudgetFileDoc(Doc, kw_only=True):
    """The tree on its first day, and what has changed since."""

    version: Literal[1]
    budgets: Annotated[list[AllocationDoc], Meta(min_length=1, description="the tree before the first change")]
    change_sets: Annotated[tuple[ChangeSetDoc, ...], Meta(description="in the order of their dates")] = ()


def decode_budget_change(data: bytes) -> ChangeSet | BudgetFile:
    """A change set, or a whole budget file: what has `budgets` is one. Raises `SnapshotError` with every issue."""
    raw = decode_raw(data)
    if not (isinstance(raw, dict) and "budgets" in raw):
        if issues := change_set_issues(raw, "$"):
            raise SnapshotError(issues)
        return change_set_of(raw)
    issues = problems(raw, BudgetFileDoc, "$") or [*_tree_issues(raw), *_history_issues(raw.get("change_sets", []))]
    if issues:
        raise SnapshotError(issues)
    docs = msgspec.convert(raw["budgets"], list[AllocationDoc])
    budgets: tuple[Allocation, ...] = msgspec.convert(
        docs, tuple[Allocation, ...], from_attributes=True, dec_hook=exact_fraction
    )
    return BudgetFile(budgets=budgets, change_sets=tuple(map(change_set_of, raw.get("change_sets", []))))


def _tree_issues(raw: Mapping[str, Any]) -> list[Issue]:
    """Contradictions of the tree, found as those of a snapshot are."""
    budgets = msgspec.convert(raw["budgets"], list[AllocationDoc])
    empty = ClusterDoc(levels=("node",), nodes=[])
    draft = Draft(doc=SnapshotDoc(version=1, now=0, cluster=empty, budgets=budgets, workloads=[]))
    check_budgets(draft)
    return draft.issues


def _history_issues(change_sets: list[dict[str, Any]]) -> Iterator[Issue]:
    """Ensures that every change set makes sense, has a date, and stands after those that come before it."""
    latest = 0
    for at, changes in enumerate(change_sets):
        path = f"$.change_sets[{at}]"
        yield from change_set_issues(changes, path)
        effective = changes.get("effective")
        if effective is None:
            yield Issue(path=f"{path}.effective", problem="the field is missing", remedy="give the date that it counts from")
        elif effective < latest:
            problem = f"{effective} is before the change set above it ({latest})"
            yield Issue(path=f"{path}.effective", problem=problem, remedy="order change sets by their dates")
        latest = max(latest, effective or 0)
