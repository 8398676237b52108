"""What has happened since the last look: runs that ended, began by themselves or moved, against what is remembered.

A pure function of view and memory; what it finds is remembered before anything new is decided.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from allocator.dispatch.facts import JobFact, JobState, NodeCondition, View
from allocator.dispatch.memory import Event, Held, JobMemory, Memory, UsageRow
from allocator.dispatch.scope import Requests, Scope
from allocator.domain import Run, UsageRecord

FAILED_RESUME_SECONDS = 120
"""A resumed run that is back in the queue within this time, though its nodes are well, has failed to resume."""

MOST_FAILED_RESUMES = 2
"""After so many a job is treated as one that cannot resume."""


@dataclass(slots=True)
class Observation:
    """The memory brought up to date, the usage and events that came of it, and jobs that would start by themselves."""

    memory: Memory
    now: int
    usage: list[UsageRow] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)


def observe(view: View, memory: Memory, scope: Scope, requests: Requests, cap: int) -> Observation:
    """Bring the memory up to date.

    Parameters
    ----------
    view
        What the scheduler shows.
    memory
        What was known; orders of the last epoch are settled.
    scope
        The jobs that the allocator is in charge of.
    requests
        What each job of the scope asks for: a run that was not ordered gets the promise it would have got.
    cap
        Longest promise in seconds.
    """
    found = Observation(memory, view.now)
    jobs: dict[str, JobMemory] = {}
    for key in sorted(memory.jobs.keys() | scope.jobs.keys()):
        known, fact = memory.jobs.get(key), view.jobs.get(key)
        if known is None:
            assert fact is not None, f"{key} is neither known nor shown"
            known = JobMemory(id=key, submit_time=fact.submit_time)
        known = _after(known, fact, view, memory.seen, found)
        if fact is None or fact.state is JobState.ENDED:
            continue
        if fact.state is JobState.RUNNING and known.held is None and key in scope.jobs:
            known = _adopt(known, fact, scope, requests[key], cap, found)
        jobs[key] = known
    found.strays = sorted(job.id for job in scope.jobs.values() if job.state is JobState.WAITING and not job.held)
    gone = [held for held in memory.reservations if held.workload not in jobs]
    reservations = tuple(held for held in memory.reservations if held not in gone)
    found.memory = replace(memory, jobs=jobs, reservations=reservations, seen=view.now)
    return found


def _after(known: JobMemory, fact: JobFact | None, view: View, seen: int, found: Observation) -> JobMemory:
    """The memory of a job, its run ended where it has ended."""
    held = known.held
    if held is None or (fact is not None and _is_same_run(held, fact)):
        return known
    end = _end_of(fact, view.now, seen)
    found.usage.extend(time_of(known.id, held, end))
    if fact is None or fact.state is JobState.ENDED:
        return replace(known, held=None)
    return _requeued(known, held, end, view, found, forgotten=fact.incarnation == held.incarnation)


def _is_same_run(held: Held, fact: JobFact) -> bool:
    """Whether the run that is remembered still holds its nodes. A run of the same incarnation on the same nodes is one run,
    also if a controller that crashed has begun it a second time."""
    going_on = fact.state in (JobState.RUNNING, JobState.LEAVING)
    return going_on and held.incarnation == fact.incarnation and set(held.run.placement) == set(fact.nodes)


def _end_of(fact: JobFact | None, now: int, seen: int) -> int:
    """When a run ended: the scheduler's word for it, the requeue (which sets the submit time), or the last look."""
    if fact is None:
        return min(seen, now) or now
    if fact.state is JobState.ENDED:
        return min(fact.end_time or now, now)
    begun = fact.start_time if fact.state is JobState.RUNNING else None
    return min(begun or fact.submit_time, now)


def time_of(job: str, held: Held, end: int) -> Iterator[UsageRow]:
    """The time of a run as at most one record. Its id is made of job and interval's begin: written twice, it counts once."""
    run = held.run
    since = run.charged_since if run.charged_since is not None else run.start_time
    if since is not None and since < end:
        record = UsageRecord(
            id=f"{job}@{since}-{end}",
            allocation=held.allocation,
            pool=held.pool,
            gpus=held.gpus,
            start=since,
            end=end,
            charged=run.charged,
        )
        yield UsageRow(record=record, job=job, user=held.user)


def _requeued(known: JobMemory, held: Held, end: int, view: View, found: Observation, *, forgotten: bool) -> JobMemory:
    """The job is back in the queue though no decision stopped it: a node failed, it failed itself, or somebody requeued it.

    `forgotten`: it waits without having been requeued, since a controller that crashed has lost its start.
    """
    down = sorted(name for name in held.run.placement if _is_down(view, name))
    until = held.run.protected_until
    if down and until is not None and until > end:
        detail = f"promised until {until}, ended at {end}: {', '.join(down)} went down"
        found.events.append(Event(at=view.now, subject=known.id, kind="contract_broken", detail=detail))
    began = held.run.start_time
    resumed = held.incarnation > 0
    failed = resumed and not down and not forgotten and began is not None and end - began < FAILED_RESUME_SECONDS
    failures = known.failed_resumes + failed
    if failed:
        detail = f"resume {failures} failed after {end - (began or end)} s"
        if failures >= MOST_FAILED_RESUMES:
            detail += ": from now on it is treated as a job that cannot resume"
        found.events.append(Event(at=view.now, subject=known.id, kind="failed_resume", detail=detail))
    elif not down:
        detail = "the controller has lost its start" if forgotten else "requeued by hand or by the scheduler"
        found.events.append(Event(at=view.now, subject=known.id, kind="requeued", detail=detail))
    return replace(known, held=None, failed_resumes=failures)


def _is_down(view: View, name: str) -> bool:
    node = view.nodes.get(name)
    return node is None or node.condition is NodeCondition.DOWN


def _adopt(
    known: JobMemory, fact: JobFact, scope: Scope, request: Mapping[str, Any], cap: int, found: Observation
) -> JobMemory:
    """Take charge of a run that no decision began: it was there before, or the scheduler began it by itself.

    Its time is charged and its promise kept as if it had been granted at its start: never silently unprotected.
    """
    now = found.now
    promise = min(request["min_runtime"], cap)
    start = min(fact.start_time or now, now)
    charged = promise > 0
    run = Run(
        placement=dict.fromkeys(fact.nodes, 1),
        charged=charged,
        start_time=start,
        charged_since=start if charged else None,
        granted_at=start if charged else None,
        protected_until=start + promise if charged else None,
    )
    held = Held(
        run=run,
        incarnation=fact.incarnation,
        allocation=request["allocation"],
        pool=scope.pools[fact.nodes[0]],
        gpus=fact.gpus,
        user=fact.user,
    )
    detail = f"runs on {', '.join(fact.nodes)} without a decision; taken over"
    found.events.append(Event(at=now, subject=known.id, kind="adopted", detail=detail))
    return replace(known, held=held)
