"""The rule `commitment`: ordered starts, victims that are leaving, victims that never leave."""

from __future__ import annotations

import pytest

from allocator.domain import Snapshot, StopReason, Workload
from allocator.engine import allocate
from allocator.transition import apply
from tests.builders import HOUR, NOW, budget, decision, job, node, nodes, running, snapshot, start, stop
from tests.verify.judge import broken

BOTH = [budget("a"), budget("b")]


def leaving(name: str, where: str, gpus: int = 8, until: int = NOW + 60) -> Workload:
    return running(name, "a", {where: 1}, gpus, charged=False, min_runtime=0, terminating_until=until)


def ordered(name: str, where: str, gpus: int = 8) -> Workload:
    return running(name, "b", {where: 1}, gpus, since=NOW + 60, granted_at=NOW - 60, protected_until=NOW + 2 * HOUR)


@pytest.mark.parametrize(("gpus", "expected"), [(2, ()), (3, ("capacity",))])
def test_what_leaves_and_what_comes_share_a_place(gpus: int, expected: tuple[str, ...]) -> None:
    # 8 GPUs: 6 are left by one and taken over by the other; 2 are free whichever is there.
    works = [leaving("old", "n1", 6), ordered("next", "n1", 6), job("w", "b", gpus, min_runtime=0)]
    snap = snapshot(nodes(1), BOTH, works)
    answer = decision(snap, [start("w", {"n1": 1})])
    assert ("capacity" in broken(snap, answer)) == bool(expected)
    assert bool(allocate(snap).starts) != bool(expected)


def test_who_fits_the_place_of_a_victim_waits_for_it() -> None:
    works = [leaving("old", "n1"), running("u", "a", {"n2": 1}, charged=False, min_runtime=0), job("w", "b")]
    snap = snapshot(nodes(2), BOTH, works)
    answer = decision(snap, [start("w", {"n2": 1})], [stop("u", "w")])
    assert "commitment" in broken(snap, answer)
    found = allocate(snap)
    assert not found.preemptions
    later = allocate(apply(snap, found, 60))
    assert [row.placement for row in later.starts] == [{"n1": 1}]
    assert not later.preemptions


def test_a_place_that_is_claimed_is_not_waited_for() -> None:
    works = [
        leaving("old", "n1"), ordered("next", "n1"), running("u", "a", {"n2": 1}, charged=False, min_runtime=0), job("w", "b"),
    ]  # fmt: skip
    found = allocate(snapshot(nodes(2), BOTH, works))
    assert [row.workload for row in found.preemptions] == ["u"]
    assert [row.workload for row in found.starts] == ["w"]


def test_nothing_is_placed_beside_a_victim_that_is_overdue() -> None:
    works = [leaving("old", "n1", 4, until=NOW), job("w", "b", 4)]
    snap = snapshot(nodes(1), BOTH, works)
    assert "commitment" in broken(snap, decision(snap, [start("w", {"n1": 1})]))
    assert not allocate(snap).starts
    snap = snapshot(nodes(1), BOTH, [leaving("old", "n1", 4, until=NOW + 1), job("w", "b", 4)])
    assert [row.workload for row in allocate(snap).starts] == ["w"]


def lost_order(spare: bool) -> Snapshot:
    """A gang of two nodes was ordered to take the places of two victims; one of them has not left."""
    gang = running("gang", "b", {"n1": 1, "n2": 1}, 16, since=NOW + 60, granted_at=NOW - 60, protected_until=NOW + 2 * HOUR)
    machines = [*nodes(2), *([node("n3")] if spare else [])]
    return snapshot(machines, BOTH, [leaving("old", "n1", until=NOW), gang])


def test_an_order_that_relied_on_a_victim_which_never_left_is_planned_anew_once() -> None:
    snap = lost_order(spare=True)
    found = allocate(snap)
    assert [(row.workload, row.reason) for row in found.preemptions] == [("gang", StopReason.RELOCATE)]
    assert [dict(row.placement) for row in found.starts] == [{"n2": 1, "n3": 1}]
    assert not found.contract_broken
    after = apply(snap, found)
    assert apply(after, found) == after
    assert next(work for work in after.workloads if work.id == "gang").preempted == 0
    again = allocate(after)
    assert not again.preemptions
    assert not again.starts


def test_half_the_hole_of_a_gang_is_never_kept() -> None:
    snap = lost_order(spare=False)
    found = allocate(snap)
    assert [row.workload for row in found.preemptions] == ["gang"]
    assert not found.starts
    more = snapshot(snap.cluster.nodes, BOTH, [*snap.workloads, job("w", "b")])
    assert [(row.workload, dict(row.placement)) for row in allocate(more).starts] == [("w", {"n2": 1})]


def test_an_order_beside_an_overdue_victim_stands_if_both_fit() -> None:
    works = [leaving("old", "n1", 4, until=NOW), ordered("next", "n1", 4)]
    assert not allocate(snapshot(nodes(1), BOTH, works)).preemptions


def test_a_decision_carried_out_in_part_is_completed() -> None:
    """The dispatcher has ordered the stop only; the start is decided again, on the same place, without another victim."""
    works = [*(running(f"u{i}", "a", {f"n{i}": 1}, charged=False, min_runtime=0) for i in (1, 2)), job("w", "b")]
    snap = snapshot(nodes(2), BOTH, works)
    first = allocate(snap)
    (victim,) = (row.workload for row in first.preemptions)
    place = {"u1": "n1", "u2": "n2"}[victim]
    rest = next(work for work in works if work.id not in (victim, "w"))
    part = snapshot(nodes(2), BOTH, [leaving(victim, place, until=NOW + 60), rest, works[2]])
    second = allocate(part)
    assert not second.preemptions
    third = allocate(apply(part, second, 60))
    assert not third.preemptions
    assert [dict(row.placement) for row in third.starts] == [{place: 1}]
