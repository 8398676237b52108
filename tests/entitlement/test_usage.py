"""Usage: records in any order, copied or split, running work, and decay."""

from __future__ import annotations

import math
import random
import time
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.domain import Allocation, Cluster, Node, Policy, Run, Snapshot, UsageRecord, Workload
from allocator.entitlement.tree import BudgetTree, build_tree
from allocator.entitlement.usage import effective_window, window_usage
from tests.entitlement.reference import window_seconds

NOW = 1_000
POOLS = ["b200", "h100"]
BUDGETS = (
    Allocation(id="base", parent=None, share=Fraction(1)),
    Allocation(id="train", parent="base", share=Fraction(1)),
    Allocation(id="data", parent="base", share=Fraction(1)),
    Allocation(id="rl", parent=None, share=Fraction(1)),
)
NODES = tuple(Node(name=f"{pool}-1", pool=pool, gpus=8, domains=()) for pool in POOLS)


def record(start: int, end: int, gpus: int = 1, name: str | None = None, **more: object) -> UsageRecord:
    fields: dict[str, object] = {"allocation": "train", "pool": "h100"} | more
    return UsageRecord(start=start, end=end, gpus=gpus, id=name, **fields)  # type: ignore[arg-type]


def running(run: Run, allocation: str = "train", gpus: int = 4) -> Workload:
    return Workload(
        id="w", allocation=allocation, submit_time=0, tasks=1, gpus_per_task=gpus, min_runtime=60, resumable=True, run=run
    )


def used(
    records: list[UsageRecord] | None = None,
    works: list[Workload] | None = None,
    policy: Policy | None = None,
    orphans: tuple[str, ...] = (),
) -> tuple[dict[str, int], dict[str, int]]:
    """Charged and uncharged usage in h100 by id, zeros left out."""
    snapshot = Snapshot(
        now=NOW,
        cluster=Cluster(levels=("node",), nodes=NODES),
        budgets=BUDGETS,
        workloads=tuple(works or ()),
        usage=tuple(records or ()),
        policy=policy or Policy(window=500),
    )
    tree = build_tree(BUDGETS, POOLS, orphans)
    charged, uncharged = window_usage(snapshot, tree, POOLS, NOW)
    return _by_id(tree, charged[:, 1].tolist()), _by_id(tree, uncharged[:, 1].tolist())


def _by_id(tree: BudgetTree, column: list[int]) -> dict[str, int]:
    return {name: value for name, value in zip(tree.ids, column, strict=True) if value}


def at_train(seconds: int) -> dict[str, int]:
    return {"": seconds, "base": seconds, "train": seconds} if seconds else {}


def test_the_window_cuts_both_ends() -> None:
    assert used([record(400, 600, 2), record(900, 1_200), record(100, 500)]) == (at_train(2 * 100 + 100), {})


def test_what_lies_in_the_future_or_is_empty_counts_nothing() -> None:
    assert used([record(1_000, 1_100), record(700, 700), record(800, 700)]) == ({}, {})


def test_sums_go_up_the_tree_by_pool_and_charge() -> None:
    records = [
        record(900, 910),
        record(900, 920, allocation="data", charged=False),
        record(900, 940, allocation="base"),
        record(900, 980, pool="b200"),
        record(900, 990, pool="unheard-of"),
        record(900, 990, allocation="unheard-of"),
    ]
    assert used(records) == ({"": 50, "base": 50, "train": 10}, {"": 20, "base": 20, "data": 20})


def test_records_of_an_allocation_that_only_running_work_names_are_ignored() -> None:
    run = Run(placement={"h100-1": 1}, charged=True, start_time=990)
    works = [running(run, "gone")]
    assert used([record(900, 910, allocation="gone")], works, orphans=("gone",)) == ({"": 40, "gone": 40}, {})


def test_work_of_an_inner_vertex_counts_at_the_orphan_and_records_at_the_vertex() -> None:
    works = [running(Run(placement={"h100-1": 1}, charged=True, start_time=990), "base")]
    charged, _ = used([record(900, 910, allocation="base")], works, orphans=("base",))
    assert charged[""] == 50
    tree = build_tree(BUDGETS, POOLS, ("base",))
    assert tree.orphans["base"] != tree.index["base"]


def test_one_id_counts_the_union_of_its_intervals() -> None:
    copies = [record(900, 950, name="r"), record(900, 950, name="r"), record(940, 960, name="r"), record(980, 990, name="r")]
    assert used(copies) == (at_train(60 + 10), {})
    assert used([record(900, 950), record(900, 950)]) == (at_train(100), {})


def test_one_id_may_be_uncharged_first_and_charged_later() -> None:
    assert used([record(950, 990, name="r"), record(900, 950, name="r", charged=False)]) == (at_train(40), at_train(50))


def test_where_records_of_one_id_disagree_the_first_to_start_counts() -> None:
    wider, later = record(600, 800, 8, "r"), record(700, 900, 2, "r")
    assert used([later, wider]) == (at_train(8 * 200 + 2 * 100), {})
    # Still so once the window has passed both starts.
    assert used([later, wider], policy=Policy(window=250)) == (at_train(8 * 50 + 2 * 100), {})


@pytest.mark.parametrize(
    ("run", "charged", "uncharged"),
    [
        (Run(placement={"h100-1": 1}, charged=True, start_time=900), 100, 0),
        (Run(placement={"h100-1": 1}, charged=True, start_time=100), 500, 0),
        (Run(placement={"h100-1": 1}, charged=False, start_time=900), 0, 100),
        (Run(placement={"h100-1": 1}, charged=True, start_time=900, charged_since=960), 40, 0),
        (Run(placement={"h100-1": 1}, charged=True, start_time=900, charged_since=NOW), 0, 0),
        (Run(placement={"h100-1": 1}, charged=True, start_time=900, charged_since=800), 100, 0),
        (Run(placement={"h100-1": 1}, charged=True), 0, 0),
        (Run(placement={"h100-1": 1}, charged=True, charged_since=900), 0, 0),
        (Run(placement={"h100-1": 1}, charged=True, start_time=NOW), 0, 0),
        (Run(placement={"h100-1": 1}, charged=True, start_time=NOW + 50), 0, 0),
        (Run(placement={"b200-1": 1}, charged=True, start_time=900), 0, 0),
    ],
)
def test_running_work(run: Run, charged: int, uncharged: int) -> None:
    assert used(works=[running(run)]) == (at_train(4 * charged), at_train(4 * uncharged))


@pytest.mark.parametrize("half_life", [None, 100])
def test_runs_and_promotions_that_are_still_to_come_have_used_nothing(half_life: int | None) -> None:
    for run in (
        Run(placement={"h100-1": 1}, charged=True, start_time=NOW + 50),
        Run(placement={"h100-1": 1}, charged=True, start_time=NOW - 50, charged_since=NOW + 50),
    ):
        assert used(works=[running(run)], policy=Policy(half_life=half_life)) == ({}, {})


spans = st.tuples(st.integers(0, 60), st.integers(0, 60)).map(sorted)
names = st.sampled_from([None, "a", "b", "c"])


@st.composite
def consistent_records(draw: st.DrawFn) -> list[UsageRecord]:
    """Records of few ids; those of one id agree in GPUs and charge."""
    gpus = {name: draw(st.integers(1, 8)) for name in ("a", "b", "c")}
    charge = {name: draw(st.booleans()) for name in ("a", "b", "c")}
    return [
        record(NOW - 50 + start, NOW - 50 + end, gpus.get(name or "", 3), name, charged=charge.get(name or "", True))
        for name, (start, end) in draw(st.lists(st.tuples(names, spans), max_size=8))
    ]


@given(consistent_records(), st.integers(1, 70))
def test_agrees_with_counting_every_second(records: list[UsageRecord], window: int) -> None:
    expected = tuple(at_train(window_seconds(records, NOW - window, NOW, charged)) for charged in (True, False))
    assert used(records, policy=Policy(window=window)) == expected


@given(consistent_records(), st.randoms(use_true_random=False), st.sampled_from([None, 1, 30, 86_400]))
def test_order_copies_and_splits_change_nothing(
    records: list[UsageRecord], shuffler: random.Random, half_life: int | None
) -> None:
    policy = Policy(window=45, half_life=half_life)
    again: list[UsageRecord] = []
    for entry in records:
        cut = shuffler.randint(entry.start, entry.end)
        again += [replace(entry, end=cut), replace(entry, start=cut)]
        again += [entry] * (entry.id is not None)
    shuffler.shuffle(again)
    assert used(again, policy=policy) == used(records, policy=policy)


@given(st.lists(st.tuples(st.integers(1, 64), spans), max_size=6), st.sampled_from([10, 3_600, 86_400]))
def test_decay_agrees_with_the_integral(entries: list[tuple[int, list[int]]], half_life: int) -> None:
    records = [record(NOW - 60 + start, NOW - 60 + end, gpus) for gpus, (start, end) in entries]
    charged, _ = used(records, policy=Policy(half_life=half_life))
    exact = sum(
        r.gpus * half_life / math.log(2) * (0.5 ** ((NOW - r.end) / half_life) - 0.5 ** ((NOW - r.start) / half_life))
        for r in records
    )
    assert abs(charged.get("", 0) - exact) <= 0.5 + 1e-3


def test_decay_halves_after_a_half_life_and_has_no_window() -> None:
    policy = Policy(window=1, half_life=100)
    fresh, old = (used([record(end - 10, end, 64)], policy=policy)[0]["train"] for end in (NOW, NOW - 100))
    assert (fresh, old) == (618, 309)


def test_the_effective_window() -> None:
    assert effective_window(Policy(window=123)) == 123
    assert effective_window(Policy(half_life=86_400)) == 124_649


def test_a_hundred_thousand_records_take_a_fraction_of_a_second() -> None:
    rng = np.random.default_rng(1)
    starts = (NOW - rng.integers(0, 600, 100_000)).tolist()
    records = [record(start, start + 30, 8, f"r{i % 80_000}") for i, start in enumerate(starts)]
    began = time.process_time()
    used(records)
    # 0.12 s on the machine it was written on.
    assert time.process_time() - began < 1.0
