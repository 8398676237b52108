"""Reservations of gangs with segments: a number of nodes says too little about those."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

from allocator.domain import Snapshot
from allocator.entitlement import entitle
from allocator.entitlement.reserve import as_row
from allocator.topology import NEVER
from tests.builders import HOUR, NOW, budget, job, node, running, snapshot


def racks(*more: Any, **fields: Any) -> Snapshot:
    """`gang` asks for a whole rack of two. Rack a is free in two hours, in rack b one node is free for good and one drains."""
    machines = [node("a1", "a"), node("a2", "a"), node("b1", "b", **fields), node("b2", "b")]
    works = [
        running("short", "x", {"a2": 1}, protected_until=NOW + 2 * HOUR),
        running("long", "x", {"b2": 1}, protected_until=NOW + 20 * HOUR),
        job("gang", "y", 16, min_runtime=HOUR, segment=("rack", 2)),
        *more,
    ]
    return snapshot(machines, [budget("x"), budget("y")], works, reserve_from=Fraction(1, 4))


def test_its_start_moves_only_to_where_its_segments_fit() -> None:
    """Now there are two nodes free, as many as it takes, but in two racks; in two hours the one that drains does not count."""
    snap = racks(drain_deadline=NOW + 2 * HOUR)
    (one,) = entitle(snap).reserved
    assert (one.start, one.nodes) == (NOW + 2 * HOUR, 2)
    assert not one.due


def test_its_start_moves_forward_where_they_do() -> None:
    """The promise on rack a has become shorter since the gang was reserved."""
    snap = racks(drain_deadline=NOW + 2 * HOUR)
    (one,) = entitle(snap).reserved
    row = as_row(one, snap.workloads, ("h100",))
    later = replace(row, start=row.start + HOUR, bound=row.bound + HOUR)
    (again,) = entitle(replace(snap, reservations=(later,))).reserved
    assert (again.start, again.nodes) == (NOW + 2 * HOUR, 2)


def test_none_of_its_nodes_is_spared_for_long_promises() -> None:
    """It is kept two, and a third one has come free: a promise on one of rack a would leave it two in two racks."""
    snap = racks()
    (one,) = entitle(snap).reserved
    assert one.nodes == 3
    held = replace(as_row(one, snap.workloads, ("h100",)), nodes=2)
    ent = entitle(replace(snap, reservations=(held,)))
    (one,) = ent.reserved
    assert (one.start, one.nodes) == (held.start, 2)
    by = dict(zip(ent.layout.names, ent.layout.promise_by.tolist(), strict=True))
    assert [by[name] for name in ("a1", "a2", "b1", "b2")] == [one.start, one.start, one.start, NEVER]
