"""The rule `reservation`: who is kept how many nodes, until when promises may be made, and what happens when it falls due."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from allocator.domain import Decision, Reason, Reservation, Snapshot, StopReason, Unfunded, UsageRecord, Workload
from allocator.engine import allocate
from allocator.entitlement import entitle
from allocator.transition import apply
from allocator.verify import verify
from tests.builders import HOUR, NOW, budget, decision, job, node, nodes, running, snapshot, start, used
from tests.verify.judge import broken

BUDGETS = [budget("a"), budget("b")]
PAST = [used("a", 320, ago=10 * HOUR)]


def busy(hours: Sequence[int | None], **fields: Any) -> list[Workload]:
    """One job of `a` on each node: protected for so many hours, or (None) free to stop and charged."""
    return [
        running(f"r{i}", "a", {f"n{i}": 1}, protected_until=NOW + HOUR * (left or 0), **fields)
        for i, left in enumerate(hours, start=1)
    ]  # fmt: skip


def gang(nodes_wanted: int, **fields: Any) -> Workload:
    return job("gang", "b", 8 * nodes_wanted, min_runtime=8 * HOUR, **fields)


def kept(snap: Snapshot) -> tuple[Decision, Reservation | None]:
    found = allocate(snap)
    assert verify(snap, found).ok
    return found, next((row for row in found.reservations if row.workload == "gang"), None)


def test_the_earliest_number_of_nodes_is_reserved() -> None:
    snap = snapshot(nodes(4), BUDGETS, [*busy([1, 2, 3, 4]), gang(2)], usage=PAST)
    found, held = kept(snap)
    assert held is not None
    assert (held.domain, held.nodes, held.start) == (("c",), 2, NOW + 2 * HOUR)
    assert held.waits_for == ("r2",)
    assert (held.eligible_since, held.bound) == (NOW, NOW + 8 * HOUR)
    row = next(row for row in found.waiting if row.workload == "gang")
    assert (row.reason, row.not_before, row.entitled_since) == (Reason.BLOCKED_BY_PROTECTION, NOW + 2 * HOUR, NOW)


def test_the_required_level_decides_the_domains() -> None:
    # Rack r1 has two nodes in 4 h, rack r2 in 3 h; across racks two would be free in 1 h.
    snap = snapshot(nodes(4, per_rack=2), BUDGETS, [*busy([1, 4, 1, 3]), gang(2, required="rack")], usage=PAST)
    held = kept(snap)[1]
    assert held is not None
    assert (held.domain, held.start) == (("c", "r2"), NOW + 3 * HOUR)


@pytest.mark.parametrize(("share", "reserved"), [(2, True), (1, False)])
def test_only_large_gangs_are_reserved_for(share: int, reserved: bool) -> None:
    # 2 of 8 nodes are a quarter of the pool, one is less.
    snap = snapshot(nodes(8), BUDGETS, [*busy([1] * 8), gang(share)], usage=PAST)
    assert (kept(snap)[1] is not None) == reserved


def test_who_can_start_by_ordinary_means_needs_no_reservation() -> None:
    snap = snapshot(nodes(2), BUDGETS, [*busy([None, None]), gang(2)], usage=PAST)
    found, held = kept(snap)
    assert held is None
    assert [row.workload for row in found.starts] == ["gang"]


@pytest.mark.parametrize(("min_runtime", "starts"), [(2 * HOUR, True), (2 * HOUR + 1, False)])
def test_promises_end_in_time(min_runtime: int, starts: bool) -> None:
    small = job("small", "b", 8, min_runtime=min_runtime, unfunded="run")
    works = [*busy([2])[:1], gang(2), small]
    snap = snapshot(nodes(2), BUDGETS, works, usage=PAST, reservations=[])
    marked = replace(works[1], entitled_since=NOW - 1)
    snap = snapshot(nodes(2), BUDGETS, [works[0], marked, small], usage=PAST)
    found, held = kept(snap)
    assert held is not None
    assert held.start == NOW + 2 * HOUR
    assert bool(found.starts) == starts
    answer = decision(snap, [start("small", {"n2": 1})])
    assert ("reservation" in broken(snap, answer)) != starts
    if not starts:
        row = next(row for row in found.waiting if row.workload == "small")
        assert (row.reason, row.blockers) == (Reason.RESERVED_FOR_OTHER, ("gang",))


def test_unallocated_work_uses_the_nodes_meanwhile() -> None:
    works = [*busy([2]), gang(2), job("filler", "a", 8, min_runtime=0)]
    found, held = kept(snapshot(nodes(2), BUDGETS, works, usage=PAST))
    assert held is not None
    assert [(row.workload, row.charged) for row in found.starts] == [("filler", False)]


def test_nodes_that_are_not_needed_take_long_promises() -> None:
    # Three nodes come free by then, two are kept: one may be promised for longer, not two.
    works = [*busy([1, 1, None, 6]), gang(2), *(job(f"w{i}", "b", 8, min_runtime=8 * HOUR) for i in range(2))]
    marked = [replace(work, entitled_since=NOW - 60) if work.id == "gang" else work for work in works]
    held = Reservation(
        workload="gang", pool="h100", domain=("c",), nodes=2, start=NOW + HOUR, eligible_since=NOW - 60, bound=NOW + 8 * HOUR
    )
    snap = snapshot(nodes(4), BUDGETS, marked, usage=PAST, reservations=[held])
    found, row = kept(snap)
    assert row is not None
    assert row.start == NOW + HOUR
    assert len(found.starts) == 1


def test_when_it_falls_due_the_cheapest_nodes_are_cleared() -> None:
    works = [*busy([None, None, None]), replace(gang(2), entitled_since=NOW - HOUR)]
    dear = replace(works[0], checkpoint_on_notice=False, resumable=False)
    held = Reservation(
        workload="gang", pool="h100", domain=("c",), nodes=2, start=NOW, eligible_since=NOW - HOUR, bound=NOW + 7 * HOUR
    )
    snap = snapshot(nodes(3), BUDGETS, [dear, *works[1:]], usage=PAST, reservations=[held])
    found, row = kept(snap)
    assert row is None
    assert [(stop.workload, stop.reason, stop.beneficiaries) for stop in found.preemptions] == [
        ("r2", StopReason.RESERVATION, ("gang",)), ("r3", StopReason.RESERVATION, ("gang",)),
    ]  # fmt: skip
    assert [dict(start.placement) for start in found.starts] == [{"n2": 1, "n3": 1}]
    assert "reservation" in broken(snap, decision(snap))
    again = allocate(apply(snap, found))
    assert (again.starts, again.preemptions, again.reservations) == ((), (), ())


def test_a_due_reservation_needs_no_licence() -> None:
    """`a` holds no more than it is owed, `b` has had more than its share; the work of `a` gives way all the same."""
    held = Reservation(
        workload="gang", pool="h100", domain=("c",), nodes=2, start=NOW, eligible_since=NOW - HOUR, bound=NOW + 7 * HOUR
    )
    marked = [*busy([None, None]), replace(gang(2), entitled_since=NOW - HOUR)]
    budgets, past = [budget("a", 9), budget("b", 1)], [used("b", 140, ago=20 * HOUR)]
    snap = snapshot(nodes(2), budgets, marked, reservations=[held], usage=past)
    market = entitle(snap).market
    assert (1000 * market.held <= market.entitled).all()
    found, _ = kept(snap)
    assert [start.workload for start in found.starts] == ["gang"]
    assert {(row.workload, row.reason) for row in found.preemptions} == {
        ("r1", StopReason.RESERVATION), ("r2", StopReason.RESERVATION),
    }  # fmt: skip
    without = snapshot(nodes(2), budgets, [*busy([None, None]), gang(2)], usage=past)
    assert kept(without)[0].preemptions == ()


def test_a_reservation_is_sticky_and_moves_to_an_earlier_start_only() -> None:
    snap = snapshot(nodes(4), BUDGETS, [*busy([1, 2, 3, 4]), gang(2)], usage=PAST)
    found, held = kept(snap)
    assert held is not None
    later = apply(snap, found, 600)
    assert kept(later)[1] == held
    ended = replace(later, workloads=tuple(work for work in later.workloads if work.id != "r2"))
    moved = kept(ended)[1]
    assert moved is not None
    assert (moved.start, moved.bound) == (NOW + HOUR, held.bound)


def test_a_reservation_that_lost_its_nodes_is_made_anew_and_says_so() -> None:
    snap = snapshot(nodes(4), BUDGETS, [*busy([1, 2, 3, 4]), gang(2)], usage=PAST)
    found, held = kept(snap)
    assert held is not None
    later = apply(snap, found, 600)
    machines = tuple(node(f"n{i}", state="down" if i == 2 else "up") for i in range(1, 5))
    died = replace(later, cluster=replace(later.cluster, nodes=machines))
    again, remade = kept(died)
    assert remade is not None
    assert remade.start == NOW + 3 * HOUR
    row = next(row for row in again.waiting if row.workload == "gang")
    assert "made anew" in row.detail
    settled = kept(apply(died, again, 600))
    assert settled[1] == remade
    assert "made anew" not in next(row for row in settled[0].waiting if row.workload == "gang").detail


def test_reservations_stand_beside_each_other() -> None:
    budgets = [budget("a"), budget("b"), budget("d")]
    works = [*busy([1, 2, 3, 4]), gang(2), job("other", "d", 16, min_runtime=8 * HOUR)]
    snap = snapshot(nodes(4), budgets, works, usage=[used("a", 640, ago=10 * HOUR)])
    found, first = kept(snap)
    assert first is not None
    rows = {row.workload: (row.nodes, row.start - NOW) for row in found.reservations}
    assert rows == {"gang": (2, 2 * HOUR), "other": (2, 4 * HOUR)}


def test_reserved_gangs_hold_their_funds() -> None:
    """What is left of the budget beside the gang's promise pays for an hour of the job, which asks for two; or for two."""
    works = [*busy([2]), replace(gang(2), entitled_since=NOW - 1), job("w", "b", 1, unfunded=Unfunded.WAIT)]
    whole = int(entitle(snapshot(nodes(2), BUDGETS, works, usage=PAST)).market.available[2, 0])
    for left, starts in ((HOUR, False), (2 * HOUR, True)):
        past = UsageRecord(allocation="b", pool="h100", gpus=8, start=NOW - (whole - left) // 8, end=NOW)
        found, held = kept(snapshot(nodes(2), BUDGETS, works, usage=[*PAST, past]))
        assert held is not None
        assert [row.workload for row in found.starts] == (["w"] if starts else [])


def test_renewals_leave_reservations_their_nodes() -> None:
    session = running("s", "b", {"n2": 1}, since=NOW - 2 * HOUR, protected_until=NOW, renew=True)
    for promise, renews in ((2 * HOUR, True), (3 * HOUR, False)):
        held = Reservation(
            workload="gang",
            pool="h100",
            domain=("c",),
            nodes=2,
            start=NOW + 2 * HOUR,
            eligible_since=NOW - 60,
            bound=NOW + 8 * HOUR,
        )
        works = [*busy([2]), replace(session, min_runtime=promise), replace(gang(2), entitled_since=NOW - 60)]
        found, row = kept(snapshot(nodes(2), BUDGETS, works, usage=PAST, reservations=[held]))
        assert row is not None or not renews
        assert bool(found.renewals) == renews
