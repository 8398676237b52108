"""`eta`: when a gang that is not entitled yet will be, if things go on as they are."""

from __future__ import annotations

from allocator.domain import Snapshot, WaitingRow
from allocator.engine import allocate
from allocator.entitlement import entitle
from allocator.explain import workload_view
from allocator.explain.render import as_text
from allocator.explain.words import clock
from tests.builders import HOUR, NOW, budget, job, nodes, running, snapshot, used


def gang_snapshot(gpu_hours: int) -> Snapshot:
    """A gang of the whole pool of 4 nodes waits; `a` holds the pool, `b` has used so much more than `a` in the past."""
    held = [running(f"r{i}", "a", {f"n{i}": 1}, protected_until=NOW + 8 * HOUR, since=NOW - HOUR) for i in range(1, 5)]
    past = [used("b", gpu_hours, ago=20 * HOUR)] if gpu_hours else []
    return snapshot(nodes(4), [budget("a"), budget("b")], [*held, job("gang", "b", 32)], usage=past)


def gang_row(gpu_hours: int) -> WaitingRow:
    """How the gang waits."""
    found = allocate(gang_snapshot(gpu_hours))
    return next(row for row in found.waiting if row.workload == "gang")


def test_a_gang_that_is_entitled_needs_no_forecast() -> None:
    row = gang_row(0)
    assert row.entitled_since == NOW
    assert row.eta is None


def test_the_forecast_is_when_credit_reaches_half_the_gang() -> None:
    # a uses 32 GPU-hours an hour: b is level with it, and owed half the pool, after 96 / 32 = 3 hours, less the hour so far.
    row = gang_row(96)
    assert row.entitled_since is None
    assert row.eta is not None
    assert NOW + HOUR <= row.eta <= NOW + 4 * HOUR


def test_people_read_what_the_forecast_is_of() -> None:
    # 96 GPU-hours of the other side are evened out within hours; the promise in the way lasts 8, and comes first in the page.
    snap, row = gang_snapshot(96), gang_row(96)
    assert row.eta is not None
    text = as_text(workload_view(entitle(snap), allocate(snap), "gang"))
    assert f"forecast    entitled about {clock(row.eta)}\n" in text


def test_more_debt_takes_longer() -> None:
    etas = [row.eta for row in map(gang_row, (96, 300, 900))]
    known = [eta for eta in etas if eta is not None]
    assert known == sorted(set(known))
    assert len(known) >= 2
