"""Numbers into documents: the part of a Markdown page between two marks is replaced, all else is left alone."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from allocator.bench.runs import Run
from allocator.bench.summary import summarise
from allocator.bench.table import STEPS_HEAD, SUMMARY_HEAD, facts_line, markdown_table, steps_rows, summary_row
from allocator.domain import Issue, SnapshotError


def markdown_report(runs: Sequence[Run], machine: Mapping[str, str]) -> str:
    """Summaries, steps and the machine."""
    lines = markdown_table(SUMMARY_HEAD, [summary_row(summary) for summary in summarise(runs)])
    lines += ["", "Mean seconds by step:", ""]
    lines += markdown_table(STEPS_HEAD, steps_rows(runs))
    return "\n".join([*lines, "", f"Measured on {facts_line(machine)}"])


def write_report(path: Path, name: str, text: str) -> None:
    """Replace what stands between `<!-- bench NAME -->` and `<!-- end -->`.

    Raises
    ------
    SnapshotError
        If the page cannot be read or has no such marks.
    """
    page = read_page(path, name)
    path.write_text(_between(name).sub(lambda match: f"{match[1]}\n{text}\n\n{match[2]}", page), encoding="utf-8")


def read_page(path: Path, name: str) -> str:
    """The page that is to take numbers of this name: to be asked before what takes long is measured.

    Raises
    ------
    SnapshotError
        If it cannot be read or has no marks for them.
    """
    try:
        page = path.read_text(encoding="utf-8")
    except OSError as error:
        raise _refusal(path, f"cannot be read ({error.strerror or error})") from error
    if not _between(name).search(page):
        raise _refusal(path, f"has no marks for {name}")
    return page


def _between(name: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- bench {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)


def _refusal(path: Path, problem: str) -> SnapshotError:
    remedy = "give a Markdown page with <!-- bench NAME --> and <!-- end --> around the numbers"
    return SnapshotError([Issue(path=str(path), problem=problem, remedy=remedy)])
