"""Budgets, what is promised, and what is left."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.domain import LastStop, Policy, Unfunded, UsageRecord
from allocator.entitlement import NO_BUDGET, Entitlement, entitle
from allocator.entitlement.funding import fund_in_order
from allocator.entitlement.places import Places
from allocator.entitlement.tree import build_tree
from tests.entitlement.builders import HOUR, NOW, allocation, node, running, snapshot, work

SPAN = 604_800 + 28_800
"""Window and cap: what a budget spans, 633,600 s."""


def at(ent: Entitlement, key: str, name: str) -> int:
    """One number of the market, in the only pool."""
    return int(getattr(ent.market, name)[ent.tree.index[key], 0])


def test_a_budget_is_the_share_of_the_pool_over_the_span() -> None:
    budgets = [allocation("A", 1), allocation("B", 2), allocation("B1", 1, "B"), allocation("B2", 3, "B", funds=False)]
    ent = entitle(snapshot([node("n")], budgets, []))
    assert at(ent, "A", "budget") == 8 * SPAN // 3
    assert at(ent, "B1", "budget") == 2 * 8 * SPAN // 12
    assert at(ent, "B2", "budget") == NO_BUDGET


def test_available_is_what_usage_and_promises_leave() -> None:
    # A has all of 8 GPUs. Used: 100 GPU-s from a record, and 4 GPUs for an hour. Promised: 4 GPUs for another hour.
    record = UsageRecord(id="u", allocation="A", pool="p", gpus=1, start=NOW - 9000, end=NOW - 8900)
    one = running("w", "n", gpus=4, min_runtime=2 * HOUR)
    ent = entitle(snapshot([node("n")], [allocation("A")], [one], [record]))
    assert at(ent, "A", "usage") == 100 + 4 * HOUR
    assert at(ent, "A", "outstanding") == 4 * HOUR
    assert at(ent, "A", "available") == 8 * SPAN - 100 - 8 * HOUR
    assert at(ent, "A", "available") == at(ent, "A", "available_before")


def test_available_is_never_negative() -> None:
    record = UsageRecord(id="u", allocation="A", pool="p", gpus=800, start=NOW - 9 * HOUR, end=NOW)
    rest = UsageRecord(id="v", allocation="A", pool="p", gpus=800, start=NOW - 99 * HOUR, end=NOW)
    ent = entitle(snapshot([node("n")], [allocation("A")], [], [record, rest]))
    assert at(ent, "A", "available") == 0


def test_a_promise_made_now_counts_only_afterwards() -> None:
    one = running("w", "n", since=0, gpus=4, min_runtime=2 * HOUR, granted_at=NOW, charged_since=NOW)
    ent = entitle(snapshot([node("n")], [allocation("A")], [one]))
    assert at(ent, "A", "available_before") == 8 * SPAN
    assert at(ent, "A", "available") == 8 * SPAN - 4 * 2 * HOUR


def test_a_start_in_the_future_is_promised_no_more_than_its_run() -> None:
    one = running("w", "n", since=-600, gpus=4, min_runtime=2 * HOUR)
    ent = entitle(snapshot([node("n")], [allocation("A")], [one]))
    assert at(ent, "A", "usage") == 0
    assert at(ent, "A", "outstanding") == 4 * 2 * HOUR


def test_a_broken_promise_is_owed_no_longer() -> None:
    one = running("w", "n", gpus=4, min_runtime=2 * HOUR)
    ent = entitle(snapshot([node("n", drain_deadline=NOW)], [allocation("A")], [one]))
    assert at(ent, "A", "outstanding") == 0


def test_funded_one_after_the_other_and_skipped_where_it_does_not_fit() -> None:
    # The record fills its whole window: 604,800 s x 8 GPUs. What is left is the cap: 8 GPUs x 8 h = 64 GPU-hours.
    record = UsageRecord(id="u", allocation="A", pool="p", gpus=8, start=NOW - 604_800, end=NOW)
    budgets = [allocation("A"), allocation("A1", parent="A", funds=False)]
    works = [work(f"w{i}", "A1", 8, hours * HOUR, submit_time=NOW - 100 + i) for i, hours in enumerate([6, 4, 1, 1, 1])]
    ent = entitle(snapshot([node("n")], budgets, works, [record]))
    assert at(ent, "A", "available") == 64 * HOUR
    # 48 of 64 GPU-hours, then 32 do not fit into 16, then 8 and 8 do, and nothing is left.
    assert ent.works.funded.tolist() == [True, False, True, True, False]
    assert at(ent, "A", "demand") == 24


def test_priority_fills_the_places_of_its_leaf() -> None:
    record = UsageRecord(id="u", allocation="A", pool="p", gpus=8, start=NOW - 604_800, end=NOW)
    works = [work("first", gpus=8, min_runtime=8 * HOUR), work("second", gpus=8, min_runtime=8 * HOUR, priority=1)]
    ent = entitle(snapshot([node("n")], [allocation("A")], works, [record]))
    assert ent.works.funded.tolist() == [False, True]


def test_without_a_budget_on_the_path_work_is_always_funded() -> None:
    works = [work(f"w{i}", gpus=8, min_runtime=8 * HOUR) for i in range(50)]
    ent = entitle(snapshot([node("n")], [allocation("A", funds=False)], works))
    assert ent.works.funded.all()
    assert any("always funded" in warning for warning in ent.warnings)


@pytest.mark.parametrize(("max_runtime", "promise"), [(None, 86_400), (7 * HOUR, 7 * HOUR), (99 * HOUR, 86_400)])
def test_the_last_try_is_promised_the_whole_run(max_runtime: int | None, promise: int) -> None:
    stuck = work("w", resumable=False, preempted=3, max_runtime=max_runtime)
    others = [
        work("x", resumable=False, preempted=2),
        work("y", preempted=7),
        work("z", resumable=False, preempted=3, min_runtime=0),
    ]
    ent = entitle(snapshot([node("n")], [allocation("A")], [stuck, *others]))
    assert ent.works.promise.tolist() == [promise, HOUR, HOUR, 0]


def test_the_last_try_falls_back_where_it_cannot_be_funded() -> None:
    # 64 GPU-hours are left (see above); 8 GPUs for 9 h would be 72.
    record = UsageRecord(id="u", allocation="A", pool="p", gpus=8, start=NOW - 604_800, end=NOW)
    one = work("w", gpus=8, resumable=False, preempted=3, max_runtime=9 * HOUR)
    ent = entitle(snapshot([node("n")], [allocation("A")], [one], [record]))
    assert ent.works.promise.tolist() == [HOUR]
    shorter = snapshot([node("n")], [allocation("A")], [replace(one, max_runtime=8 * HOUR)], [record])
    assert entitle(shorter).works.promise.tolist() == [8 * HOUR]


@pytest.mark.parametrize("stated", [{}, {"min_runtime": 0}, {"resumable": False}, {"unfunded": Unfunded.WAIT}, {"gpus": 16}])
def test_whoever_was_stopped_eight_times_is_promised_the_whole_run_without_asking_for_funds(stated: dict[str, Any]) -> None:
    spent = UsageRecord(id="u", allocation="A", pool="p", gpus=17, start=NOW - 604_800, end=NOW)
    works = [
        work("often", preempted=8, max_runtime=9 * HOUR, **stated),
        work("long", preempted=9, max_runtime=99 * HOUR, **stated),
        work("seldom", preempted=7, **{**stated, "resumable": True}),
    ]
    ent = entitle(snapshot([node("n"), node("m")], [allocation("A")], works, [spent]))
    seldom = 0 if stated.get("min_runtime") == 0 else HOUR
    assert at(ent, "A", "available") == 0
    assert ent.works.promise.tolist() == [24 * HOUR, 9 * HOUR, seldom]  # "long", "often", "seldom"
    assert ent.works.promise_cost[:2].tolist() == [0, 0]
    assert ent.works.funded[:2].all()
    assert ent.works.unallocated.tolist() == [False, False, seldom == 0]


def test_no_promise_gets_shorter_because_work_was_stopped_often() -> None:
    works = [work("w", preempted=8, max_runtime=HOUR, min_runtime=4 * HOUR)]
    assert entitle(snapshot([node("n")], [allocation("A")], works)).works.promise.tolist() == [4 * HOUR]
    cap = Policy(protection_cap=48 * HOUR)
    long = [replace(works[0], min_runtime=40 * HOUR, max_runtime=None)]
    assert entitle(snapshot([node("n")], [allocation("A")], long, policy=cap)).works.promise.tolist() == [40 * HOUR]


@pytest.mark.parametrize("stated", [0, 2 * HOUR])
def test_assured_work_need_not_outlast_the_nodes(stated: int) -> None:
    """All nodes are drained in ten hours: it is promised these, and waits for a day where one node stays."""
    one, soon = work("w", preempted=9, min_runtime=stated), replace(node("n"), drain_deadline=NOW + 10 * HOUR)
    promised = [
        entitle(snapshot(nodes, [allocation("A")], [one])).works.promise.tolist() for nodes in ([soon], [soon, node("m")])
    ]
    assert promised == [[10 * HOUR], [24 * HOUR]]


@pytest.mark.parametrize(("preempted", "protected"), [(7, False), (8, True)])
def test_an_assured_run_is_never_silently_unprotected(preempted: int, protected: bool) -> None:
    one = running("w", "n", since=None, min_runtime=0, preempted=preempted)
    assert entitle(snapshot([node("n")], [allocation("A")], [one])).works.protected.tolist() == [protected]


def test_a_stop_at_this_very_instant_does_not_count_yet() -> None:
    stop = LastStop(at=NOW, pool="p", gpus=1, charged=True)
    ent = entitle(snapshot([node("n")], [allocation("A")], [work("w", preempted=8, stopped=stop)]))
    assert ent.works.promise.tolist() == [HOUR]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 12)), max_size=40),
    st.lists(st.integers(-3, 40), min_size=8, max_size=8),
)
def test_work_is_funded_one_after_the_other(queue: list[tuple[int, int, int]], left: list[int]) -> None:
    tree = build_tree([allocation("A"), allocation("A1", 1, "A"), allocation("A2", 1, "A", funds=False)], ("p", "q"), [])
    vertices, pools, prices = (np.array([one[i] for one in queue], dtype=np.int64) for i in range(3))
    leaf = vertices + 1
    places = Places(leaf, np.zeros(len(queue), dtype=bool), pools)
    available = np.array(left).reshape(4, 2)
    found = fund_in_order(tree, available, np.arange(len(queue)), places, prices).tolist()
    expected = []
    for row, (vertex, pool, price) in enumerate(zip(leaf.tolist(), pools.tolist(), prices.tolist(), strict=True)):
        path = list(tree.funding_path(vertex))
        if all(available[above, pool] >= price for above in path):
            available[path, pool] -= price
            expected.append(row)
    assert found == expected
