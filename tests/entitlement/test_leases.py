"""Leases: who is renewed when a promise lapses, and who is told."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from allocator.domain import Lapse, Snapshot, Workload
from allocator.engine import allocate
from allocator.entitlement import entitle
from allocator.transition import apply
from allocator.verify import verify
from tests.builders import HOUR, NOW, budget, decision, job, node, nodes, running, snapshot, used
from tests.engines.tiny_contract import tiny_contract
from tests.verify.judge import broken


def session(name: str, where: str = "n1", gpus: int = 2, allocation: str = "a", **fields: object) -> Workload:
    """A session of two hours that lapses now."""
    usual: dict[str, object] = {"since": NOW - 2 * HOUR, "protected_until": NOW, "renew": True}
    return running(name, allocation, {where: 1}, gpus, **(usual | fields))  # type: ignore[arg-type]


def renewed(snap: Snapshot) -> dict[str, int]:
    found = allocate(snap)
    assert verify(snap, found).ok
    again = allocate(apply(snap, found))
    assert not again.renewals
    return {row.workload: row.protected_until for row in found.renewals}


def test_a_lease_is_renewed_when_it_lapses_and_not_before() -> None:
    snap = snapshot(nodes(1), [budget("a"), budget("b")], [session("s"), session("t", protected_until=NOW + 1)])
    assert renewed(snap) == {"s": NOW + 2 * HOUR}
    assert allocate(snap).lapsing == (
        Lapse(workload="s", at=NOW + 2 * HOUR, renewable=True), Lapse(workload="t", at=NOW + 1, renewable=True),
    )  # fmt: skip


def test_only_leases_are_renewed() -> None:
    plain = session("s", renew=False)
    free = session("t", charged=False, min_runtime=0)
    leaving = session("u", terminating_until=NOW + 60)
    assert renewed(snapshot(nodes(1), [budget("a")], [plain, free, leaving])) == {}


@pytest.mark.parametrize(("limit", "expected"), [(6, {"s", "t"}), (5, {"s"}), (3, set())])
def test_the_interactive_limit_counts_leases_beyond_their_first_min_runtime(limit: int, expected: set[str]) -> None:
    second = session("q", granted_at=NOW - HOUR, protected_until=NOW + HOUR)  # renewed an hour ago
    first = session("r", since=NOW - HOUR, protected_until=NOW + HOUR)  # in its first two hours: does not count
    works = [second, first, session("s", submit_time=NOW - 9 * HOUR), session("t", submit_time=NOW - 8 * HOUR)]
    budgets = [budget("top", interactive_limit=limit), budget("a", parent="top"), budget("b")]
    assert set(renewed(snapshot(nodes(1), budgets, works))) == expected


def test_who_holds_more_than_it_is_owed_loses_its_lease() -> None:
    works = [session("s", gpus=8), job("w", "b", 8)]
    snap = snapshot(nodes(1), [budget("a"), budget("b")], works, usage=[used("a", 100)])
    assert renewed(snap) == {}
    found = allocate(snap)
    assert [row.workload for row in found.starts] == ["w"]
    snap = snapshot(nodes(2), [budget("a"), budget("b")], [session("s", gpus=8), job("w", "b", 8)])
    assert set(renewed(snap)) == {"s"}


def test_who_has_no_funds_loses_its_lease() -> None:
    budgets = [budget("a", 1), budget("b", 1)]
    assert set(renewed(snapshot(nodes(1), budgets, [session("s")]))) == {"s"}
    assert renewed(snapshot(nodes(1), budgets, [session("s")], usage=[used("a", 2000)])) == {}


def test_renewals_draw_before_starts() -> None:
    # The window leaves 4 x 2 GPU-hours: enough for the session or for the job.
    budgets, works = [budget("a", 1), budget("b", 1)], [session("s", gpus=4), job("w", "a", 4, unfunded="wait")]
    whole = int(entitle(snapshot(nodes(1), budgets, works)).market.available[1, 0]) + 4 * 2 * HOUR
    tight = snapshot(nodes(1), budgets, works, usage=[replace(used("a", 1), gpus=(whole - 4 * 2 * HOUR) // HOUR)])
    found = allocate(tight)
    assert [row.workload for row in found.renewals] == ["s"]
    assert not any(row.charged for row in found.starts)


def test_a_lease_on_a_node_that_will_drain_is_not_renewed_beyond_the_deadline() -> None:
    for deadline, expected in ((NOW + 2 * HOUR, {"s"}), (NOW + 2 * HOUR - 1, set())):
        machines = [node("n1", drain_deadline=deadline), node("n2")]
        assert set(renewed(snapshot(machines, [budget("a")], [session("s")]))) == expected


def test_what_a_promise_holds_is_no_reason_to_renew_it() -> None:
    """Until it lapses a lease entitles its leaf to what it holds; whether it will be renewed is told without that."""
    works = [session("s", gpus=8, protected_until=NOW + 600), job("w", "b", 8)]
    snap = snapshot(nodes(1), [budget("a"), budget("b")], works, usage=[used("a", 100)])
    assert entitle(snap).market.entitled[1].tolist() == [8000]
    assert allocate(snap).lapsing == (Lapse(workload="s", at=NOW + 600, renewable=False),)
    alone = snapshot(nodes(2), [budget("a"), budget("b")], works, usage=[used("a", 100)])
    assert allocate(alone).lapsing == (Lapse(workload="s", at=NOW + 600, renewable=True),)


def test_renewable_is_what_happens_if_it_lapses_now() -> None:
    """With one lease, no reservation and nobody near a `gpu_limit`, which a promise may exceed."""
    seen = Counter[bool]()
    for seed in range(250):
        snap = tiny_contract(seed)
        snap = replace(snap, budgets=tuple(replace(vertex, gpu_limit=None) for vertex in snap.budgets))
        ent, works = entitle(snap), {work.id: work for work in snap.workloads}
        ahead = [
            row for row in ent.lapsing if (run := works[row.workload].run) and run.granted_at and run.granted_at < snap.now
        ]
        if ent.reserved or len(ent.lapsing) != 1 or not ahead or ahead[0].at <= snap.now:
            continue
        work = works[ahead[0].workload]
        assert work.run is not None
        works[work.id] = replace(work, run=replace(work.run, protected_until=snap.now))
        after = entitle(replace(snap, workloads=tuple(works.values())).canonical())
        row = next(row for row, other in enumerate(after.snapshot.workloads) if other.id == work.id)
        if not after.reserved:
            seen[ahead[0].renewable] += 1
            assert bool(after.works.renewed[row]) == ahead[0].renewable, seed
    assert min(seen[True], seen[False]) >= 3, seen


def test_a_renewed_lease_is_no_victim() -> None:
    works = [session("s", gpus=8), job("w", "b", 8, min_runtime=0)]
    snap = snapshot(nodes(1), [budget("a"), budget("b")], works)
    found = allocate(snap)
    assert [row.workload for row in found.renewals] == ["s"]
    assert not found.preemptions
    assert broken(snap, decision(snap, renewals=[])) == ("lease",)
