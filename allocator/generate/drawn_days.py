"""Another draw of what was submitted: days of a trace drawn with replacement."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from allocator.domain.trace import Job, Trace
from allocator.generate.offered import chained_ids, free_id
from allocator.generate.params import DAY


def draw_days(trace: Trace, seed: int) -> Trace:
    """The same trace with the submissions of days drawn with replacement, a day of the week for one, a weekend day for one.

    It is how another such span might have been: some days come twice, others not at all. Chains of jobs stay where they are,
    as does what lies outside whole days; a job of a drawn day keeps its hour. The offered load comes out as it is drawn.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    chained = chained_ids(trace.jobs)
    by_day: dict[int, list[Job]] = {}
    for job in trace.jobs:
        if job.workload.id not in chained:
            by_day.setdefault((job.workload.submit_time - trace.start) // DAY, []).append(job)
    days = range((trace.end - trace.start) // DAY)
    taken = {job.workload.id for job in trace.jobs}
    jobs = [job for job in trace.jobs if job.workload.id in chained]
    jobs += [job for day, of_day in by_day.items() if day not in days for job in of_day]
    for day, drawn in zip(days, _draw_like(trace, days, rng), strict=True):
        jobs += [_on_day(job, day - drawn, taken) for job in by_day.get(drawn, ())]
    jobs.sort(key=lambda job: (job.workload.submit_time, job.workload.id))
    return replace(trace, jobs=tuple(jobs))


def _draw_like(trace: Trace, days: range, rng: np.random.Generator) -> list[int]:
    """For each day one of its kind: of the week, or of the weekend (by the clock of the trace, UTC)."""

    def weekend(day: int) -> bool:
        return (trace.start // DAY + day + 3) % 7 >= 5  # the epoch began on a Thursday

    kinds = {kind: [day for day in days if weekend(day) is kind] for kind in (False, True)}
    return [kinds[weekend(day)][int(rng.integers(len(kinds[weekend(day)])))] for day in days]


def _on_day(job: Job, days: int, taken: set[str]) -> Job:
    """A job as it is, or so many days later under an id of its own."""
    if days == 0:
        return job
    work = job.workload
    return replace(job, workload=replace(work, id=free_id(work.id, 1, taken), submit_time=work.submit_time + days * DAY))
