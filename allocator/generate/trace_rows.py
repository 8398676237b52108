"""Rows of public job traces: ElasticFlow, Philly and Kalos, as CSV, plain or gzip.

====================  =============================================  ========================================
form                  columns                                        tenant
====================  =============================================  ========================================
ElasticFlow           cluster, job_id, submit_s, duration_s, gpus    the `cluster`, as a pseudo-tenant
Philly                job_id, submit_s, duration_s, gpus, vc         the virtual cluster
Kalos                 job_id, submit_s, duration_s, gpus, job_type   the job type, as a pseudo-tenant
====================  =============================================  ========================================

Times are seconds since the start of the trace. Further columns are not used. A row that cannot be used is counted under
its reason, with the line of the first one; none is dropped in silence.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from allocator.generate.demand import split_tasks
from allocator.generate.files import read_text, refuse

GPUS_PER_NODE = 8
COMMON = frozenset({"job_id", "submit_s", "duration_s", "gpus"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceForm:
    """One form: the column that names the tenant, the instant of its second 0, and the GPUs that it is replayed on."""

    name: str
    tenant: str
    origin: int
    gpus: int


FORMS = (
    TraceForm(name="ElasticFlow", tenant="cluster", origin=1_614_816_000, gpus=1024),
    TraceForm(name="Philly", tenant="vc", origin=1_504_521_041, gpus=512),
    TraceForm(name="Kalos", tenant="job_type", origin=1_682_899_200, gpus=2416),
)
"""Origins: 2021-03-04, 2017-09-04 10:30:41 and (only the month is known) 2023-05-01, taken as UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRow:
    """One job: times in seconds since the start of the trace; `number` counts the usable rows of the file."""

    number: int
    job_id: str
    tenant: str
    submit: int
    duration: int
    gpus: int


@dataclass(slots=True)
class Trace:
    """The usable rows by submission, and the reasons for which others are not used: count and first line of each."""

    form: TraceForm
    rows: list[TraceRow] = field(default_factory=list)
    num_read: int = 0
    unusable: dict[str, tuple[int, int]] = field(default_factory=dict)

    def skip(self, reason: str, line: int) -> None:
        """Count a row that cannot be used."""
        count, first = self.unusable.get(reason, (0, line))
        self.unusable[reason] = (count + 1, first)

    def notes(self) -> list[str]:
        """What was read and what was not used, for people."""
        skipped = sum(count for count, _ in self.unusable.values())
        lines = [f"{self.form.name} trace: {self.num_read} rows, {skipped} of them cannot be used"]
        lines.extend(
            f"{count} rows not used: {reason} (first in line {first})" for reason, (count, first) in self.unusable.items()
        )
        return lines


def read_trace(path: Path, gpus: int | None = None) -> Trace:
    """Read a trace whose jobs are to run on `gpus` GPUs (None: the size that belongs to the form).

    Raises
    ------
    SnapshotError
        Where the file is none of the three forms, or no row can be used.
    """
    reader = csv.DictReader(io.StringIO(read_text(path)))
    columns = frozenset(reader.fieldnames or ())
    form = next((form for form in FORMS if columns >= COMMON | {form.tenant}), None)
    if form is None:
        raise refuse(
            f"{path}, line 1",
            f"columns {', '.join(reader.fieldnames or ('none',))} are those of no known trace",
            f"give {', '.join(sorted(COMMON))} and one of {', '.join(form.tenant for form in FORMS)}",
        )
    trace = Trace(form=form)
    limit = form.gpus if gpus is None else gpus
    seen: set[tuple[str, str]] = set()
    for record in reader:
        trace.num_read += 1
        _take(trace, record, reader.line_num, limit, seen)
    if not trace.rows:
        raise refuse(str(path), f"none of {trace.num_read} rows can be used", "; ".join(trace.notes()[1:]) or "give rows")
    trace.rows.sort(key=lambda row: (row.submit, row.number))
    return trace


def _take(trace: Trace, record: Mapping[str | None, object], line: int, limit: int, seen: set[tuple[str, str]]) -> None:
    """Use one row, or count why not."""
    job_id, tenant = str(record["job_id"] or "").strip(), str(record[trace.form.tenant] or "").strip()
    submit, duration, gpus = (_number(record[column]) for column in ("submit_s", "duration_s", "gpus"))
    if submit is None or duration is None or gpus is None:
        trace.skip("submit_s, duration_s or gpus is no number", line)
    elif not job_id or not tenant:
        trace.skip(f"job_id or {trace.form.tenant} is empty", line)
    elif (tenant, job_id) in seen:
        trace.skip("the job is given twice", line)
    elif gpus < 1 or gpus != int(gpus):
        trace.skip("no whole GPUs", line)
    elif submit < 0 or duration <= 0:
        trace.skip("the job has no run time, or was submitted before the trace", line)
    elif gpus > limit:
        trace.skip(f"the job asks for more than the cluster's {limit} GPUs", line)
    elif not _packs(int(gpus), limit // GPUS_PER_NODE):
        trace.skip("the job's tasks do not pack on 8-GPU nodes", line)
    else:
        seen.add((tenant, job_id))
        trace.rows.append(
            TraceRow(
                number=len(trace.rows),
                job_id=job_id,
                tenant=tenant,
                submit=int(submit),
                duration=max(1, round(duration)),
                gpus=int(gpus),
            )
        )


def _packs(gpus: int, num_nodes: int) -> bool:
    """Whether the gang fits the empty cluster in equal tasks."""
    tasks, gpus_per_task = split_tasks(gpus, GPUS_PER_NODE)
    return tasks <= num_nodes * (GPUS_PER_NODE // gpus_per_task)


def _number(text: object) -> float | None:
    """A finite number, or None."""
    try:
        value = float(str(text))
    except ValueError:
        return None
    return value if math.isfinite(value) else None
