"""Edits of what is submitted: more or less of it, at other times, or declared otherwise."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from typing import Any

from allocator.domain import Allocation, Workload
from allocator.domain.trace import Job, Trace
from allocator.generate.files import refuse
from allocator.generate.offered import offered_load, scale_load
from allocator.whatif.scenario_doc import JobsDoc, NewJobDoc, WhichJobsDoc
from allocator.whatif.spans import seconds


def edit_jobs(trace: Trace, doc: JobsDoc, seed: int, place: str) -> Trace:
    """The trace with some of its jobs other than they were.

    Raises
    ------
    SnapshotError
        If no job fits, their number cannot be changed like that, or all of them would come outside the trace.
    """
    below = _below(trace.budgets, doc.where.allocation)
    some = tuple(job for job in trace.jobs if _fits(job.workload, doc.where, below))
    if not some:
        raise refuse(f"{place}.where", "no job of the trace fits", "ask for less")
    if doc.shift is not None:
        _refuse_outside(trace, some, doc.shift, f"{place}.shift")
    ids = {job.workload.id for job in some}
    others = tuple(job for job in trace.jobs if job.workload.id not in ids)
    if doc.times is not None:
        some = _times(replace(trace, jobs=some), doc.times, seed)
    changed = (_changed(job, trace, doc) for job in some)
    return _with_jobs(trace, (*others, *changed))


def set_load(trace: Trace, load: float, seed: int, place: str) -> Trace:
    """The trace with another offered load."""
    if load <= 0:
        raise refuse(place, "a load of nothing", "give more than 0, or leave jobs out with times = 0")
    return scale_load(trace, load, seed)


def _below(budgets: Iterable[Allocation], vertex: str | None) -> set[str]:
    """A vertex and all below it."""
    children: dict[str | None, list[str]] = {}
    for budget in budgets:
        children.setdefault(budget.parent, []).append(budget.id)
    found, queue = set[str](), [vertex] if vertex is not None else []
    while queue:
        found.add(at := queue.pop())
        queue += children.get(at, ())
    return found


def _fits(work: Workload, where: WhichJobsDoc, below: set[str]) -> bool:
    return (
        (where.job_class is None or work.job_class == where.job_class)
        and (where.allocation is None or work.allocation in below)
        and (where.user is None or work.user == where.user)
        and (where.pool is None or where.pool in work.pools)
        and (where.min_gpus is None or work.gpus >= where.min_gpus)
        and (where.max_gpus is None or work.gpus <= where.max_gpus)
    )


def _times(trace: Trace, times: float, seed: int) -> tuple[Job, ...]:
    """So many times the GPU time of the jobs."""
    return scale_load(trace, times * offered_load(trace), seed).jobs if times else ()


def _refuse_outside(trace: Trace, jobs: Iterable[Job], shift: str, place: str) -> None:
    """A few jobs may come at an edge of the trace; if all of them would, nothing of the load they make is left."""
    by = seconds(shift)
    if not any(trace.start <= job.workload.submit_time + by < trace.end for job in jobs):
        side, span = ("after its end" if by > 0 else "before its start"), trace.end - trace.start
        raise refuse(place, f"{shift!r} moves every one of these jobs {side}", f"shift them by less: the trace lasts {span} s")


def _changed(job: Job, trace: Trace, doc: JobsDoc) -> Job:
    """A job at its new time, with what it declares now. What would come outside the trace comes at its edge."""
    work = job.workload
    if doc.shift is not None:
        at = min(max(work.submit_time + seconds(doc.shift), trace.start), trace.end - 1)
        work = replace(work, submit_time=at)
    if doc.speed is not None:
        job = _faster(job, Fraction(str(doc.speed)))
    return replace(job, workload=work if doc.set is None else replace(work, **_given(doc.set)))


def _faster(job: Job, speed: Fraction) -> Job:
    """The same work where each second does the work of `speed` seconds. What the user declares stays, and so do restarts and
    checkpoints: they wait for disks."""
    fails = None if job.fails_after is None else math.ceil(job.fails_after / speed)
    return replace(job, work=math.ceil(job.work / speed), fails_after=fails)


def _given(doc: NewJobDoc) -> dict[str, Any]:
    given = {name: getattr(doc, name) for name in NewJobDoc.__struct_fields__}
    return {name: value for name, value in given.items() if value is not None}


def _with_jobs(trace: Trace, jobs: Iterable[Job]) -> Trace:
    """The trace with these jobs; what waited for a job that is gone waits for nothing."""
    ordered = sorted(jobs, key=lambda job: (job.workload.submit_time, job.workload.id))
    ids = {job.workload.id for job in ordered}
    return replace(
        trace, jobs=tuple(job if job.after is None or job.after in ids else replace(job, after=None) for job in ordered)
    )
