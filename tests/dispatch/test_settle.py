"""What took effect, case by case: of starts, stops, and moves, which are both."""

from __future__ import annotations

from dataclasses import replace

import pytest

from allocator import allocate
from allocator.dispatch.facts import JobFact, JobState
from allocator.dispatch.memory import JobMemory, Memory
from allocator.dispatch.settle import Effects, Undertaking, effects_of, settle
from allocator.domain import Preemption, Start, StopReason
from tests.dispatch.test_build import known, snapshot_of
from tests.dispatch.test_observe import held
from tests.dispatch.test_requests import NOW, job, view

RUNNING = job(state=JobState.RUNNING, nodes=("n1",), start_time=NOW - 1000, gpu_type="h100", incarnation=3)


def moved() -> Undertaking:
    """Job 1 is to move from n1 to n2."""
    memory = known(held=held(incarnation=3))
    snapshot = snapshot_of(view(RUNNING), memory)
    nothing = allocate(snapshot, engine="greedy")
    stop = Preemption(workload="1", reason=StopReason.RELOCATE, beneficiaries=("2",), lost_gpu_seconds=0, stop_by=NOW + 60)
    start = Start(workload="1", placement={"n2": 1}, charged=True, protected_until=NOW + 900)
    decision = replace(nothing, preemptions=(stop,), starts=(start,))
    return Undertaking(snapshot=snapshot, decision=decision, incarnations={"1": 3})


@pytest.mark.parametrize(
    ("fact", "stopped", "started"),
    [
        (RUNNING, False, False),
        (replace(RUNNING, state=JobState.LEAVING), False, False),  # it ends by itself
        (replace(RUNNING, state=JobState.LEAVING, incarnation=4), True, False),
        (replace(RUNNING, state=JobState.WAITING, held=True, nodes=(), incarnation=4), True, False),
        (replace(RUNNING, nodes=("n2",), incarnation=4), True, True),
        (replace(RUNNING, nodes=("n2",), incarnation=4, state=JobState.LEAVING), True, True),
        (replace(RUNNING, nodes=("n2",), incarnation=4, state=JobState.ENDED, start_time=NOW + 1), True, True),
        (replace(RUNNING, nodes=("n2",), incarnation=5), True, False),  # began, failed, and was begun again by somebody
    ],
)
def test_a_move_is_a_stop_and_a_start(fact: JobFact, stopped: bool, started: bool) -> None:
    work = moved()
    effects = effects_of(view(fact), work)
    assert (effects.stopped, effects.started) == ({"1"} if stopped else set(), {"1"} if started else set())
    after, usage = settle(work, effects, known(held=held(incarnation=3)), {"1": "ana"})
    kept = after.jobs["1"]
    assert kept.preempted == stopped
    assert [(row.record.end, row.user) for row in usage] == ([(NOW, "ana")] if stopped else [])
    if started:
        assert kept.held is not None
        assert (kept.held.incarnation, dict(kept.held.run.placement), kept.held.run.protected_until) == (
            4,
            {"n2": 1},
            NOW + 900,
        )
    elif stopped:
        assert kept.held is None
    else:
        assert kept.held == held(incarnation=3)


def test_a_job_that_is_gone_was_neither_stopped_nor_started() -> None:
    effects = effects_of(view(), moved())
    assert effects == Effects()


def test_what_lies_elsewhere_is_misplaced_and_what_could_start_is_armed() -> None:
    waiting = job(gpu_type="h100")
    snapshot = snapshot_of(view(waiting))
    decision = allocate(snapshot, engine="greedy")
    work = Undertaking(snapshot=snapshot, decision=decision, incarnations={"1": 0})
    (placed,) = decision.starts[0].placement
    other = "n2" if placed == "n1" else "n1"
    elsewhere = replace(waiting, state=JobState.RUNNING, nodes=(other,))
    assert effects_of(view(elsewhere), work).misplaced == {"1"}
    assert effects_of(view(replace(waiting, held=False)), work).armed == {"1"}
    assert effects_of(view(replace(waiting, wanted_nodes=("n1",))), work).armed == {"1"}
    assert effects_of(view(waiting), work) == Effects()
    ended_before = replace(waiting, state=JobState.ENDED, nodes=(placed,), start_time=NOW - 100)
    assert effects_of(view(ended_before), work) == Effects()


def test_what_is_leaving_keeps_what_is_known_of_it() -> None:
    leaving = job(state=JobState.LEAVING, nodes=("n1",), incarnation=1)
    snapshot = snapshot_of(view(leaving), known(preempted=1))
    work = Undertaking(snapshot=snapshot, decision=allocate(snapshot, engine="greedy"), incarnations={})
    before = Memory(jobs={"1": JobMemory(id="1", submit_time=5, preempted=1)})
    assert settle(work, Effects(), before, {})[0].jobs == before.jobs
