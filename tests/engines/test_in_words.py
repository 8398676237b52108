"""What the contract says in words, played over some epochs: sessions that come and go, and drains with a deadline."""

from __future__ import annotations

from dataclasses import replace

import pytest

from allocator.domain import Decision, Snapshot, Workload
from allocator.engine import allocate
from allocator.entitlement import entitle
from allocator.transition import apply, finish
from allocator.verify import verify
from tests.builders import HOUR, NOW, budget, job, node, nodes, running, snapshot, used

BOTH = [budget("a"), budget("b")]


def decide(snap: Snapshot) -> Decision:
    found = allocate(snap, engine="greedy")
    assert verify(snap, found).broken == ()
    return found


def session(where: str) -> Workload:
    """A session of a whole node, an hour into its first two."""
    return running("session", "a", {where: 1}, since=NOW - HOUR, protected_until=NOW + HOUR, renew=True)


@pytest.mark.parametrize("taken", [False, True])
def test_a_session_that_lapses_and_comes_back_gets_its_old_node_if_that_is_free(taken: bool) -> None:
    """A rival that is owed a node takes that of the session when its promise ends, and leaves; so does another one, or not."""
    others = [running(f"w{i}", "a", {f"n{i}": 1}, protected_until=NOW + 8 * HOUR) for i in (1, 3)]
    snap = snapshot(nodes(3), BOTH, [*others, session("n2"), job("rival", "b")], usage=[used("a", 100)])
    assert decide(snap).preemptions == ()
    snap = apply(snap, decide(snap), HOUR)
    found = decide(snap)
    assert [(row.workload, row.beneficiaries) for row in found.preemptions] == [("session", ("rival",))]
    snap = finish(apply(snap, found, 600), "rival", "w1")
    if taken:
        late = running("late", "b", {"n2": 1}, since=snap.now - 60, protected_until=snap.now + HOUR)
        snap = replace(snap, workloads=(*snap.workloads, late)).canonical()
    assert {row.workload: dict(row.placement) for row in decide(snap).starts} == {"session": {"n1" if taken else "n2": 1}}


def test_who_will_lapse_is_told_in_time() -> None:
    """In every decision from the start on, and so `notice` seconds ahead, with the instant and whether it would be renewed."""
    snap = snapshot(nodes(1), BOTH, [session("n1")], notice=300)
    for left in (HOUR, 300, 1):
        at = replace(snap, now=NOW + HOUR - left)
        rival = replace(at, workloads=(*at.workloads, job("rival", "b")), usage=(used("a", 100),)).canonical()
        assert [(row.workload, row.at, row.renewable) for row in decide(at).lapsing] == [("session", NOW + HOUR, True)]
        assert [(row.workload, row.at, row.renewable) for row in decide(rival).lapsing] == [("session", NOW + HOUR, False)]


def test_what_a_session_holds_is_charged_whether_it_is_used_or_not() -> None:
    """Six hours of a node are 48 GPU-hours, renewals or none, and its project is owed the less for them."""
    snap = snapshot(nodes(2), BOTH, [session("n1")])
    renewals = 0
    for _ in range(5):
        found = decide(snap)
        renewals += len(found.renewals)
        snap = apply(snap, found, HOUR)
    market = entitle(snap).market
    a, b = 1, 2
    assert renewals == 2
    assert market.usage[a].tolist() == [6 * 8 * HOUR]
    assert market.usage[b].tolist() == [0]
    both = [job(f"{name}{i}", name) for name in "ab" for i in (1, 2)]
    crowded = entitle(replace(snap, workloads=(*snap.workloads, *both)).canonical()).market
    assert crowded.owed[a, 0] < crowded.owed[b, 0]


def test_at_the_deadline_of_a_drain_the_rest_stops_and_is_first_in_its_queue() -> None:
    """Until then it keeps its promise, and the decision says when the node will be free; then it is reported as broken."""
    machines = [node("n1", state="drain", drain_deadline=NOW + HOUR), node("n2")]
    old = running("old", "a", {"n1": 1}, since=NOW - HOUR, protected_until=NOW + 6 * HOUR, min_runtime=7 * HOUR)
    held = running("held", "a", {"n2": 1}, since=NOW - HOUR, protected_until=NOW + HOUR)
    snap = snapshot(machines, [budget("a")], [replace(old, submit_time=NOW - 2 * HOUR), held, job("late"), job("later")])
    found = decide(snap)
    assert (found.starts, found.preemptions, found.contract_broken) == ((), (), ())
    assert [(row.node, row.free_at, row.drained) for row in found.drains] == [("n1", NOW + HOUR, False)]
    snap = finish(apply(snap, found, HOUR), "held")
    found = decide(snap)
    assert [(row.workload, row.promised, row.cause) for row in found.contract_broken] == [
        ("old", NOW + 6 * HOUR, "drain_deadline")
    ]
    assert {row.workload: dict(row.placement) for row in found.starts} == {"old": {"n2": 1}}
