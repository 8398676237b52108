"""The bound of a reservation, followed until its gang starts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from allocator.domain import Decision, Reservation, Start, Workload
from allocator.replay.bounds import Bounds
from allocator.replay.lives import Life
from tests.builders import NOW, decision, nodes, snapshot
from tests.builders import job as waiting
from tests.replay.play import job

PLAIN = decision(snapshot(nodes(1), []))
MARKED = {"g": waiting("g", entitled_since=NOW)}


def reserving(at: int, bound: int, since: int = NOW) -> Decision:
    held = Reservation(
        workload="g", pool="h100", domain=(), nodes=1, start=bound, eligible_since=since, bound=bound, waits_for=()
    )
    return replace(PLAIN, now=at, reservations=(held,))


def starting(at: int) -> Decision:
    return replace(PLAIN, now=at, starts=(Start(workload="g", placement={"n1": 1}, charged=True, protected_until=None),))


def seen(
    *decisions: Decision, works: dict[str, Workload] | None = None, dead: dict[int, str] | None = None
) -> list[tuple[int, int, int | None, int]]:
    """`dead`: the pool with dead nodes at some of these decisions."""
    bounds = Bounds(tick=15)
    for number, each in enumerate(decisions):
        bounds.see(each, MARKED if works is None else works, {pool} if dead and (pool := dead.get(number)) else set())
    bounds.close({"g": Life(job("g"), NOW, NOW, 0)}, NOW + 1000)
    return [
        (row.bound - NOW, row.last_bound - NOW, None if row.start is None else row.start - NOW, row.late) for row in bounds.rows
    ]


def test_a_start_in_time_and_one_that_is_late() -> None:
    assert seen(reserving(NOW, NOW + 100), starting(NOW + 115)) == [(100, 100, 115, 0)]
    assert seen(reserving(NOW, NOW + 100), starting(NOW + 120)) == [(100, 100, 120, 5)]


def test_the_bound_that_was_stated_first_counts() -> None:
    later = reserving(NOW + 60, NOW + 400)
    assert seen(reserving(NOW, NOW + 100), later, starting(NOW + 300)) == [(100, 400, 300, 185)]


def test_a_gang_that_needs_no_reservation_for_a_while_keeps_its_bound() -> None:
    assert seen(reserving(NOW, NOW + 100), replace(PLAIN, now=NOW + 50), starting(NOW + 300)) == [(100, 100, 300, 185)]


def test_a_claim_that_is_lost_takes_its_bound_with_it() -> None:
    unmarked = {"g": waiting("g")}
    assert seen(reserving(NOW, NOW + 100), replace(PLAIN, now=NOW + 50), starting(NOW + 300), works=unmarked) == []
    anew = reserving(NOW + 200, NOW + 500, since=NOW + 190)
    assert seen(reserving(NOW, NOW + 100), anew, starting(NOW + 300)) == [(500, 500, 300, 0)]


@pytest.mark.parametrize(
    ("pool", "at", "late"), [("h100", 0, 0), ("h100", 1, 0), ("b200", 0, 185), ("h100", 2, 185), ("", 0, 185)]
)
def test_a_later_bound_counts_where_a_node_of_the_pool_died_before_it(pool: str, at: int, late: int) -> None:
    nothing = replace(PLAIN, now=NOW + 30)
    later, start = reserving(NOW + 60, NOW + 400), starting(NOW + 300)
    stated = (
        (reserving(NOW, NOW + 100), nothing, later, start) if at < 2 else (reserving(NOW, NOW + 100), later, nothing, start)
    )
    assert seen(*stated, dead={at: pool}) == [(100 if late else 400, 400, 300, late)]


def test_a_bound_that_is_not_stated_later_stands_whatever_dies() -> None:
    for dead in ({}, {0: "h100"}, {1: "h100"}):
        stated = reserving(NOW, NOW + 100), reserving(NOW + 60, NOW + 100), starting(NOW + 300)
        assert seen(*stated, dead=dead) == [(100, 100, 300, 185)]


def test_dead_nodes_excuse_only_the_bounds_that_follow() -> None:
    """The second bound is stated when all nodes are well again; the third moves on its own."""
    stated = reserving(NOW, NOW + 100), reserving(NOW + 60, NOW + 100), reserving(NOW + 90, NOW + 400), starting(NOW + 300)
    assert seen(*stated, dead={0: "h100"}) == [(100, 400, 300, 185)]


def test_what_has_not_started_at_the_end_is_late_if_its_bound_has_passed() -> None:
    assert seen(reserving(NOW, NOW + 100)) == [(100, 100, None, 885)]
    assert seen(reserving(NOW, NOW + 2000)) == [(2000, 2000, None, 0)]
