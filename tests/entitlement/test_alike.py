"""What is asked once for many: filling without levels, sums over runs, workloads that may start in the same ways."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from allocator.entitlement import entitle
from allocator.entitlement.alike import number_rows, start_classes
from allocator.entitlement.columns import NONE
from allocator.entitlement.tree import ObjectArray
from allocator.entitlement.waterfill import MILLI, fill, hand_out
from allocator.topology import BoolArray, IntArray, once, shape_of
from tests.engines.tiny import tiny_snapshot
from tests.engines.tiny_contract import tiny_contract


@pytest.mark.parametrize("seed", range(30))
def test_handing_out_gives_what_filling_gives(seed: int) -> None:
    ent = entitle(tiny_contract(seed))
    market, tree, horizon = ent.market, ent.tree, ent.snapshot.policy.horizon
    first = np.zeros_like(market.demand)
    capacity = MILLI * market.schedulable
    filled = fill(tree, capacity, market.usage, market.floor, market.demand, horizon, first)
    given = hand_out(tree, tree.weight, capacity, market.usage, market.floor, market.demand, horizon, first)
    assert np.array_equal(given, filled.entitled)
    weight: ObjectArray = np.hstack([tree.weight, tree.weight])
    usage: IntArray = np.tile(market.usage, 2)
    floor: IntArray = np.tile(market.floor, 2)
    demand: IntArray = np.tile(market.demand, 2)
    both = hand_out(tree, weight, np.tile(capacity, 2), usage, floor, demand, horizon, np.tile(first, 2))
    assert np.array_equal(both, np.hstack([given, given])), "columns do not know each other"


@pytest.mark.parametrize("seed", range(20))
def test_runs_are_added_up_node_by_node(seed: int) -> None:
    ent = entitle(tiny_snapshot(seed))
    held = np.zeros_like(ent.layout.capacity)
    for work in ent.snapshot.workloads:
        for name, tasks in (work.run.placement if work.run else {}).items():
            held[:, ent.layout.index[name]] += np.array(shape_of(work)) * tasks
    assert np.array_equal(ent.placements.on_nodes(ent.works.running, ent.columns.shape, len(ent.layout.names)), held)


@pytest.mark.parametrize("seed", range(20))
def test_workloads_of_one_class_agree_in_all_that_a_start_depends_on(seed: int) -> None:
    snapshot = tiny_snapshot(seed)
    twins = [replace(work, id=f"{work.id}-twin") for work in snapshot.workloads if work.run is None]
    ent = entitle(replace(snapshot, workloads=(*snapshot.workloads, *twins)).canonical())
    seen: dict[int, tuple[object, ...]] = {}
    for row, number in enumerate(start_classes(ent).tolist()):
        work, works = ent.snapshot.workloads[row], ent.works
        facts = (
            shape_of(work), work.tasks, work.pools, work.topology, work.exclude_nodes, dict(work.node_labels), work.unfunded,
            work.min_runtime == 0, int(works.leaf[row]), int(works.promise[row]), int(works.prepaid[row]),
            bool(works.express[row]), bool(works.entitled[row]), work.user if works.express[row] else None,
        )  # fmt: skip
        assert seen.setdefault(number, facts) == facts


def test_what_was_asked_once_is_remembered_as_long_as_its_subject_lives() -> None:
    asked: list[object] = []

    class Subject:
        """Can be referred to weakly."""

    @once
    def answer(subject: Subject) -> int:
        asked.append(None)
        return len(asked)

    one, other = Subject(), Subject()
    assert [answer(one), answer(one), answer(other)] == [1, 1, 2]
    del one
    assert answer(Subject()) == 3


@pytest.mark.parametrize("seed", range(40))
def test_numbers_are_those_of_sorted_rows(seed: int) -> None:
    """Also beside instants that are not stated, which lie beyond all that could be multiplied."""
    rng = np.random.default_rng(seed)
    size = seed % 13
    columns: list[IntArray | BoolArray] = [rng.integers(-3, 4, size) for _ in range(1 + seed % 3)]
    columns += [np.where(rng.random(size) < 0.5, NONE, rng.integers(0, 1 << 40, size)), rng.random(size) < 0.5]
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    number, first = number_rows(columns)
    distinct = sorted(set(rows))
    assert number.tolist() == [distinct.index(row) for row in rows]
    assert first.tolist() == [rows.index(row) for row in distinct]
