"""What has happened since the last look, case by case."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from allocator.dispatch.facts import JobFact, JobState, NodeCondition
from allocator.dispatch.memory import Held, JobMemory, Memory
from allocator.dispatch.observe import Observation, observe
from allocator.dispatch.scope import scope_of
from allocator.domain import Reservation, Run
from tests.dispatch.test_requests import NOW, job, node, view

START = NOW - 1000
PROMISE = 3600


def held(**more: Any) -> Held:
    run = Run(
        placement={"n1": 1}, charged=True, start_time=START, charged_since=START, granted_at=START, protected_until=NOW + 500
    )
    return replace(Held(run=run, incarnation=0, allocation="nlp/ana", pool="h100", gpus=8, user="ana"), **more)


def look(*jobs: JobFact, known: JobMemory | None = None, down: bool = False, **more: Any) -> Observation:
    nodes = (node("n1", condition=NodeCondition.DOWN if down else NodeCondition.OPEN), node("n2"))
    seen = view(*jobs, nodes=nodes)
    memory = Memory(jobs={} if known is None else {known.id: known}, seen=NOW - 10, **more)
    scope = scope_of(seen, frozenset())
    requests = {key: {"min_runtime": 1800, "allocation": "nlp/ana"} for key in scope.jobs}
    return observe(seen, memory, scope, requests, PROMISE)


def memory_of(found: Observation) -> JobMemory:
    return found.memory.jobs["1"]


def test_the_first_submit_time_outlives_a_requeue() -> None:
    known = JobMemory(id="1", submit_time=NOW - 9000)
    assert memory_of(look(job(submit_time=NOW - 1), known=known)).submit_time == NOW - 9000
    assert memory_of(look(job(submit_time=NOW - 1))).submit_time == NOW - 1


def test_a_run_goes_on_as_it_was_promised() -> None:
    known = JobMemory(id="1", submit_time=0, held=held())
    for state in (JobState.RUNNING, JobState.LEAVING):
        found = look(job(state=state, nodes=("n1",), start_time=START + 1), known=known)
        assert memory_of(found) == known
        assert not found.usage
        assert not found.events


def test_a_run_that_nobody_ordered_is_taken_over_with_the_promise_it_would_have_got() -> None:
    found = look(job(state=JobState.RUNNING, nodes=("n1",), start_time=START))
    run = memory_of(found).held
    assert run is not None
    assert (run.run.charged, run.run.start_time, run.run.protected_until) == (True, START, START + 1800)
    assert [event.kind for event in found.events] == ["adopted"]


def test_a_run_that_moved_by_itself_is_another_run() -> None:
    known = JobMemory(id="1", submit_time=0, held=held())
    found = look(job(state=JobState.RUNNING, nodes=("n2",), start_time=NOW - 60, incarnation=1), known=known)
    run = memory_of(found).held
    assert run is not None
    assert dict(run.run.placement) == {"n2": 1}
    assert [(row.record.start, row.record.end) for row in found.usage] == [(START, NOW - 60)]


def test_what_a_job_took_is_accounted_once_it_has_ended() -> None:
    known = JobMemory(id="1", submit_time=0, held=held())
    found = look(job(state=JobState.ENDED, end_time=NOW - 100), known=known)
    assert "1" not in found.memory.jobs
    (row,) = found.usage
    record = row.record
    assert (record.id, record.allocation, record.pool, record.gpus) == (f"1@{START}-{NOW - 100}", "nlp/ana", "h100", 8)
    assert (row.job, row.user, record.charged) == ("1", "ana", True)


def test_a_job_that_has_vanished_ended_at_the_last_look() -> None:
    found = look(known=JobMemory(id="1", submit_time=0, held=held()))
    assert found.usage[0].record.end == NOW - 10
    assert not found.memory.jobs


def test_a_dead_node_breaks_the_promise_and_that_is_told() -> None:
    known = JobMemory(id="1", submit_time=0, held=held())
    found = look(job(held=False, incarnation=1, submit_time=NOW - 3), known=known, down=True)
    assert [event.kind for event in found.events] == ["contract_broken"]
    assert found.strays == ["1"], "Slurm would start it again by itself"
    assert memory_of(found).held is None
    assert found.usage[0].record.end == NOW - 3


def test_a_resume_that_fails_twice_is_told() -> None:
    run = held(incarnation=1, run=replace(held().run, start_time=NOW - 20, charged_since=NOW - 20))
    known = JobMemory(id="1", submit_time=0, preempted=1, held=run)
    back = job(incarnation=2, submit_time=NOW - 2)
    once = look(back, known=known)
    assert memory_of(once).failed_resumes == 1
    twice = look(back, known=replace(known, failed_resumes=1))
    assert memory_of(twice).failed_resumes == 2
    assert "cannot resume" in twice.events[0].detail
    late = replace(known, held=held(incarnation=1))
    assert memory_of(look(back, known=late)).failed_resumes == 0, "it ran for a while"
    first = replace(known, held=replace(run, incarnation=0))
    assert memory_of(look(job(incarnation=1), known=first)).failed_resumes == 0, "a first run resumes nothing"


def test_a_start_that_the_controller_lost_is_no_failed_resume() -> None:
    run = held(incarnation=1, run=replace(held().run, start_time=NOW - 20, charged_since=NOW - 20))
    found = look(job(incarnation=1, submit_time=NOW - 30), known=JobMemory(id="1", submit_time=0, held=run))
    assert memory_of(found).failed_resumes == 0
    assert "lost its start" in found.events[0].detail
    assert not found.usage


def test_reservations_go_with_their_work() -> None:
    kept = Reservation(workload="1", pool="h100", domain=(), nodes=1, start=NOW, eligible_since=NOW, bound=NOW)
    gone = replace(kept, workload="2")
    assert look(job(), reservations=(kept, gone)).memory.reservations == (kept,)


def test_a_running_job_outside_the_scope_keeps_its_promise() -> None:
    known = JobMemory(id="1", submit_time=0, held=held())
    found = look(
        job(state=JobState.RUNNING, nodes=("n1", "cpu1"), start_time=START),
        known=replace(known, held=held(run=replace(held().run, placement={"n1": 1, "cpu1": 1}))),
    )
    assert found.memory.jobs["1"].held is not None
