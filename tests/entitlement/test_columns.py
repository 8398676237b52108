"""Columns are the same with and without those of another instant, and what is read as arrays is what is read one by one."""

from __future__ import annotations

from dataclasses import fields, replace
from fractions import Fraction

import numpy as np
import pytest

from allocator.domain import Policy, Run, Snapshot, Weights, Workload
from allocator.entitlement import columns as module
from allocator.entitlement.columns import Columns, read_columns
from allocator.entitlement.contract import lost_gpu_seconds, read_contract
from allocator.entitlement.costs import lost_costs
from allocator.topology import build_layout
from allocator.wire import decode_snapshot, encode_snapshot
from tests.engines.epochs import World
from tests.engines.tiny_contract import tiny_contract
from tests.entitlement.builders import HOUR, NOW, allocation, node, running, snapshot, work


def same(one: Columns, other: Columns) -> bool:
    """Whether all arrays but the numbers of a numbering are equal, and those stand for the same."""
    numbered = {"works", "numbering", "table", "allocation", "pools", "index", "cells"}
    plain = {field.name for field in fields(Columns)} - numbered
    names = (
        [list(columns.numbering.allocation)[number] for number in columns.allocation] for columns in (one, other)
    )  # fmt: skip
    first, second = names
    return (
        first == second
        and cells_of(one) == cells_of(other)
        and all(np.array_equal(getattr(one, name), getattr(other, name)) for name in plain)
    )


def cells_of(columns: Columns) -> list[tuple[int, str, int]]:
    """Row, node and tasks of every run."""
    names = list(columns.numbering.node)
    return [(row, names[number], tasks) for row, number, tasks in columns.cells.T.tolist()]


def lies(key: str, **placement: int) -> Workload:
    return work(key, run=Run(placement=placement, charged=True))


def test_where_runs_lie_is_taken_over_with_them() -> None:
    works = tuple(work("b") if name == "b" else lies(name, **{name: 1, "last": 2}) for name in "abcd")
    first = read_columns(works)
    changed = (works[1], lies("bb", x=1), replace(works[2], priority=3), works[3], lies("e", a=4))
    assert cells_of(read_columns(changed, first)) == [
        (1, "x", 1), (2, "c", 1), (2, "last", 2), (3, "d", 1), (3, "last", 2), (4, "a", 4)
    ]  # fmt: skip
    assert same(read_columns(changed, first), read_columns(changed))


def test_numbering_begins_anew_once_too_many_nodes_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_NODES", 2)
    first = read_columns((lies("a", x=1, y=1, z=1),))
    again = read_columns((lies("a", x=1, y=1, z=1), lies("b", z=1)), first)
    assert list(again.numbering.node) == ["x", "y", "z"]
    assert again.numbering is not first.numbering


def test_rows_that_are_known_are_taken_over() -> None:
    world = World.new(3)
    first = read_columns(world.snapshot.workloads)
    fewer = world.snapshot.workloads[1:]
    changed = (replace(fewer[0], priority=fewer[0].priority + 1), *fewer[1:])
    assert same(read_columns(changed, first), read_columns(changed))
    assert read_columns(world.snapshot.workloads, first) is first


def test_an_equal_workload_is_known_although_it_is_another_object(monkeypatch: pytest.MonkeyPatch) -> None:
    snap = World.new(3).snapshot
    first, again = read_columns(snap.workloads), decode_snapshot(encode_snapshot(snap)).workloads
    monkeypatch.setattr(module, "_numbers", lambda *_: pytest.fail("read twice"))
    assert read_columns(again, first) is first
    assert same(read_columns(again[1:], first), first) is False  # other rows, none of them read anew


def test_a_numbering_that_is_crowded_is_begun_anew() -> None:
    known: Columns | None = None
    for number in range(1200):
        known = read_columns((work("w", tasks=1 + number),), known)
    assert known is not None
    assert len(known.numbering.request) < 1100
    assert known.request.tolist() == [0]


def test_what_a_stop_loses_is_the_same_for_all_at_once_and_one_by_one() -> None:
    snaps = [tiny_contract(seed) for seed in range(30)] + [_with_checkpoints()]
    compared = 0
    for snap in (one.canonical() for one in snaps):
        contract = read_contract(snap, build_layout(snap))
        lost, cost = lost_costs(contract, snap.policy, snap.now)
        for row, one in enumerate(snap.workloads):
            compared += one.run is not None
            assert lost[row] == (0 if one.run is None else lost_gpu_seconds(one, one.run, snap.now))
            assert one.run is not None or not cost[row]
    assert compared > 30


def _with_checkpoints() -> Snapshot:
    """Runs of all kinds: with checkpoints by the clock and by report, in the future, long before, and unknown."""
    runs = [
        running("a", "n", since=5000, resumable=True, checkpoint_interval=1800),
        running("b", "n", since=5000, resumable=False, checkpoint_interval=1800),
        _reported(running("c", "n", since=5000, resumable=True), NOW - 40),
        _reported(running("d", "n", since=5000, resumable=True), NOW + 40),
        _reported(running("e", "n", since=5000, resumable=True), NOW - 9000),
        running("f", "n", since=-60, resumable=True),
        running("g", "n", since=None, resumable=True),
        running("h", "n", since=5000, resumable=True, checkpoint_on_notice=True),
    ]
    return snapshot([node("n", gpus=64)], [allocation("A")], runs)


def _reported(one: Workload, at: int) -> Workload:
    assert isinstance(one.run, Run)
    return replace(one, run=replace(one.run, last_checkpoint=at))


def test_costs_that_leave_64_bits_are_exact() -> None:
    one = replace(running("w", "n", since=9 * HOUR, min_runtime=0), preempted=10**6)
    weights = replace(Weights(), lost_work=Fraction(10**9 + 7, 3))
    snap = snapshot([node("n")], [allocation("A")], [one], policy=Policy(weights=weights, planning_step=60))
    contract = read_contract(snap, build_layout(snap))
    cost = int(lost_costs(contract, snap.policy, snap.now)[1][0])
    amount = 4 * 60 * one.gpus  # at most four planning steps, whatever it was stopped before
    part = (1, 1) if contract.charged[0] else (1, 10)
    assert cost == round(Fraction(amount * 1000 * part[0], part[1]) * weights.lost_work)
