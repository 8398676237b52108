"""Our transition does what the dispatcher of the shared scenarios does."""

from __future__ import annotations

import copy
import json
import random
from dataclasses import replace

import pytest

import allocator
from allocator import transition
from tests.scenarios import shared
from tests.scenarios.play import Json, answered

pytestmark = pytest.mark.skipif(not shared.SCENARIOS, reason=shared.MISSING)

SPANS = (1, 300, 3600, 86_400)


def decode(snapshot: Json) -> allocator.Snapshot:
    return allocator.decode_snapshot(json.dumps(snapshot).encode())


def decode_decision(decision: Json) -> allocator.Decision:
    return allocator.decode_decision(json.dumps(decision).encode())


def without_places(snapshot: allocator.Snapshot) -> allocator.Snapshot:
    """What ours says beyond theirs is where work was stopped, and whether in the lane."""
    works = [
        work if work.stopped is None else replace(work, stopped=replace(work.stopped, placement=None, express=False))
        for work in snapshot.workloads
    ]
    return replace(snapshot, workloads=tuple(works))


@pytest.mark.parametrize("name", shared.SCENARIOS)
@pytest.mark.parametrize("span", SPANS)
def test_the_same_snapshot_after_the_decisions_of_the_engine(name: str, span: int) -> None:
    for run in answered(name):
        theirs = decode(shared.advance.apply(run.snapshot, run.decision, span))
        ours = transition.apply(decode(run.snapshot), decode_decision(run.decision), span)
        assert without_places(ours) == theirs


@pytest.mark.parametrize("name", shared.SCENARIOS)
def test_the_same_snapshot_after_any_decision(name: str) -> None:
    rng = random.Random(name)
    for run in answered(name):
        decision = scramble(run.snapshot, run.decision, rng)
        span = rng.choice(SPANS)
        theirs = decode(shared.advance.apply(run.snapshot, decision, span))
        assert without_places(transition.apply(decode(run.snapshot), decode_decision(decision), span)) == theirs


@pytest.mark.parametrize("name", shared.SCENARIOS)
def test_the_same_snapshot_after_work_has_ended(name: str) -> None:
    for run in answered(name):
        gone = [work["id"] for work in run.snapshot["workloads"]][::3]
        expected = decode(shared.advance.finish(run.snapshot, *gone))
        # Ours also lets go of what was reserved for work that has gone.
        held = tuple(row for row in expected.reservations if row.workload not in gone)
        assert transition.finish(decode(run.snapshot), *gone) == replace(expected, reservations=held)


def scramble(snapshot: Json, decision: Json, rng: random.Random) -> Json:
    """Some decision: stops, moves, starts where others stopped, promotions; rules apart, it can be carried out."""
    found = copy.deepcopy(decision) | {"starts": [], "preemptions": [], "promotions": [], "renewals": [], "reservations": []}
    now, waiting = snapshot["now"], [work for work in snapshot["workloads"] if "run" not in work]
    for work in snapshot["workloads"]:
        run = work.get("run")
        begun = run and (run.get("start_time") or 0) <= now  # what has not begun cannot be stopped
        deed = rng.choice(["stop", "move", "give", "promise", "nothing"]) if begun else "nothing"
        if deed in ("stop", "move", "give"):
            found["preemptions"].append(stop(work["id"], now))
        if deed == "move":
            found["starts"].append(start(work, run["placement"], now, charged=rng.random() < 0.5))
        if deed == "give":
            fitting = [other for other in waiting if shape(other) == shape(work)]
            if fitting:
                waiting.remove(fitting[0])
                found["starts"].append(start(fitting[0], run["placement"], now, charged=rng.random() < 0.5))
        if deed == "promise":
            found["renewals" if run["charged"] else "promotions"].append({"workload": work["id"], "protected_until": now + 60})
    return found


def shape(work: Json) -> tuple[object, ...]:
    return (work["tasks"], work["gpus_per_task"], work.get("pools"), work.get("topology"))


def stop(key: str, now: int) -> Json:
    return {"workload": key, "reason": "share", "beneficiaries": [], "lost_gpu_seconds": 0, "stop_by": now}


def start(work: Json, placement: Json, now: int, *, charged: bool) -> Json:
    until = now + work["min_runtime"] if charged else None
    return {"workload": work["id"], "placement": placement, "charged": charged, "protected_until": until}
