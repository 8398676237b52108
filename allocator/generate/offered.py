"""The offered load of a trace: how much is asked for, and more or less of the same.

The offered load is the GPU time that the jobs need, without restarts, over the GPU time of the cluster between start and
end. Chains of jobs (campaigns) are left as they are: doubled, they would only wait for one another, and cut, they would be
something else. All other jobs are thinned or repeated.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from allocator.domain.trace import Job, Trace
from allocator.generate.files import refuse
from allocator.generate.params import DAY

ATTEMPTS = 12
"""Draws among which the one is taken that meets the load best."""

BURST_SPAN = 600
"""What one user submits inside one such span moves together."""


def asked(job: Job) -> int:
    """GPU-seconds that a job needs until it completes or dies."""
    return job.workload.gpus * (job.work if job.fails_after is None else min(job.work, job.fails_after))


def offered_load(trace: Trace) -> float:
    """GPU time asked for over GPU time that there is."""
    return sum(map(asked, trace.jobs)) / _capacity(trace)


def _capacity(trace: Trace) -> int:
    return sum(node.gpus for node in trace.cluster.nodes) * (trace.end - trace.start)


def scale_load(trace: Trace, load: float, seed: int) -> Trace:
    """The same trace with another offered load.

    Jobs are taken in the order of their size in GPU-seconds and kept, or repeated, evenly along it, beginning at a point
    drawn from the seed: so every size gives its part, and the load is met closely. A repeated job comes whole weeks later
    or earlier (days, in a trace of less than two weeks), with all that its user submitted in those ten minutes.

    Raises
    ------
    SnapshotError
        If the chains alone ask for more, or there is nothing to repeat.
    """
    chained = chained_ids(trace.jobs)
    free = [job for job in trace.jobs if job.workload.id not in chained]
    fixed = sum(asked(job) for job in trace.jobs if job.workload.id in chained)
    left, now = load * _capacity(trace) - fixed, sum(map(asked, free))
    if left <= 0 or not now:
        least = math.ceil(fixed / _capacity(trace) * 1000) / 1000
        raise refuse("load", f"{load:g} cannot be reached: campaigns alone are {least:g}", f"give more than {least:g}")
    ordered = sorted(free, key=lambda job: (asked(job), job.workload.id))
    copies = _choose(ordered, left / now, np.random.Generator(np.random.PCG64(seed)))
    kept = [job for job in trace.jobs if job.workload.id in chained]
    kept += _repeat(trace, ordered, copies, np.random.Generator(np.random.PCG64(seed)))
    kept.sort(key=lambda job: (job.workload.submit_time, job.workload.id))
    return replace(trace, jobs=tuple(kept))


def chained_ids(jobs: Iterable[Job]) -> set[str]:
    """Ids of all jobs that wait for another or are waited for."""
    return {key for job in jobs if job.after is not None for key in (job.workload.id, job.after)}


def _choose(ordered: list[Job], factor: float, rng: np.random.Generator) -> list[int]:
    """How often each job is there: evenly over all sizes, at the factor and beginning that meet the total best."""
    sizes = np.array([asked(job) for job in ordered], dtype=np.int64)
    wanted, tried = factor * float(sizes.sum()), factor
    best: tuple[float, list[int]] | None = None
    for begin in rng.random(ATTEMPTS):
        copies = np.diff(np.floor(np.arange(len(ordered) + 1) * tried + begin).astype(np.int64))
        met = float(sizes @ copies)
        if best is None or abs(met - wanted) < best[0]:
            best = abs(met - wanted), copies.tolist()
        tried *= min(1.2, max(0.8, wanted / max(met, 1.0)))
    assert best is not None
    return _corrected(sizes.tolist(), best[1], wanted)


def _corrected(sizes: list[int], copies: list[int], wanted: float) -> list[int]:
    """The same counts with a few jobs more or fewer, the largest that help first, until the total is met to a thousandth."""
    gap = wanted - sum(size * times for size, times in zip(sizes, copies, strict=True))
    found = list(copies)
    for place in range(len(sizes) - 1, -1, -1):
        if abs(gap) <= wanted / 1000:
            break
        if sizes[place] <= abs(gap) and (gap > 0 or found[place] > 0):
            step = 1 if gap > 0 else -1
            found[place] += step
            gap -= step * sizes[place]
    return found


def _repeat(trace: Trace, ordered: list[Job], copies: list[int], rng: np.random.Generator) -> list[Job]:
    """Each job as often as that."""
    found: list[Job] = []
    shifts: dict[tuple[object, ...], int] = {}
    taken = {job.workload.id for job in trace.jobs}
    for job, times in zip(ordered, copies, strict=True):
        for copy in range(times):
            key = (*_burst(job), copy)
            if copy and key not in shifts:
                shifts[key] = _draw_shift(trace, rng)
            found.append(_moved(trace, job, free_id(job.workload.id, copy, taken), shifts[key]) if copy else job)
    return found


def _burst(job: Job) -> tuple[object, ...]:
    """What one user submitted together: it moves together."""
    work = job.workload
    return work.allocation, work.user, work.submit_time // BURST_SPAN


def free_id(key: str, copy: int, taken: set[str]) -> str:
    """An id for a repetition, and a note that it is taken: a trace may hold repetitions already."""
    while (name := f"{key}~{copy}") in taken:
        copy += 1
    taken.add(name)
    return name


def _draw_shift(trace: Trace, rng: np.random.Generator) -> int:
    """Whole weeks or days inside the trace; for a trace of a day or less any time of it."""
    span = trace.end - trace.start
    unit = 7 * DAY if span >= 14 * DAY else DAY
    return unit * int(rng.integers(1, span // unit)) if span >= 2 * unit else int(rng.integers(1, max(2, span)))


def _moved(trace: Trace, job: Job, key: str, shift: int) -> Job:
    """The repetition of a job under another id at another time."""
    at = trace.start + (job.workload.submit_time - trace.start + shift) % (trace.end - trace.start)
    return replace(job, workload=replace(job.workload, id=key, submit_time=at))


def jitter(trace: Trace, spread: int, seed: int) -> Trace:
    """The same trace with every submission moved by up to `spread` seconds: what a user submitted together stays so.

    Jobs that wait for others keep their earliest moment.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    shifts: dict[tuple[object, ...], int] = {}
    jobs = []
    for job in trace.jobs:
        work = job.workload
        if job.after is not None:
            jobs.append(job)
            continue
        key = _burst(job)
        if key not in shifts:
            shifts[key] = int(rng.integers(-spread, spread + 1))
        at = min(max(work.submit_time + shifts[key], trace.start), trace.end - 1)
        jobs.append(replace(job, workload=replace(work, submit_time=at)))
    jobs.sort(key=lambda job: (job.workload.submit_time, job.workload.id))
    return replace(trace, jobs=tuple(jobs))
