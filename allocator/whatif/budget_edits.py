"""Changes of budgets in a scenario: from files, or as they stand there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from allocator.domain import Issue, SnapshotError
from allocator.generate.files import refuse
from allocator.whatif.scenario_doc import BudgetsFileDoc
from allocator.whatif.spans import seconds, span_issues
from allocator.wire.budget_file import BudgetFile, decode_budget_change
from allocator.wire.changes import ChangeSet, change_set_issues, change_set_of
from allocator.wire.shapes import problems


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetEdit:
    """A change of the budgets. `at`: so many seconds after the start, whatever date it has; None: as dated."""

    what: ChangeSet | BudgetFile
    at: int | None
    place: str


def budget_edits(found: Any, path: str, folder: Path, issues: list[Issue]) -> Iterator[BudgetEdit]:
    """The changes of one variant; what is wrong with the others is noted."""
    for place, raw in enumerate(array_of(found, path, issues)):
        try:
            yield _edit(raw, f"{path}[{place}]", folder)
        except SnapshotError as error:
            issues += error.issues


def array_of(found: Any, path: str, issues: list[Issue]) -> list[Any]:
    """An array of tables, or an issue."""
    if isinstance(found, list):
        return found
    issues.append(Issue(path=path, problem="a single value is not valid here", remedy="give an array of tables"))
    return []


def _edit(raw: Any, path: str, folder: Path) -> BudgetEdit:
    """One change. Raises `SnapshotError` with all that is wrong with it."""
    at = raw.get("at") if isinstance(raw, dict) else None
    issues = list(span_issues(f"{path}.at", at))
    inline = {key: value for key, value in raw.items() if key != "at"} if isinstance(raw, dict) and "file" not in raw else None
    issues += problems(raw, BudgetsFileDoc, path) if inline is None else change_set_issues(inline, path)
    if issues:
        raise SnapshotError(issues)
    what = _from_file(folder / raw["file"], path) if inline is None else change_set_of(inline)
    if at is not None and isinstance(what, BudgetFile):
        raise refuse(f"{path}.at", "a budget file has dates of its own", "leave at out")
    return BudgetEdit(what=what, at=None if at is None else seconds(at), place=path)


def _from_file(file: Path, path: str) -> ChangeSet | BudgetFile:
    try:
        return decode_budget_change(file.read_bytes())
    except OSError as error:
        raise refuse(f"{path}.file", f"{file} cannot be read ({error.strerror})", "give a file that exists") from error
    except SnapshotError as error:
        raise SnapshotError([replace(issue, path=f"{file}: {issue.path}") for issue in error.issues]) from error
