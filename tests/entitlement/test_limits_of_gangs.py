"""Gangs with a reservation under a `gpu_limit`: what is charged there comes first, what is uncharged gives way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from allocator.domain import Reason, Snapshot, StopReason
from allocator.engine import ENGINES, allocate
from allocator.entitlement import entitle
from allocator.entitlement.reserve import as_row
from allocator.verify import verify
from tests.builders import HOUR, NOW, budget, job, node, nodes, running, snapshot


def limited(until: int, *more: Any, own: bool = False) -> Snapshot:
    """`gang` fills the limit of its budget, in which `own` runs on a node that nobody needs; `long` is promised the others."""
    works = [
        running("long", "a", {"n1": 1, "n2": 1}, 16, protected_until=until),
        running("own", "b", {"m1": 1}, 4, charged=own, protected_until=NOW + HOUR if own else None),
        job("gang", "b", 16, required="rack"),
        *more,
    ]
    return snapshot([*nodes(2), node("m1", "r9", gpus=4)], [budget("a"), budget("b", gpu_limit=16)], works)


def kept(snap: Snapshot) -> list[str]:
    return [snap.workloads[one.row].id for one in entitle(snap).reserved]


def test_uncharged_work_of_its_budget_costs_it_nothing() -> None:
    assert kept(limited(NOW + HOUR)) == ["gang"]


def test_charged_work_does() -> None:
    snap = limited(NOW + HOUR, own=True)
    assert kept(snap) == []
    (row,) = [row for row in allocate(snap, engine="greedy").waiting if row.workload == "gang"]
    assert row.reason is Reason.OVER_LIMIT


@pytest.mark.parametrize("engine", ENGINES)
def test_when_it_is_due_the_uncharged_work_stops_for_it(engine: str) -> None:
    before = limited(NOW + HOUR)
    (one,) = entitle(before).reserved
    row = as_row(one, before.workloads, ("h100",))
    snap = replace(limited(NOW), reservations=(replace(row, start=NOW),))
    found = allocate(snap, engine=engine)
    assert [start.workload for start in found.starts] == ["gang"]
    stops = {stop.workload: stop.reason for stop in found.preemptions}
    assert stops == {"long": StopReason.RESERVATION, "own": StopReason.RESERVATION}
    assert verify(snap, found).ok
