"""Traces from job logs: what the log knows is kept, what it does not know is declared as described in `sources`."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from allocator.domain.trace import Trace
from allocator.generate.files import refuse
from allocator.generate.fleet import build_cluster
from allocator.generate.job import budgets_of, job_of
from allocator.generate.offered import jitter, offered_load, scale_load
from allocator.generate.outages import draw_outages
from allocator.generate.params import DAY
from allocator.generate.sources import Source, SourceRow, lay_over, only_tenants, read_source
from allocator.generate.sources.synthetic import read_shares
from allocator.wire.memory import collector_paused

_DAYS = re.compile(r"^(\d*):(\d*)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """How a log becomes a trace; None leaves it as it is.

    Attributes
    ----------
    form
        Name of the form; None: found by its columns.
    days
        First day, and the day after the last.
    load
        Offered load to be reached.
    seed
        For what is drawn: jitter, thinning and repetition, failures.
    jitter
        Most seconds by which a submission moves; 0: times as recorded.
    budgets
        A tree of shares instead of what the form says.
    failures
        Node failures per GPU and day.
    tenants
        Only their jobs; empty: those of all.
    on_top
        A second log for the same cluster, laid over the first day by day.
    """

    form: str | None = None
    gpus: int | None = None
    days: tuple[int, int | None] = (0, None)
    load: float | None = None
    seed: int = 0
    jitter: int = 0
    budgets: Path | None = None
    failures: float = 0.0
    tenants: tuple[str, ...] = ()
    on_top: Path | None = None


def parse_days(text: str) -> tuple[int, int | None]:
    """`7:14`, `7:` or `:14`."""
    found = _DAYS.match(text.strip())
    if found is None or not any(found.groups()):
        raise refuse("days", f"{text!r} is no span of days", "give the first day and the day after the last, as in 7:14")
    first, last = int(found[1] or 0), int(found[2]) if found[2] else None
    if last is not None and last <= first:
        raise refuse("days", f"{text!r} is empty", "give the first day and a later one, as in 7:14")
    return first, last


def trace_from_log(path: Path, options: LogOptions) -> Trace:
    """The trace of a log, or of some days of it. Its notes tell what was left out.

    Raises
    ------
    SnapshotError
        Where the log cannot be read, no job is submitted in those days, or the load cannot be reached.
    """
    with collector_paused():
        return _trace_from_log(path, options)


def _trace_from_log(path: Path, options: LogOptions) -> Trace:
    source = read_source(path, options.form, options.gpus)
    only_tenants(source, options.tenants)
    second = None if options.on_top is None else read_source(options.on_top, sizes=source.sizes)
    if second is not None:
        lay_over(source, second)
    if options.budgets is not None:
        source.shares = read_shares(options.budgets)
    start, end = _span(source, options.days)
    rows = _without_links_that_leave([row for row in source.rows if start <= row.submit < end])
    if not rows:
        first, last = ((row.submit - source.origin) // DAY for row in (source.rows[0], source.rows[-1]))
        raise refuse("days", "no job is submitted in those days", f"the log has days {first} to {last}")
    trace = Trace(
        name=" with ".join(one.title for one in (source, second) if one is not None),
        start=start,
        end=end,
        cluster=build_cluster(source.sizes),
        budgets=budgets_of(source, rows),
        jobs=tuple(job_of(source, row) for row in rows),
    )
    return _finish(trace, [*source.notes(), *(second.notes() if second is not None else ())], options)


def _finish(trace: Trace, notes: list[str], options: LogOptions) -> Trace:
    """Load, jitter and failures, and what there is to tell of them besides these notes."""
    notes = list(notes)
    notes.append(f"{len(trace.jobs)} jobs in {(trace.end - trace.start) // DAY} days, offered load {offered_load(trace):.3f}")
    if options.load is not None:
        trace = scale_load(trace, options.load, options.seed)
        notes.append(f"scaled to {len(trace.jobs)} jobs, offered load {offered_load(trace):.3f}")
    if options.jitter:
        trace = jitter(trace, options.jitter, options.seed)
        notes.append(f"submissions moved by up to {options.jitter} s, seed {options.seed}")
    if options.failures:
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(options.seed, spawn_key=(1,))))
        trace = replace(trace, outages=draw_outages(trace.cluster, trace.start, trace.end, rng, options.failures))
        notes.append(f"{len(trace.outages)} node failures drawn")
    jobs = sorted(trace.jobs, key=lambda job: (job.workload.submit_time, job.workload.id))
    return replace(trace, jobs=tuple(jobs), notes=tuple(notes))


def _span(source: Source, days: tuple[int, int | None]) -> tuple[int, int]:
    """Start and end: whole days of the log."""
    first, last = days
    if last is None:
        last = (source.rows[-1].submit - source.origin) // DAY + 1
    if last <= first:
        raise refuse("days", f"the log ends before day {first}", f"it has {last} days")
    return source.origin + first * DAY, source.origin + last * DAY


def _without_links_that_leave(rows: list[SourceRow]) -> list[SourceRow]:
    """Segments whose predecessor lies before the first day begin a chain of their own."""
    keys = {row.key for row in rows}
    return [replace(row, after=None) if row.after is not None and row.after not in keys else row for row in rows]
