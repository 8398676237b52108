"""The Standard Workload Format: 18 numbers a line, comments that begin with a semicolon.

A processor counts as a GPU. The group is the tenant, the user number the user; the class follows from the size. Processors
are those allocated, or those requested where that is unknown; the run time and the requested time are taken as they stand.
Jobs that failed or were cancelled (status 0 and 5) end where they ended. The header's UnixStartTime is the start.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from allocator.generate.sources.fields import Record, number, whole_gpus
from allocator.generate.sources.form import read_rows
from allocator.generate.sources.rows import Source, SourceRow, UnusableError, class_by_size, split, usual

FIELDS = (
    "job", "submit", "wait", "run", "processors", "cpu", "memory", "requested", "limit", "requested_memory", "status", "user",
    "group", "executable", "queue", "partition", "before", "think",
)  # fmt: skip
_START = re.compile(r"^;\s*UnixStartTime:\s*(\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SwfForm:
    """The format of the Parallel Workloads Archive."""

    name: str = "swf"
    title: str = "SWF"
    gpus: int = 128
    pools: int = 1

    def fits(self, content: str) -> int:
        """18 fields, if it begins with a comment or such a line."""
        first = content.lstrip().partition("\n")[0]
        cells = first.split()
        return len(FIELDS) if first.startswith(";") or (len(cells) == len(FIELDS) and "," not in first) else 0

    def fill(self, source: Source, content: str) -> None:
        """Read every job, or count why not."""
        found = _START.search(content)
        source.origin = int(found[1]) if found else 0
        read_rows(source, _records(content), _read)


def _records(content: str) -> Iterator[tuple[int, Record]]:
    for line, text in enumerate(content.splitlines(), start=1):
        if text.strip() and not text.lstrip().startswith(";"):
            yield line, dict(zip(FIELDS, text.split(), strict=False))


def _read(source: Source, record: Record) -> SourceRow:
    gpus = whole_gpus(record, "processors" if number(record, "processors") > 0 else "requested")
    work, submit = round(number(record, "run")), int(number(record, "submit"))
    if work < 1 or submit < 0:
        raise UnusableError("the job has no run time, or no submission")
    limit = int(number(record, "limit"))
    tasks, gpus_per_task = split(gpus)
    return SourceRow(
        key=record["job"],
        tenant=f"group{record['group']}",
        user=f"user{record['user']}",
        submit=source.origin + submit,
        work=work,
        tasks=tasks,
        gpus_per_task=gpus_per_task,
        declared=usual(class_by_size(gpus), len(source.rows), work, tasks=tasks, limit=limit if limit > 0 else None),
        fails=number(record, "status") in (0, 5),
    )


SWF = SwfForm()
