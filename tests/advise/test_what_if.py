"""What would happen to work not yet submitted: every claim is a decision, and every change is one that was tried."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.advise import Advice, Effect, Kind, WhatIf, what_if, what_if_view
from allocator.domain import Reason, Snapshot, Unfunded, Workload
from allocator.engine import allocate
from allocator.explain.render import as_text
from allocator.verify import verify
from tests.builders import HOUR, NOW, budget, job, node, nodes, running, snapshot, used
from tests.engines.tiny import tiny_snapshot

AB = (budget("a"), budget("b"))


def held(name: str, where: str, hours: float = 4) -> Workload:
    """A node that is promised to somebody for some hours."""
    return running(name, "b", {where: 1}, protected_until=NOW + round(hours * HOUR))


def of(answer: WhatIf, kind: Kind) -> Advice:
    return next(row for row in answer.advice if row.kind is kind)


def best(answer: WhatIf, kind: Kind) -> Any:
    found = of(answer, kind).best
    assert found is not None
    return found.value


# --- as asked ------------------------------------------------------------------------------------------------------------


def test_it_starts_and_nobody_is_displaced() -> None:
    answer = what_if(snapshot(nodes(2), AB), job("new", "a", submit_time=NOW))
    assert answer.as_asked.charged
    assert (answer.as_asked.displaced, answer.advice, answer.calls) == ((), (), 2)
    text = as_text(what_if_view(answer))
    assert "If new were submitted now, it would start" in text
    assert "Nobody is worse off" in text


def test_the_displaced_are_named_with_what_they_lose() -> None:
    old = running("old", "b", {"n1": 1}, checkpoint_on_notice=False, checkpoint_interval=3 * HOUR)
    answer = what_if(snapshot(nodes(1), AB, [old]), job("new", "a", submit_time=NOW))
    assert answer.as_asked.charged
    assert [stop.workload for stop in answer.as_asked.makes_room] == ["old"]
    (row,) = answer.as_asked.displaced
    assert (row.workload, row.effect, row.gpus, row.lost_gpu_seconds) == ("old", Effect.STOPS, 8, 8 * HOUR)
    assert "old 8 8.0 stops" in " ".join(as_text(what_if_view(answer)).split())


def test_who_would_have_started_instead_is_displaced_too() -> None:
    snap = snapshot(nodes(1), AB, [job("next", "a", submit_time=NOW - 60)])
    answer = what_if(snap, job("new", "a", priority=5, submit_time=NOW))
    assert answer.as_asked.charged
    assert [(row.workload, row.effect) for row in answer.as_asked.displaced] == [("next", Effect.WAITS)]


def test_it_waits_and_the_reason_is_that_of_the_decision() -> None:
    snap = snapshot(nodes(1), AB, [held("h", "n1")])
    answer = what_if(snap, job("new", "a", submit_time=NOW))
    waiting = answer.as_asked.waiting
    assert waiting is not None
    assert (waiting.reason, waiting.not_before) == (Reason.BLOCKED_BY_PROTECTION, NOW + 4 * HOUR)
    assert waiting.blockers == ("h",)
    assert [row.best for row in answer.advice] == [None, None], "a shorter run and none at all: neither helps"
    text = " ".join(as_text(what_if_view(answer)).split())
    assert "even min runtime 1 min waits: blocked_by_protection, not before 1970-01-12 17:46:40Z (in 4 h)" in text


# --- changes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("free", [1, 2, 3, 5, 7])
def test_the_largest_gang_that_starts(free: int) -> None:
    works = [held(f"h{at}", f"n{at}") for at in range(free + 1, 9)]
    answer = what_if(snapshot(nodes(8), AB, works), job("new", "a", 64, submit_time=NOW))
    assert best(answer, Kind.TASKS) == free
    tried = {trial.value: trial.helps for trial in of(answer, Kind.TASKS).tried}
    assert tried[free]
    assert free + 1 not in tried or not tried[free + 1]
    assert free + 1 in tried or free + 1 == 8, "the next larger one was tried, or is the request itself"


def test_other_pools_are_tried_one_by_one() -> None:
    machines = [node("n1"), node("m1", pool="b200"), node("k1", pool="a100", gpus=4)]
    answer = what_if(snapshot(machines, AB, [held("h", "n1")]), job("new", "a", pools=("h100",), submit_time=NOW))
    found = {trial.value: trial.helps for trial in of(answer, Kind.POOL).tried}
    assert found == {"a100": False, "b200": True}
    assert best(answer, Kind.POOL) == "b200"
    text = as_text(what_if_view(answer))
    assert "pool b200" in text
    assert "never starts: invalid_request" in text


def test_the_finest_level_that_helps() -> None:
    works = [held("h1", "n1"), held("h3", "n3")]
    answer = what_if(snapshot(nodes(4, per_rack=2), AB, works), job("new", "a", 16, required="rack", submit_time=NOW))
    assert [trial.value for trial in of(answer, Kind.LEVEL).tried] == ["cluster"]
    assert best(answer, Kind.LEVEL) == "cluster"
    assert "inside one cluster" in as_text(what_if_view(answer))


def test_no_level_at_all() -> None:
    machines = [node("n1", domains=("c", "r1")), node("n2", domains=("d", "r1"))]
    answer = what_if(snapshot(machines, AB), job("new", "a", 16, required="rack", submit_time=NOW))
    assert answer.as_asked.waiting is not None
    assert answer.as_asked.waiting.never
    assert [trial.value for trial in of(answer, Kind.LEVEL).tried] == ["cluster", None]
    assert best(answer, Kind.LEVEL) is None
    assert "no required level" in as_text(what_if_view(answer))


def test_no_segments() -> None:
    works = [held("h1", "n1"), held("h3", "n3")]
    snap = snapshot(nodes(4, per_rack=2), AB, works)
    answer = what_if(snap, job("new", "a", 16, segment=("rack", 2), submit_time=NOW))
    assert of(answer, Kind.SEGMENT).best is not None
    assert "no segments" in as_text(what_if_view(answer))


def short_of_funds() -> Snapshot:
    """Two nodes; a has 16 GPU-hours left."""
    budgets = [budget("a"), budget("b")]
    whole = 16 * (7 * 24 + 8) // 2
    return snapshot(nodes(2), budgets, usage=[used("a", whole - 16)])


def test_the_longest_run_that_is_funded() -> None:
    answer = what_if(short_of_funds(), job("new", "a", min_runtime=6 * HOUR, unfunded=Unfunded.WAIT, submit_time=NOW))
    assert answer.as_asked.waiting is not None
    assert answer.as_asked.waiting.reason is Reason.UNFUNDED
    assert best(answer, Kind.MIN_RUNTIME) == 2 * HOUR
    assert best(answer, Kind.UNALLOCATED) == 0
    assert "min runtime 2 h" in as_text(what_if_view(answer))


def test_what_starts_free_of_charge_is_told_how_it_would_be_paid_for() -> None:
    answer = what_if(short_of_funds(), job("new", "a", 16, min_runtime=6 * HOUR, submit_time=NOW))
    assert answer.as_asked.start is not None
    assert not answer.as_asked.charged
    assert best(answer, Kind.MIN_RUNTIME) == HOUR
    assert of(answer, Kind.TASKS).best is None, "one task for six hours is beyond its funds too"
    assert Kind.UNALLOCATED not in {row.kind for row in answer.advice}
    assert "Tried, so that it is charged and protected now" in as_text(what_if_view(answer))


def test_the_longest_run_that_ends_before_a_drain() -> None:
    machines = [node("n1", drain_deadline=NOW + 3 * HOUR)]
    answer = what_if(snapshot(machines, AB), job("new", "a", min_runtime=6 * HOUR, submit_time=NOW))
    assert answer.as_asked.start is None
    assert best(answer, Kind.MIN_RUNTIME) == 3 * HOUR


def test_the_longest_run_that_ends_before_a_reservation() -> None:
    works = [held("h", "n1", hours=2), job("gang", "b", 16, entitled_since=NOW - HOUR)]
    answer = what_if(snapshot(nodes(2), AB, works), job("new", "a", min_runtime=6 * HOUR, submit_time=NOW))
    assert [row.workload for row in answer.without.reservations] == ["gang"]
    assert answer.as_asked.waiting is not None
    assert answer.as_asked.waiting.reason is Reason.RESERVED_FOR_OTHER
    assert best(answer, Kind.MIN_RUNTIME) == 2 * HOUR
    assert best(answer, Kind.UNALLOCATED) == 0


def test_a_gang_beyond_the_cluster_is_rejected_by_name_and_told_what_fits() -> None:
    answer = what_if(snapshot(nodes(3), AB), job("new", "a", 80_000, submit_time=NOW))
    waiting = answer.as_asked.waiting
    assert waiting is not None
    assert (waiting.reason, waiting.never) == (Reason.TOPOLOGY_IMPOSSIBLE, True)
    assert best(answer, Kind.TASKS) == 3
    assert "3 tasks (24 GPUs)" in as_text(what_if_view(answer))


# --- what holds for every answer -----------------------------------------------------------------------------------------


def requests(snap: Snapshot, draw: Any) -> Workload:
    """Some request that fits the vocabulary of a snapshot."""
    parents = {vertex.parent for vertex in snap.budgets}
    leaves = sorted(vertex.id for vertex in snap.budgets if vertex.id not in parents)
    fields = {"min_runtime": draw(st.sampled_from([0, 1800, 2 * HOUR, 9 * HOUR])), "submit_time": snap.now}
    fields["required"] = draw(st.sampled_from([None, *snap.cluster.levels[:-1]]))
    per_task = min(machine.gpus for machine in snap.cluster.nodes) or 1
    tasks = draw(st.integers(1, len(snap.cluster.nodes)))
    return job("the-new-one", draw(st.sampled_from(leaves)), gpus_per_task=per_task, tasks=tasks, **fields)


@settings(max_examples=15, deadline=None)
@given(st.data(), st.integers(0, 400))
def test_every_claim_is_a_decision_that_keeps_the_rules(data: st.DataObject, seed: int) -> None:
    snap = tiny_snapshot(seed)
    request = requests(snap, data.draw)
    answer = what_if(snap, request)
    outcomes = [answer.as_asked, *(trial.outcome for row in answer.advice for trial in row.tried)]
    assert answer.calls == len(outcomes) + 1
    for outcome in outcomes:
        assert (outcome.start is None) != (outcome.waiting is None)
        assert verify(outcome.snapshot, outcome.decision).ok
        assert request.id not in {row.workload for row in outcome.displaced}
    for row in answer.advice:
        assert all(trial.workload != request for trial in row.tried)
        assert (row.best is None) == (not any(trial.helps for trial in row.tried))
    document = json.loads(msgspec.json.encode(what_if_view(answer)))
    assert document == what_if_view(what_if(snap, request)), "the same question has the same answer"
    assert as_text(document)


def test_displacement_is_compared_with_the_decision_of_the_same_engine() -> None:
    snap = snapshot(nodes(1), AB, [running("old", "b", {"n1": 1})])
    answer = what_if(snap, job("new", "a", submit_time=NOW))
    same = allocate(snap, engine="greedy")
    assert what_if_view(answer, same)["agrees_with_decision"] is True
    other = replace(same, starts=answer.as_asked.decision.starts)
    view = what_if_view(answer, other)
    assert view["agrees_with_decision"] is False
    assert "The decision given moves other work" in as_text(view)


@pytest.mark.parametrize("request_", [job("h", "a"), running("new", "a", {"n1": 1})])
def test_a_request_is_new(request_: Workload) -> None:
    with pytest.raises(ValueError, match="a request is a new workload"):
        what_if(snapshot(nodes(1), AB, [held("h", "n1")]), request_)
