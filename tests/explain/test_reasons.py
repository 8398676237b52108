"""One reason for each workload that waits: the first that applies, with its figures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from allocator.domain import Decision, Reason, Rejection, Snapshot, Unfunded, WaitingRow, Workload
from allocator.entitlement import entitle
from allocator.explain import annotate
from allocator.explain.horizon import Horizon
from tests.builders import (
    HOUR,
    NOW,
    budget,
    decision,
    job,
    node,
    nodes,
    running,
    snapshot,
    start,
    stop,
    stopped,
    used,
)


def explained(snap: Snapshot, answer: Decision | None = None, *, status: str = "optimal") -> Decision:
    """The decision (by default: keep everything) with its explanations."""
    answer = answer or decision(snap)
    return annotate(entitle(snap), replace(answer, solver=replace(answer.solver, status=status)))


def row(snap: Snapshot, answer: Decision | None = None, key: str = "w", **fields: Any) -> WaitingRow:
    return next(row for row in explained(snap, answer, **fields).waiting if row.workload == key)


def full(until: int, count: int = 1, **fields: Any) -> list[Any]:
    """Work of `a` on every one of some nodes, protected until then."""
    return [running(f"r{i}", "a", {f"n{i}": 1}, protected_until=until, **fields) for i in range(1, count + 1)]


def test_what_can_never_start_is_told_so() -> None:
    snap = snapshot(nodes(2), [budget("a")], [job("w", gpus=40, required="rack", tasks=5, gpus_per_task=8)])
    found = row(snap)
    assert (found.reason, found.never, found.not_before) == (Reason.TOPOLOGY_IMPOSSIBLE, True, None)


def test_what_could_not_be_read_is_told_so() -> None:
    bad = Rejection(workload="w", reason="invalid_request", detail="tasks: 0 is not valid here")
    found = row(snapshot(nodes(1), [budget("a")], rejected=(bad,)))
    assert (found.reason, found.never, found.detail) == (Reason.INVALID_REQUEST, True, bad.detail)


def test_nodes_that_are_down_or_draining_come_first() -> None:
    machines = [node("n1", state="down"), node("n2", state="drain"), node("n3")]
    snap = snapshot(machines, [budget("a", gpu_limit=8)], [job("w", gpus=16)])
    found = row(snap)
    assert (found.reason, found.not_before, found.never) == (Reason.POOL_DOWN, None, False)
    assert "1 of 3 nodes of h100 accept work" in found.detail


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_victim_that_is_late_may_leave_at_any_time(elsewhere: bool) -> None:
    """So nothing can be promised about what waits for its node, even where another place has a known end."""
    late = running("late", "a", {"n1": 1}, terminating_until=NOW - 60)
    held = running("held", "a", {"n2": 1}, since=NOW - HOUR, protected_until=NOW + HOUR)
    machines = [node("n1"), node("n2", state="up" if elsewhere else "down")]
    found = row(snapshot(machines, [budget("a")], [late, *([held] if elsewhere else []), job("w")]))
    expected = Reason.BLOCKED_BY_PROTECTION if elsewhere else Reason.NO_CAPACITY
    assert (found.reason, found.not_before) == (expected, NOW)
    assert ("late" in found.detail) is not elsewhere


def test_a_promise_that_outlasts_an_announced_drain_finds_no_node() -> None:
    snap = snapshot([node("n1", drain_deadline=NOW + HOUR)], [budget("a")], [job("w", min_runtime=2 * HOUR)])
    found = row(snap)
    assert found.reason is Reason.POOL_DOWN
    assert "2 h" in found.detail
    assert "announced drain" in found.detail


def test_a_gpu_limit_is_named_with_what_is_held() -> None:
    works = [running("r", "a", {"n1": 1}), job("w")]
    found = row(snapshot(nodes(2), [budget("p", gpu_limit=12), budget("a", parent="p")], works))
    assert found.reason is Reason.OVER_LIMIT
    assert "p may hold 12 GPUs at once and holds 8; this needs 8" in found.detail
    assert found.not_before == NOW


def test_work_that_cannot_be_paid_is_told_what_is_left() -> None:
    snap = snapshot(nodes(2), [budget("a"), budget("b")], [job("w", unfunded=Unfunded.WAIT)], usage=[used("a", 16_000)])
    found = row(snap)
    assert found.reason is Reason.UNFUNDED
    assert (
        "costs 16.0 GPU-hours, a has 0.0 left of 1,408.0 in h100 (16,000.0 used, 0.0 promised); it waits for funds"
        in found.detail
    )


def test_what_this_decision_promises_is_no_longer_left() -> None:
    # The budget of a is 32 GPU-hours: 4 GPUs of 8 h. w and v cost 16 each, one of them is paid together with u.
    works = [job("u"), job("v"), job("w", unfunded=Unfunded.WAIT)]
    snap = snapshot(nodes(3), [budget("a"), budget("b")], works, window=2 * HOUR // 3, protection_cap=2 * HOUR)
    answer = decision(snap, starts=[start("u", {"n1": 1}), start("v", {"n2": 1})])
    found = row(snap, answer)
    assert found.reason is Reason.UNFUNDED
    assert "a has 0.0 left of 32.0" in found.detail


def test_the_queue_before_it_may_take_what_is_left() -> None:
    # 40 GPU-hours for a: v asks for 24 of them, then u for 8; w would need 16.
    held = [running(f"r{i}", "b", {f"n{i}": 1}, protected_until=NOW + HOUR) for i in (1, 2)]
    first = [job("v", submit_time=NOW - 3 * HOUR, min_runtime=3 * HOUR), job("u", submit_time=NOW - 2 * HOUR, min_runtime=HOUR)]
    works = [*held, *first, job("w")]
    snap = snapshot(nodes(2), [budget("a"), budget("b")], works, window=2 * HOUR, protection_cap=3 * HOUR, reserve_from=2)
    found = row(snap, key="w")
    assert found.reason is Reason.UNFUNDED
    assert "work before it in the queue takes what is left" in found.detail


def test_promises_block_until_the_first_place_is_free_of_them() -> None:
    works = [
        running("r1", "a", {"n1": 1}, protected_until=NOW + 100),
        running("r2", "a", {"n2": 1}, protected_until=NOW + 3000),
        running("r3", "a", {"n3": 1}, protected_until=NOW + 2000),
        running("r4", "a", {"n4": 1}, protected_until=NOW + 4000),
        job("w", "b", 16),
    ]
    found = row(snapshot(nodes(4), [budget("a"), budget("b")], works))
    assert (found.reason, found.not_before) == (Reason.BLOCKED_BY_PROTECTION, NOW + 2000)
    assert found.blockers == ("r1", "r3"), "whose promises end first comes first"
    assert "33 min 20 s" in found.detail


def test_a_start_of_this_very_decision_blocks_too() -> None:
    snap = snapshot(nodes(1), [budget("a"), budget("b")], [job("v"), job("w", "b")])
    found = row(snap, decision(snap, starts=[start("v", {"n1": 1})]))
    assert (found.reason, found.not_before, found.blockers) == (Reason.BLOCKED_BY_PROTECTION, NOW + 2 * HOUR, ("v",))


def test_a_drain_deadline_ends_promises_elsewhere_too() -> None:
    machines = [node("n1", state="drain", drain_deadline=NOW + 600), node("n2")]
    gang = running("r", "a", {"n1": 1, "n2": 1}, gpus=16, protected_until=NOW + HOUR)
    found = row(snapshot(machines, [budget("a"), budget("b")], [gang, job("w", "b")]))
    assert (found.reason, found.not_before) == (Reason.BLOCKED_BY_PROTECTION, NOW + 600)


def test_who_is_owed_too_little_may_not_displace_anybody() -> None:
    works = [running("r1", "a", {"n1": 1}), running("r2", "b", {"n2": 1}), job("w", "b")]
    found = row(snapshot(nodes(2), [budget("a"), budget("b")], works))
    assert (found.reason, found.not_before) == (Reason.OVER_ENTITLEMENT, NOW)
    assert "8 GPUs cannot be placed: 0 GPUs free in h100" in found.detail
    assert "b is owed 8 GPUs and holds 8: half of 8 GPUs would be needed beyond what it holds" in found.detail


def test_without_a_licence_nobody_gives_way() -> None:
    # c is owed 8 GPUs more than it holds, but c alone has whole nodes that are not promised to anybody.
    works = [
        running("r1", "c", {"n1": 1}),
        running("r2", "a", {"n2": 1}, protected_until=NOW + HOUR),
        running("r3", "a", {"n3": 1}, protected_until=NOW + HOUR),
        job("w", "c"),
    ]
    found = row(snapshot(nodes(3), [budget("a"), budget("c")], works, reserve_from=2))
    assert found.reason is Reason.OVER_ENTITLEMENT
    assert "it is entitled, but whoever runs there unprotected holds no more than it is owed" in found.detail


def test_work_that_is_entitled_may_not_be_worth_a_stop() -> None:
    works = [running("gang", "a", {"n1": 1}), job("w", "b", 1)]
    found = row(snapshot(nodes(1), [budget("a"), budget("b")], works))
    assert found.reason is Reason.NO_CAPACITY
    assert "1 GPU cannot be placed: 0 GPUs free in h100; stopping others for it would cost more than it gains" in found.detail


def test_only_a_search_that_did_not_end_is_called_truncated() -> None:
    snap = snapshot(nodes(1), [budget("a"), budget("b")], [running("gang", "a", {"n1": 1}), job("w", "b", 1)])
    assert row(snap, status="feasible").reason is Reason.SEARCH_TRUNCATED
    free = snapshot(nodes(1), [budget("a")], [job("w")])
    assert row(free, status="feasible").reason is Reason.SEARCH_TRUNCATED
    assert row(free, status="optimal").reason is Reason.NO_CAPACITY
    broke = snapshot(nodes(1), [budget("a")], [job("w")], usage=[used("a", 16_000)])
    assert row(broke, status="feasible").reason is Reason.UNFUNDED, "that explains it, whatever the search did"


def test_unallocated_work_waits_for_idle_gpus() -> None:
    found = row(snapshot(nodes(1), [budget("a")], [running("r", "a", {"n1": 1}), job("w", min_runtime=0)]))
    assert found.reason is Reason.NO_CAPACITY
    assert "unallocated work waits for idle GPUs" in found.detail


def test_free_gpus_that_are_scattered_are_not_called_missing() -> None:
    works = [running(f"r{i}", "a", {f"n{i}": 1}, gpus=4) for i in (1, 2)]
    found = row(snapshot(nodes(2), [budget("a")], [*works, job("w")], reserve_from=2))
    assert "8 GPUs free in h100, but not where it fits" in found.detail


def test_a_victim_learns_for_whom_it_was_stopped() -> None:
    works = [running("w", "a", {"n1": 1}), running("r", "a", {"n2": 1}), job("v", "b")]
    snap = snapshot(nodes(2), [budget("a"), budget("b")], works)
    found = row(snap, decision(snap, starts=[start("v", {"n1": 1})], stops=[stop("w", "v")]))
    assert found.detail.startswith("stopped now (share) for v; ")
    assert found.reason is Reason.OVER_ENTITLEMENT


def test_what_was_stopped_at_this_instant_waits_for_the_next() -> None:
    found = row(snapshot(nodes(1), [budget("a")], [stopped(job("w"))]))
    assert found.reason is Reason.NO_CAPACITY
    assert "may start again from the next one on" in found.detail
    assert found.not_before == NOW


def test_a_gang_that_is_entitled_is_told_since_when() -> None:
    works = [*full(NOW + HOUR, 4), job("w", "b", 16, entitled_since=NOW - 600)]
    assert row(snapshot(nodes(4), [budget("a"), budget("b")], works)).entitled_since == NOW - 600


@pytest.mark.parametrize("pools", [("h100",), ()])
def test_a_pool_that_cannot_hold_it_pays_for_nothing(pools: tuple[str, ...]) -> None:
    # The 4-GPU nodes of b200 would pay, but no task of 8 GPUs fits there.
    machines = [node("n1"), node("m1", pool="b200", gpus=4)]
    work = job("w", pools=pools, unfunded=Unfunded.WAIT)
    snap = snapshot(machines, [budget("a"), budget("b")], [work], usage=[used("a", 16_000)])
    assert row(snap).reason is Reason.UNFUNDED


def test_everything_that_waits_has_one_row_in_the_order_of_the_ids() -> None:
    works = [job("c"), job("a1"), running("b", "a", {"n1": 1}), running("d", "a", {"n2": 1})]
    bad = Rejection(workload="b2", reason="invalid_request", detail="no")
    snap = snapshot(nodes(2), [budget("a")], works, rejected=(bad,))
    found = explained(snap, decision(snap, stops=[stop("d")]))
    assert [row.workload for row in found.waiting] == ["a1", "b2", "c", "d"]


def test_nothing_that_acts_is_touched() -> None:
    snap = snapshot(nodes(2), [budget("a")], [running("r", "a", {"n1": 1}), job("v"), job("w")])
    answer = replace(decision(snap, starts=[start("v", {"n2": 1})]), warnings=("mind the gap",))
    found = explained(snap, answer)
    assert "mind the gap" in found.warnings
    empty: dict[str, Any] = {"waiting": (), "drains": (), "allocations": (), "warnings": ("mind the gap",)}
    assert replace(found, **empty, solver=answer.solver) == answer


def test_workloads_of_one_case_are_explained_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Workload] = []
    earliest = Horizon.earliest

    def counted(self: Horizon, work: Workload, until: int | None = None) -> Any:
        calls.append(work)
        return earliest(self, work, until)

    monkeypatch.setattr(Horizon, "earliest", counted)
    works = [job(f"w{i:04d}", "ab"[i % 2], 8 * (1 + i % 3)) for i in range(600)]
    explained(snapshot(nodes(3), [budget("a"), budget("b")], [*full(NOW + HOUR, 3), *works]))
    assert len(calls) == 3, "three sizes, whoever asks and how often"
