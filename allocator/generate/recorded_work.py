"""The jobs of a trace from what was seen of work: how much each has done, and how much of what goes on is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median_low

from allocator.domain import Workload
from allocator.domain.trace import Job
from allocator.generate.params import HOUR
from allocator.generate.recorded_runs import SeenJob, Spell, WorkHistory


@dataclass(slots=True)
class _Done:
    """What a job has done in seconds of work: `total` as its last run left it, `most` at any time, and `before` the span."""

    job: SeenJob
    total: int = 0
    most: int = 0
    before: int = 0

    @property
    def inside(self) -> int:
        """Its work inside the span, if it has ended: what its last run reached, or if it went away waiting all it ever did."""
        return max(1, (self.most if self.job.waits else self.total) - self.before)


def jobs_of(history: WorkHistory, start: int, end: int, leaves: Collection[str], count: Counter[str]) -> list[Job]:
    """The jobs of [start, end) as they were submitted, in order of submission.

    Parameters
    ----------
    leaves
        Allocations of any of the budget trees; work of others is left out.
    count
        Is told how many of what there were.
    """
    done = [_add_up(job, history.spells(key, end), start, count) for key, job in _kept(history, leaves, end, count)]
    ended = [one.inside for one in done if one.job.gone is not None]
    usual = median_low(ended) if ended else HOUR
    jobs = [Job(workload=_submitted(one.job.first), work=_work(one, usual, count)) for one in done]
    return sorted(jobs, key=lambda job: (job.workload.submit_time, job.workload.id))


def _kept(history: WorkHistory, leaves: Collection[str], end: int, count: Counter[str]) -> Iterator[tuple[str, SeenJob]]:
    """The jobs that can be played."""
    count["rejected"] += len(history.rejected - history.jobs.keys())
    for key, job in history.jobs.items():
        if job.first.allocation not in leaves:
            count["homeless"] += 1
        elif job.gone is not None and not history.spells(key, end):
            count["withdrawn"] += 1
        else:
            yield key, job


def _add_up(job: SeenJob, spells: Sequence[Spell], start: int, count: Counter[str]) -> _Done:
    """What the runs of a job came to, less what their ends threw away."""
    done = _Done(job)
    for number, spell in enumerate(spells):
        resumed = number > 0 or job.first.preempted > 0
        began = min(spell.end, spell.begin + resumed * job.first.restart_time)
        done.before += max(0, min(start, spell.end) - began)
        done.total += spell.end - began
        done.most = max(done.most, done.total)
        again = number + 1 < len(spells) or (job.waits and spell.end <= job.last)
        done.total -= _lost(job, spell, spell.end - began, again=again, count=count)
        count["going"] += spell.begin < start
        count["runs"] += 1
        count["estimated_ends"] += not spell.known
    return done


def _lost(job: SeenJob, spell: Spell, worked: int, *, again: bool, count: Counter[str]) -> int:
    """Seconds of work that the end of a run threw away: as the decision said that stopped it; of one that came back into
    the queue by itself, what lies after its last checkpoint."""
    stops = [at for at in job.stopped & job.lost.keys() if spell.begin < at <= spell.end]
    if stops:
        return min(worked, job.lost[max(stops)])  # a decision counts from the last checkpoint, the restart included
    if not again:
        return 0
    count["requeued"] += 1
    work = job.first
    if not (work.resumable and work.checkpoint_interval):
        return worked
    return min(worked, (spell.end - spell.begin) % work.checkpoint_interval)


def _work(done: _Done, usual: int, count: Counter[str]) -> int:
    """The work of a job inside the span; where it has not ended an estimate: as long again, or as the others."""
    if done.job.gone is not None:
        return done.inside
    count["unended"] += 1
    work = done.job.first
    guess = max(2 * done.most or usual, work.min_runtime)
    if work.max_runtime is not None:
        guess = min(guess, work.max_runtime)
    return max(guess, done.most + 1) - done.before


def _submitted(work: Workload) -> Workload:
    """A workload as it was before anything happened to it."""
    return replace(work, run=None, stopped=None, entitled_since=None, preempted=0)
