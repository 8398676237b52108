"""Shadow mode: what the allocator would have done against what the scheduler in charge has done. A pure function."""

from __future__ import annotations

from dataclasses import dataclass

from allocator.dispatch.facts import JobState, View
from allocator.domain import Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """By job, from the decision before to the view now: started by both, elsewhere, by one of the two only, and stops."""

    now: int
    both: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    only_allocator: tuple[str, ...] = ()
    only_scheduler: tuple[str, ...] = ()
    would_stop: tuple[str, ...] = ()

    @property
    def agree(self) -> bool:
        """Whether both did the same."""
        return not (self.elsewhere or self.only_allocator or self.only_scheduler or self.would_stop)


def differences(before: View, decision: Decision, now: View) -> Differences:
    """Compare a decision with what the scheduler did until the next look.

    Parameters
    ----------
    before, decision
        The view that was decided on, and the decision.
    now
        The next view.
    """
    placed = {row.workload: set(row.placement) for row in decision.starts}
    began = {
        job.id: set(job.nodes)
        for job in now.jobs.values()
        if job.state is not JobState.WAITING and job.gpus and _waited(before, job.id)
    }
    same = {job for job in placed.keys() & began.keys() if placed[job] == began[job]}
    running = {row.workload for row in decision.preemptions if _runs(now, row.workload)}
    return Differences(
        now=now.now,
        both=tuple(sorted(same)),
        elsewhere=tuple(sorted((placed.keys() & began.keys()) - same)),
        only_allocator=tuple(sorted(job for job in placed.keys() - began.keys() if not _runs(before, job))),
        only_scheduler=tuple(sorted(began.keys() - placed.keys())),
        would_stop=tuple(sorted(running)),
    )


def _waited(view: View, job: str) -> bool:
    return job in view.jobs and view.jobs[job].state is JobState.WAITING


def _runs(view: View, job: str) -> bool:
    return job in view.jobs and view.jobs[job].state is JobState.RUNNING
