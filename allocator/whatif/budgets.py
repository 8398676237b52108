"""Edits of the budgets: change sets and budget files, each from its date on."""

from __future__ import annotations

from dataclasses import replace

from allocator.domain import Allocation
from allocator.domain.trace import Revision, Trace
from allocator.explain.budgets import change_budgets, pools_of, trees_of
from allocator.generate.files import refuse
from allocator.whatif.budget_edits import BudgetEdit
from allocator.wire.budget_file import BudgetFile
from allocator.wire.changes import ChangeSet

Trees = dict[int, Revision]
"""The trees of a trace by the moment from which each is in force; the first from the start on."""


def edit_budgets(trace: Trace, edit: BudgetEdit) -> Trace:
    """The trace under other budgets.

    A change set is applied to the tree in force at its date, and to every later one: revisions of the trace stay, and the
    change with them. A change without a date, or with one before the start, holds from the start on. A budget file replaces
    all trees of the trace.

    Raises
    ------
    SnapshotError
        If a change does not fit a tree, or comes after the end.
    """
    trees = _of_file(trace, edit.what) if isinstance(edit.what, BudgetFile) else _changed(trace, edit, edit.what)
    first = trees.pop(trace.start)
    return replace(trace, budgets=first.budgets, revisions=tuple(trees[at] for at in sorted(trees)))


def _of_file(trace: Trace, file: BudgetFile) -> Trees:
    trees: Trees = {}
    for changes, budgets in trees_of(file, pools_of(trace.cluster)):
        at = max(trace.start, (changes.effective or 0) if changes is not None else 0)
        if at < trace.end:
            trees[at] = _revision(at, budgets, changes)
    return trees


def _changed(trace: Trace, edit: BudgetEdit, changes: ChangeSet) -> Trees:
    begins = trace.start + edit.at if edit.at is not None else max(trace.start, changes.effective or 0)
    if begins >= trace.end:
        problem = f"the change counts from {begins} on, and the trace ends at {trace.end}"
        raise refuse(edit.place, problem, "give at = a moment inside the trace")
    before = {trace.start: Revision(at=trace.start, budgets=trace.budgets)} | {row.at: row for row in trace.revisions}
    in_force = before[max(at for at in before if at <= begins)]
    trees = {**before, begins: _revision(begins, in_force.budgets, changes)}
    pools = pools_of(trace.cluster)
    return {
        at: row if at < begins else replace(row, budgets=change_budgets(row.budgets, changes, pools, edit.place))
        for at, row in trees.items()
    }


def _revision(at: int, budgets: tuple[Allocation, ...], changes: ChangeSet | None) -> Revision:
    if changes is None:
        return Revision(at=at, budgets=budgets)
    return Revision(at=at, budgets=budgets, author=changes.author, reason=changes.reason)
