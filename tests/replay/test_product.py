"""Our own policy in a replay: what it decides, and when it wants to be asked again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from allocator import allocate
from allocator.domain import Decision, Snapshot
from allocator.domain.trace import Outage
from allocator.replay import ReplayError, make_policy, plain_decision, policy_names
from allocator.replay.policy import SchedulingPolicy
from tests.builders import HOUR, NOW, budget, node, nodes, running, snapshot
from tests.builders import job as waiting
from tests.replay.play import START, job, play, run_of, told, trace


class Remembering:
    """Passes on, and keeps what was decided and when the next decision was wanted."""

    def __init__(self, inner: SchedulingPolicy) -> None:
        self.inner, self.name, self.idling = inner, inner.name, inner.idling
        self.decisions: list[Decision] = []
        self.wakes: list[int | None] = []

    def decide(self, snapshot: Snapshot, previous: Decision | None) -> Decision:
        self.decisions.append(self.inner.decide(snapshot, previous))
        return self.decisions[-1]

    def wake(self, snapshot: Snapshot, decision: Decision) -> int | None:
        self.wakes.append(self.inner.wake(snapshot, decision))
        return self.wakes[-1]


def greedy() -> Remembering:
    return Remembering(make_policy("budgets_greedy"))


def test_policies_have_names() -> None:
    assert policy_names()[:2] == ("budgets_greedy", "budgets")
    assert isinstance(make_policy("budgets"), SchedulingPolicy)
    with pytest.raises(ReplayError, match="unknown policy 'best': choose one of budgets_greedy, budgets"):
        make_policy("best")
    with pytest.raises(ReplayError, match="no engine 'cp-sat' for budgets_greedy"):
        make_policy("budgets_greedy", engine="cp-sat")
    with pytest.raises(ReplayError, match="no engine 'best' for budgets"):
        make_policy("budgets", engine="best")


def test_an_exact_engine_may_decide() -> None:
    simulator = play(trace(job("a", 3), job("b", 4)), make_policy("budgets", engine="cp-sat"))
    assert told(simulator) == [("a", 10, 110, "completed"), ("b", 110, 210, "completed")]
    assert {(row.rung, row.gap) for row in simulator.epochs} == {("exact", 0.0)}


def test_two_projects_take_turns() -> None:
    # Each wants the only node for 3 h, promised 1 h. The lane is no use to them: no user. Work of the one that has
    # used less takes over once the promise of the other has ended and its debt has grown.
    jobs = (
        job("a", 0, work=3 * HOUR, min_runtime=HOUR, checkpoint_on_notice=True),
        job("b", 0, work=3 * HOUR, min_runtime=HOUR, checkpoint_on_notice=True, allocation="b"),
    )
    simulator = play(trace(*jobs, hours=8), greedy())
    owners = [row.job for row in simulator.world.runs]
    assert set(owners) == {"a", "b"}
    assert len(owners) > 2
    assert all(row.end - row.start >= HOUR for row in simulator.world.runs if row.ended_by == "share")
    assert not any(row.broken for row in simulator.world.runs)
    assert {life.outcome for life in simulator.world.lives.values()} == {"completed"}


def test_a_promise_that_a_dead_node_breaks_is_reported_by_both() -> None:
    policy = greedy()
    what = trace(job("a", work=1000), outages=(Outage(node="n1", start=START + 95, end=START + 400),))
    simulator = play(what, policy)
    assert told(simulator)[0] == ("a", 0, 100, "node_down")
    assert run_of(simulator, "a").broken
    assert [row.cause for decision in policy.decisions for row in decision.contract_broken] == ["node_down"]


def test_the_clock_wakes_it_only_where_something_may_change() -> None:
    budgets = make_policy("budgets_greedy", drift=700)
    busy = [running("a1", "a", {"n1": 1}, since=NOW - 60, protected_until=NOW + 500)]
    two = [budget("a"), budget("b")]

    def wake(*works: object, nodes_of: tuple[object, ...] = nodes(1)) -> int | None:
        snap = snapshot(nodes_of, two, [*busy, *works])  # type: ignore[arg-type, list-item]
        return budgets.wake(snap, allocate(snap, engine="greedy"))

    assert wake() is None  # nothing waits: the end of the promise changes nothing
    assert wake(waiting("b1", "b")) == NOW + 500  # the promise ends
    leaving = (node("n1", state="drain", drain_deadline=NOW + HOUR),)
    assert wake(nodes_of=leaving) == NOW + 500
    late = replace(busy[0].run, protected_until=NOW + 5000)  # type: ignore[type-var]
    busy[0] = replace(busy[0], run=late)
    assert wake(waiting("b1", "b")) == NOW + 700  # what is owed drifts
    busy[0] = replace(busy[0], renew=True)
    assert wake() == NOW + 5000  # a lease lapses


def test_after_a_stop_it_looks_again_at_once() -> None:
    budgets = make_policy("budgets_greedy")
    old = running("old", "a", {"n1": 1}, charged=False, min_runtime=0)
    snap = snapshot(nodes(1), [budget("a"), budget("b")], [old, waiting("new", "b")])
    decision = allocate(snap, engine="greedy")
    assert [row.workload for row in decision.preemptions] == ["old"]
    assert budgets.wake(snap, decision) == NOW + 1


def test_a_plain_decision_takes_work_off_dead_nodes() -> None:
    works = [running("dead", "a", {"n1": 1}), running("old", "a", {"n2": 1})]
    snap = snapshot((node("n1", state="down"), node("n2")), [budget("a")], works)
    answer = plain_decision(snap, "plain")
    assert [(row.workload, row.reason.value) for row in answer.preemptions] == [("dead", "node_down")]
