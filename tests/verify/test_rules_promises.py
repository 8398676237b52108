"""Promises and limits: for each rule a decision that holds and one that is broken at one place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from allocator.domain import BrokenContract, Lapse, Promotion, Renewal, Reservation, Unfunded
from allocator.entitlement import entitle
from tests.builders import (
    HOUR,
    NOW,
    budget,
    decision,
    job,
    lane,
    node,
    nodes,
    running,
    snapshot,
    start,
    stop,
    stopped,
    used,
    with_score,
)
from tests.verify.judge import broken, details

BROKE = [used("a", 6000)]
"""More usage than the budget of `a` in the clusters of up to 32 GPUs below."""


def test_protection_of_running_work() -> None:
    budgets = [budget("a"), budget("b")]
    for until, expected in ((NOW, ()), (NOW + 1, ("protection",))):
        snap = snapshot(nodes(1), budgets, [running("old", "a", {"n1": 1}, protected_until=until), job("new", "b")])
        answer = decision(snap, [start("new", {"n1": 1})], [stop("old", "new")])
        assert set(broken(snap, answer)) - {"licence"} == set(expected)


def test_protection_without_a_start_time() -> None:
    snap = snapshot(nodes(1), [budget("a"), budget("b")], [running("old", "a", {"n1": 1}, since=None), job("new", "b")])
    assert broken(snap, decision(snap)) == ()
    assert "protection" in broken(snap, decision(snap, [start("new", {"n1": 1})], [stop("old", "new")]))


def test_protection_forbids_moves() -> None:
    snap = snapshot(nodes(2), [budget("a")], [running("old", "a", {"n1": 1}, protected_until=NOW + HOUR)])
    assert "protection" in broken(snap, decision(snap, [start("old", {"n2": 1})]))


@pytest.mark.parametrize("wrong", [None, NOW + 2 * HOUR - 1, NOW + 2 * HOUR + 1])
def test_protection_is_recorded_in_full(wrong: int | None) -> None:
    snap = snapshot(nodes(1), [budget("a")], [job("w")])
    assert broken(snap, decision(snap, [start("w", {"n1": 1})])) == ()
    assert broken(snap, decision(snap, [start("w", {"n1": 1}, protected_until=wrong)])) == ("protection",)


def test_protection_of_unallocated_work_is_null() -> None:
    snap = snapshot(nodes(1), [budget("a")], [job("w", min_runtime=0)])
    assert broken(snap, decision(snap, [start("w", {"n1": 1})])) == ()
    assert broken(snap, decision(snap, [start("w", {"n1": 1}, protected_until=NOW)])) == ("protection",)


def test_protection_reports_what_a_dead_node_breaks() -> None:
    works = [running("w", "a", {"n1": 1}, protected_until=NOW + HOUR)]
    snap = snapshot([node("n1", state="down")], [budget("a")], works)
    good = decision(snap, stops=[stop("w")])
    assert good.contract_broken == (BrokenContract(workload="w", promised=NOW + HOUR, cause="node_down"),)
    assert broken(snap, good) == ()
    (row,) = good.contract_broken
    for rows in ((), (row, row), (replace(row, promised=NOW),), (replace(row, cause="drain_deadline"),)):
        assert broken(snap, replace(good, contract_broken=rows)) == ("protection",)


def test_protection_reports_nothing_else() -> None:
    snap = snapshot([node("n1", state="down")], [budget("a")], [running("w", "a", {"n1": 1}, protected_until=NOW)])
    good = decision(snap, stops=[stop("w")])
    assert broken(snap, good) == ()
    row = BrokenContract(workload="w", promised=NOW, cause="node_down")
    assert broken(snap, replace(good, contract_broken=(row,))) == ("protection",)


def test_funding_of_starts() -> None:
    snap = snapshot(nodes(1), [budget("a")], [job("w")], usage=BROKE)
    assert broken(snap, decision(snap, [start("w", {"n1": 1}, charged=False)])) == ()
    answer = decision(snap, [start("w", {"n1": 1}, charged=True)])
    assert broken(snap, answer) == ("funding",)
    assert "a: new promises in h100 cost 57600 GPU-seconds of 0" in details(snap, answer)


def test_funding_of_the_decision_as_a_whole() -> None:
    # 16 GPUs x 633,600 s = 10,137,600 GPU-seconds; 2,800 GPU-hours are used, so 57,600 are left: one promise of 8 GPUs x 2 h.
    snap = snapshot(nodes(2), [budget("a")], [job("w1"), job("w2")], usage=[used("a", 2800)])
    one = [start("w1", {"n1": 1}), start("w2", {"n2": 1}, charged=False)]
    assert broken(snap, decision(snap, one)) == ()
    assert broken(snap, decision(snap, [start("w1", {"n1": 1}), start("w2", {"n2": 1})])) == ("funding",)


def test_funding_asks_every_vertex_of_the_path() -> None:
    budgets = [budget("top"), budget("a", parent="top"), budget("b", parent="top")]
    snap = snapshot(nodes(1), budgets, [job("w", "b")], usage=[used("a", 1400)])
    assert broken(snap, decision(snap, [start("w", {"n1": 1}, charged=False)])) == ()
    answer = decision(snap, [start("w", {"n1": 1})])
    assert broken(snap, answer) == ("funding",)
    assert "funding: top:" in details(snap, answer)


def test_funding_charges_whatever_is_funded() -> None:
    snap = snapshot(nodes(1), [budget("a")], [job("w")])
    assert broken(snap, decision(snap, [start("w", {"n1": 1})])) == ()
    assert broken(snap, decision(snap, [start("w", {"n1": 1}, charged=False)])) == ("funding",)


def test_funding_lets_work_wait_that_wants_to() -> None:
    snap = snapshot(nodes(1), [budget("a")], [job("w", unfunded=Unfunded.WAIT)], usage=BROKE)
    assert broken(snap, decision(snap)) == ()
    assert broken(snap, decision(snap, [start("w", {"n1": 1}, charged=False)])) == ("funding",)


def test_funding_never_charges_unallocated_work() -> None:
    snap = snapshot(nodes(1), [budget("a")], [job("w", min_runtime=0)])
    assert broken(snap, decision(snap, [start("w", {"n1": 1})])) == ()
    assert broken(snap, decision(snap, [start("w", {"n1": 1}, charged=True)])) == ("funding",)


@pytest.mark.parametrize("stated", [{}, {"min_runtime": 0}, {"unfunded": Unfunded.WAIT}, {"resumable": False}])
def test_funding_of_assured_work(stated: dict[str, Any]) -> None:
    snap = snapshot(nodes(1), [budget("a")], [job("w", preempted=8, **stated)], usage=BROKE)
    assert broken(snap, decision(snap, [start("w", {"n1": 1}, charged=True)])) == ()
    assert broken(snap, decision(snap, [start("w", {"n1": 1}, charged=False)])) == ("funding",)
    assert broken(snap, decision(snap)) == ("work_conservation",)
    snap = snapshot(nodes(1), [budget("a")], [running("w", "a", {"n1": 1}, charged=False, preempted=8, **stated)], usage=BROKE)
    assert broken(snap, decision(snap, promotions=["w"])) == ()
    assert broken(snap, decision(snap)) == ("funding",)


@pytest.mark.parametrize(("preempted", "kept"), [(7, []), (8, [(HOUR, 24 * HOUR)])])
def test_funding_of_an_assured_gang_that_is_reserved_for(preempted: int, kept: list[tuple[int, int]]) -> None:
    held = [running(f"r{i}", "b", {f"n{i}": 1}, protected_until=NOW + HOUR) for i in (1, 2)]
    spent = [used("a", 1500), used("b", 3000)]
    ent = entitle(
        snapshot(nodes(2), [budget("a"), budget("b")], [job("gang", "a", 16, preempted=preempted), *held], usage=spent)
    )
    assert [(one.start - NOW, one.promise) for one in ent.reserved] == kept
    assert int(ent.market.available.max()) == 0


def test_funding_promotes_what_is_funded() -> None:
    snap = snapshot(nodes(1), [budget("a")], [running("w", "a", {"n1": 1}, charged=False)])
    assert broken(snap, decision(snap, promotions=["w"])) == ()
    assert broken(snap, decision(snap)) == ("funding",)
    snap = snapshot(nodes(1), [budget("a")], [running("w", "a", {"n1": 1}, charged=False)], usage=BROKE)
    assert broken(snap, decision(snap)) == ()
    assert broken(snap, decision(snap, promotions=["w"])) == ("funding",)


def test_funding_promotes_nothing_beyond_a_drain() -> None:
    machines = [node("n1", drain_deadline=NOW + HOUR)]
    snap = snapshot(machines, [budget("a")], [running("w", "a", {"n1": 1}, charged=False)])
    assert broken(snap, decision(snap)) == ()
    assert broken(snap, decision(snap, promotions=["w"])) == ("health",)


def test_protection_of_promotions_is_recorded_in_full() -> None:
    snap = snapshot(nodes(1), [budget("a")], [running("w", "a", {"n1": 1}, charged=False)])
    short = Promotion(workload="w", protected_until=NOW + HOUR)
    assert broken(snap, decision(snap, promotions=[short])) == ("protection",)


def test_gpu_limit() -> None:
    for limit, expected in ((16, ()), (15, ("gpu_limit",))):
        budgets = [budget("top", gpu_limit=limit), budget("a", parent="top"), budget("b", parent="top")]
        snap = snapshot(nodes(2), budgets, [running("old", "a", {"n1": 1}), job("w", "b", min_runtime=0)])
        answer = decision(snap, [start("w", {"n2": 1})])
        assert broken(snap, answer) == expected
    assert "top: would hold 16 GPUs, its limit is 15" in details(snap, answer)


def test_gpu_limit_binds_only_starts() -> None:
    snap = snapshot(nodes(1), [budget("a", gpu_limit=4)], [running("old", "a", {"n1": 1})])
    assert broken(snap, decision(snap)) == ()


def test_express_marks_its_candidates() -> None:
    snap = snapshot(nodes(1), [budget("a")], [job("w", gpus=1, min_runtime=600, user="u1")], usage=BROKE)
    good = decision(snap, [start("w", {"n1": 1})])
    assert good.starts[0].express
    assert good.starts[0].charged
    assert broken(snap, good) == ()
    assert "express" in broken(snap, decision(snap, [start("w", {"n1": 1}, express=False)]))
    assert "express" in broken(snap, decision(snap, [start("w", {"n1": 1}, charged=False)]))


def test_express_takes_no_others() -> None:
    snap = snapshot(nodes(1), [budget("a")], [job("w", gpus=1, min_runtime=1801, user="u1")])
    assert broken(snap, decision(snap, [start("w", {"n1": 1})])) == ()
    assert broken(snap, decision(snap, [start("w", {"n1": 1}, express=True)])) == ("express",)


def test_express_allows_two_workloads_per_user() -> None:
    works = [job(f"w{number}", gpus=1, min_runtime=600, user="u1") for number in range(3)]
    snap = snapshot(nodes(1), [budget("a")], works)
    good = [start(work.id, {"n1": 1}) for work in works]
    assert [row.express for row in decision(snap, good).starts] == [True, True, False]
    assert broken(snap, decision(snap, good)) == ()
    third = [*good[:2], start("w2", {"n1": 1}, express=True)]
    answer = decision(snap, third)
    assert broken(snap, answer) == ("express",)
    assert "user u1 would have 3 workloads in the lane, allowed are 2" in details(snap, answer)


def test_express_has_room_for_a_part_of_each_pool() -> None:
    # Both count in h100, whose lane has room for both; the lane of b200 has room for 8 GPUs only.
    machines = [*nodes(40), *nodes(2, prefix="b", pool="b200")]
    works = [job(f"w{number}", gpus=8, min_runtime=600, user=f"u{number}") for number in range(2)]
    snap = snapshot(machines, [budget("a")], works)
    assert broken(snap, decision(snap, [start("w0", {"n1": 1}), start("w1", {"b1": 1})])) == ()
    answer = decision(snap, [start("w0", {"b1": 1}), start("w1", {"b2": 1})])
    assert broken(snap, answer) == ("express",)
    assert "the lane of b200 would hold 16 GPUs, it has room for 8" in details(snap, answer)


def test_express_counts_what_runs() -> None:
    works = [
        running("old", "a", {"n1": 1}, gpus=8, express=True, user="u0", protected_until=NOW),
        job("w", gpus=1, min_runtime=600, user="u1"),
    ]
    snap = snapshot(nodes(2), [budget("a")], works, express=lane())
    assert broken(snap, decision(snap, [start("w", {"n2": 1})])) == ()
    assert broken(snap, decision(snap, [start("w", {"n2": 1}, express=True)])) == ("express",)


def test_lease_and_reservation_wait_for_their_time() -> None:
    snap = snapshot(nodes(1), [budget("a")], [running("w", "a", {"n1": 1}, renew=True), job("x", gpus=8)])
    assert broken(snap, decision(snap)) == ()
    renewals = [Renewal(workload="w", protected_until=NOW + HOUR)]
    assert broken(snap, decision(snap, renewals=renewals)) == ("lease",)
    lapsing = (Lapse(workload="w", at=NOW + HOUR, renewable=False),)
    assert broken(snap, decision(snap, lapsing=lapsing)) == ("lease",)
    reservations = [Reservation(workload="x", pool="h100", domain=(), nodes=1, start=NOW, eligible_since=NOW, bound=NOW)]
    assert broken(snap, decision(snap, reservations=reservations)) == ("reservation",)


def test_commitment_lets_victims_leave() -> None:
    works = [running("old", "a", {"n1": 1}, charged=False, terminating_until=NOW + 60), job("w", "b")]
    snap = snapshot(nodes(1), [budget("a"), budget("b")], works)
    assert broken(snap, decision(snap)) == ()
    assert "commitment" in broken(snap, decision(snap, [start("w", {"n1": 1})], [stop("old", "w")]))
    assert "commitment" in broken(snap, decision(snap, promotions=["old"]))


def test_commitment_keeps_down_what_was_just_stopped() -> None:
    works = [stopped(job("w"), NOW)]
    snap = snapshot(nodes(1), [budget("a")], works)
    assert broken(snap, decision(snap)) == ()
    assert broken(snap, decision(snap, [start("w", {"n1": 1})])) == ("commitment",)
    snap = snapshot(nodes(1), [budget("a")], [stopped(job("w"), NOW - 1)])
    assert broken(snap, decision(snap, [start("w", {"n1": 1})])) == ()


def test_nothing_moves_for_the_sake_of_a_single_task() -> None:
    works = [running("old", "a", {"n1": 1}, charged=False, min_runtime=0), job("w", "b", exclude_nodes=("n2",))]
    snap = snapshot(nodes(2), [budget("a"), budget("b")], works)
    answer = decision(snap, [start("w", {"n1": 1}), start("old", {"n2": 1})], [stop("old", "w")])
    assert broken(snap, answer) == ("relocation",)


def test_forced_stops_may_restart_elsewhere() -> None:
    works = [running("w", "a", {"n1": 1}, protected_until=NOW + HOUR)]
    snap = snapshot([node("n1", state="down"), node("n2")], [budget("a")], works)
    assert broken(snap, decision(snap, [start("w", {"n2": 1})], [stop("w")])) == ()


def test_claims_survive_a_new_score() -> None:
    snap = snapshot(nodes(1), [budget("a")], [job("w")])
    answer = decision(snap, [start("w", {"n1": 1})])
    assert with_score(snap, answer) == answer
