"""What became of a decision: read off what the scheduler shows, never off what its commands returned.

The same functions serve the end of an epoch and the start after a crash, so that there is one way to find out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from allocator.dispatch.facts import JobFact, JobState, View
from allocator.dispatch.memory import Held, JobMemory, Memory, UsageRow
from allocator.domain import Decision, Snapshot, Start, UsageRecord
from allocator.transition import apply


@dataclass(frozen=True, slots=True, kw_only=True)
class Undertaking:
    """A decision that is being carried out: what it was made for, and which run of each job it speaks of."""

    snapshot: Snapshot
    decision: Decision
    incarnations: Mapping[str, int]


@dataclass(slots=True)
class Effects:
    """What took effect, by job. `armed` would still start, or lies where it was not to: neither may stay."""

    stopped: set[str] = field(default_factory=set)
    started: set[str] = field(default_factory=set)
    misplaced: set[str] = field(default_factory=set)
    armed: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)


def effects_of(view: View, work: Undertaking) -> Effects:
    """What of a decision has taken effect by now."""
    found = Effects()
    for stop in work.decision.preemptions:
        fact = view.jobs.get(stop.workload)
        if fact is not None and fact.incarnation > work.incarnations.get(stop.workload, fact.incarnation):
            found.stopped.add(stop.workload)
    for row in work.decision.starts:
        fact = view.jobs.get(row.workload)
        if fact is not None and row.workload in work.incarnations:
            _judge_start(fact, row, work, found)
    return found


def _judge_start(fact: JobFact, row: Start, work: Undertaking, found: Effects) -> None:
    before = work.incarnations[row.workload]
    expected = before + (row.workload in found.stopped)
    if fact.state is JobState.WAITING:
        if not fact.held or fact.wanted_nodes:
            found.armed.add(row.workload)
        return
    relocated = any(stop.workload == row.workload for stop in work.decision.preemptions)
    if fact.incarnation != expected or (relocated and expected == before):
        return  # its old run, which goes on or is leaving; or one that was begun and has ended since
    if set(fact.nodes) == set(row.placement):
        begun = fact.state is not JobState.ENDED or (fact.start_time or 0) >= work.decision.now - _CLOCKS_DIFFER
        if begun:
            found.started.add(row.workload)
    elif fact.state is JobState.RUNNING:
        found.misplaced.add(row.workload)


FIRST_RETRY, LONGEST_RETRY = 15, 900
"""Seconds until a start that the scheduler refused is tried again: doubled each time, up to the longest."""

_CLOCKS_DIFFER = 5
"""Seconds by which the clocks of scheduler and dispatcher may differ."""


def settle(work: Undertaking, effects: Effects, memory: Memory, users: Mapping[str, str]) -> tuple[Memory, list[UsageRow]]:
    """The memory after what took effect, by the reference for it: `apply` of the decision less what did not.

    Returns
    -------
    The memory, and the usage that came of stops and promotions. What the scheduler refused to start is not tried again for a
    while, the longer the more often it has refused.
    """
    decision = replace(
        work.decision,
        starts=tuple(row for row in work.decision.starts if row.workload in effects.started),
        preemptions=tuple(row for row in work.decision.preemptions if row.workload in effects.stopped),
    )
    after = apply(work.snapshot, decision)
    leaving = {item.id for item in work.snapshot.workloads if item.run is not None and item.run.terminating_until is not None}
    pools = {node.name: node.pool for node in after.cluster.nodes}
    jobs = dict(memory.jobs)
    for item in after.workloads:
        known = jobs.get(item.id) or JobMemory(id=item.id, submit_time=item.submit_time)
        if item.id in leaving:
            continue
        held = None
        if item.run is not None:
            held = Held(
                run=item.run,
                incarnation=_incarnation(item.id, known, work, effects),
                allocation=item.allocation,
                pool=pools[next(iter(item.run.placement))],
                gpus=item.gpus,
                user=item.user or "",
            )
        jobs[item.id] = replace(
            known, preempted=item.preempted, entitled_since=item.entitled_since, stopped=item.stopped, held=held
        )
    for key in effects.started & jobs.keys():
        jobs[key] = replace(jobs[key], failed_starts=0, retry_at=None)
    for key in effects.refused & jobs.keys():
        failures = jobs[key].failed_starts + 1
        wait = min(LONGEST_RETRY, FIRST_RETRY << min(failures - 1, 10))
        jobs[key] = replace(jobs[key], failed_starts=failures, retry_at=work.decision.now + wait)
    before = {record.id for record in work.snapshot.usage}
    rows = [_usage_row(record, users) for record in after.usage if record.id not in before]
    return replace(memory, jobs=jobs, reservations=after.reservations), rows


def _incarnation(job: str, known: JobMemory, work: Undertaking, effects: Effects) -> int:
    if job in effects.started:
        return work.incarnations[job] + (job in effects.stopped)
    assert known.held is not None, f"{job} runs, and nobody has started it"
    return known.held.incarnation


def _usage_row(record: UsageRecord, users: Mapping[str, str]) -> UsageRow:
    job = (record.id or "").rpartition("@")[0]
    return UsageRow(record=record, job=job, user=users.get(job, ""))
