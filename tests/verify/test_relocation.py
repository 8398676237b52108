"""The rule about work that moves, and what the other rules say to a move."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from allocator.domain import Decision, Snapshot, StopReason
from allocator.engine import ENGINES, allocate
from allocator.entitlement import entitle
from allocator.explain import workload_view
from allocator.transition import apply
from allocator.verify import verify
from allocator.verify.case import Case
from tests.builders import HOUR, NOW, budget, decision, job, node, running, snapshot, start, stop, used
from tests.engines.tiny_moves import tiny_moves
from tests.verify.judge import broken, details

ABC = [budget("a"), budget("b"), budget("c")]
RACKS = [node("a1", "a"), node("a2", "a"), node("b1", "b"), node("b2", "b")]
FIRM = running("firm", "c", {"b1": 1}, protected_until=NOW + HOUR)
GANG = job("gang", "b", 16, required="rack")
INTO_A = start("gang", {"a1": 1, "a2": 1})


def small(**fields: Any) -> Any:
    """Half a node in the way of the gang, held by a project that is owed what it holds."""
    return running("small", "a", {"a1": 1}, 4, **fields)


def in_the_way(*works: Any, **fields: Any) -> Snapshot:
    """A gang is owed a rack; rack a has `small` in it, rack b `firm`, and room for `small`. No gang is kept a reservation."""
    return snapshot(RACKS, ABC, [FIRM, *(works or (small(), GANG))], **{"reserve_from": Fraction(1)} | fields)


def move(snap: Snapshot, **fields: Any) -> Decision:
    """`small` moves for the gang."""
    return decision(snap, [INTO_A, start("small", {"b2": 1}, **fields)], [stop("small", "gang")])


def movable(snap: Snapshot) -> set[str]:
    ent = entitle(snap)
    return {work.id for work, moves in zip(ent.snapshot.workloads, ent.works.movable, strict=True) if moves}


def test_small_work_moves_for_a_gang_that_is_owed_a_rack() -> None:
    snap = in_the_way()
    assert not entitle(snap).works.licensed.any()
    assert broken(snap, move(snap)) == ()
    assert move(snap).preemptions[0].reason is StopReason.RELOCATE


def test_without_its_restart_it_has_no_licence_to_stop() -> None:
    snap = in_the_way()
    assert broken(snap, decision(snap, [INTO_A], [stop("small", "gang")])) == ("licence",)


@pytest.mark.parametrize("engine", ENGINES)
def test_engines_find_the_move_and_are_at_rest_afterwards(engine: str) -> None:
    snap = in_the_way()
    found = allocate(snap, engine=engine)
    assert [(row.workload, row.reason, row.beneficiaries) for row in found.preemptions] == [
        ("small", StopReason.RELOCATE, ("gang",))
    ]
    assert {row.workload: set(row.placement) for row in found.starts} == {"gang": {"a1", "a2"}, "small": {"b2"}}
    after = apply(snap, found)
    assert verify(after, decision(after)).violations == ()
    again = allocate(after, engine=engine)
    assert (again.starts, again.preemptions) == ((), ())
    assert movable(after) == set()


@pytest.mark.parametrize(
    "moves",
    [
        small(protected_until=NOW + HOUR),
        small(renew=True, charged=False, min_runtime=0),
    ],
    ids=["protected", "a session"],
)
def test_what_may_not_move(moves: Any) -> None:
    snap = in_the_way(moves, GANG)
    assert movable(snap) == set()
    assert "relocation" in broken(snap, move(snap, charged=moves.run.charged))


@pytest.mark.parametrize(
    ("gang", "moves"),
    [
        (GANG, {"small"}),
        (replace(GANG, min_runtime=0), set()),
        (job("gang", "b", 16, preferred="rack"), {"small"}),
        (job("gang", "b", 16, segment=("rack", 2)), {"small"}),
        (job("gang", "b", 16), {"small"}),
        (job("gang", "b", 8), set()),
        (job("gang", "b", 4, tasks=2, gpus_per_task=2), set()),
        (job("gang", "b", 24, required="rack"), set()),
        (job("gang", "b", 16, required="rack", exclude_nodes=("a1",)), set()),
    ],
    ids=["rack", "never charged", "preferred", "segment", "two nodes", "one node", "part of a node", "too large", "excluded"],
)
def test_for_whom_work_may_move(gang: Any, moves: set[str]) -> None:
    """Only for entitled gangs that need a domain, and only from nodes that they could use."""
    assert movable(in_the_way(small(), gang)) == moves


def straddling(*names: str, **fields: Any) -> Snapshot:
    """The way into rack a is barred by a gang with tasks elsewhere as well; `firm` and `solid` leave no other rack."""
    machines = [*RACKS, *(node(f"c{i}", "c") for i in (1, 2, 3)), *(node(f"d{i}", "d") for i in (1, 2, 3))]
    pair = running("pair", "a", dict.fromkeys(names, 1), 2 * len(names), gpus_per_task=2)
    solid = [
        running(f"solid-{name}", "c", {name: 1}, 4, protected_until=NOW + HOUR) for name in ("c1", "c2", "c3", "d1", "d2", "d3")
    ]
    wide = {"slowdown": {"rack": Fraction(1, 50)}, "reserve_from": Fraction(1)} | fields
    return snapshot(machines, [*ABC, budget("d")], [FIRM, *solid, pair, GANG], **wide)


def test_a_gang_that_straddles_the_rack_moves() -> None:
    """It keeps the task that is in nobody's way, or not; what counts is that rack a is clear."""
    snap = straddling("a1", "c1")
    assert movable(snap) == {"pair"}
    assert not entitle(snap).works.licensed.any()
    for there in ({"c1": 1, "c2": 1}, {"b2": 2}, {"b2": 1, "d2": 1}):
        answer = decision(snap, [INTO_A, start("pair", there)], [stop("pair", "gang")])
        assert broken(snap, answer) == (), there
    half = decision(snap, [INTO_A, start("pair", {"c2": 1})], [stop("pair", "gang")])
    assert "gang" in broken(snap, half)


@pytest.mark.parametrize("engine", ENGINES)
def test_engines_move_a_gang_and_are_at_rest_afterwards(engine: str) -> None:
    """The pair comes together where half a node is free: that is cheaper than to stay in two racks."""
    snap = straddling("a1", "c1")
    found = allocate(snap, engine=engine)
    assert found.solver.notes == ()
    assert [(row.workload, row.reason, row.beneficiaries) for row in found.preemptions] == [
        ("pair", StopReason.RELOCATE, ("gang",))
    ]
    places = {row.workload: set(row.placement) for row in found.starts}
    assert places["gang"] == {"a1", "a2"}
    assert len({name[0] for name in places["pair"]}) == 1
    after = apply(snap, found)
    again = allocate(after, engine=engine)
    assert (again.starts, again.preemptions) == ((), ())
    assert movable(after) == set()


@pytest.mark.parametrize("dear", [False, True])
def test_a_gang_that_would_gain_by_it_alone_does_not_move(dear: bool) -> None:
    """To lie in two racks costs the pair more than a restart: it would move for its own sake. A minute costs 360 here."""
    rate = Fraction(360, 4 * 3600)  # of the time of four GPUs, an hour ahead
    slowdown = {"rack": rate + Fraction(1, 10**6) if dear else rate}
    assert movable(straddling("a1", "c1", slowdown=slowdown)) == (set() if dear else {"pair"})


@pytest.mark.parametrize(("names", "moves"), [("a1 c1", {"pair"}), ("a1 c1 c2", set())])
def test_gangs_on_many_nodes_stay(names: str, moves: set[str]) -> None:
    snap = straddling(*names.split(), slowdown={})
    assert movable(snap) == moves
    there = {"b2": len(names.split())}
    answer = decision(snap, [INTO_A, start("pair", there)], [stop("pair", "gang")])
    assert ("relocation" in broken(snap, answer)) == (not moves)


def test_for_gangs_that_are_not_entitled_nothing_moves() -> None:
    assert movable(in_the_way(usage=[used("b", 4000)])) == set()


def test_what_is_charged_moves_with_a_new_promise() -> None:
    snap = in_the_way()
    assert "relocation" in broken(snap, move(snap, charged=False))
    assert move(snap).starts[1].protected_until == NOW + 2 * HOUR


def test_what_cannot_be_promised_anew_stays() -> None:
    """`a` has used up its budget: its job runs on where it is, or not at all."""
    snap = in_the_way(usage=[used("a", 6000)], preempt_under_entitlement=True)
    assert broken(snap, move(snap)) == ("funding",)
    assert all(row.reason is not StopReason.RELOCATE for row in allocate(snap).preemptions)


def test_unallocated_work_moves_as_it_is() -> None:
    snap = in_the_way(small(charged=False, min_runtime=0), GANG)
    assert broken(snap, move(snap)) == ()
    assert [row.reason for row in allocate(snap).preemptions] == [StopReason.RELOCATE]


def test_nothing_moves_out_of_its_pool() -> None:
    snap = snapshot([*RACKS, node("x1", "x", pool="b200")], ABC, [FIRM, small(), GANG], reserve_from=Fraction(1))
    answer = decision(snap, [INTO_A, start("small", {"x1": 1})], [stop("small", "gang")])
    assert broken(snap, answer) == ("relocation",)
    assert "moves out of pool h100" in details(snap, answer)


def test_a_move_is_for_a_start_where_it_was() -> None:
    snap = in_the_way(small(), GANG, job("other", "b", 4))
    starts = [INTO_A, start("small", {"b2": 1}), start("other", {"b2": 1})]
    assert broken(snap, decision(snap, starts, [stop("small", "gang")])) == ()
    for names in ((), ("small",), ("other",)):
        assert "beneficiary" in broken(snap, decision(snap, starts, [stop("small", *names)])), names
    wrong = decision(snap, starts, [stop("small", "gang", reason=StopReason.SHARE)])
    assert broken(snap, wrong) == ("beneficiary",)


def test_nobody_moves_who_would_fit_where_it_was() -> None:
    """The restart itself is put aside, wherever it lies."""
    snap = in_the_way(small(), GANG, job("other", "b", 4))
    for there in ("b2", "a1", "a2"):
        answer = decision(snap, [start("other", {"a1": 1}), start("small", {there: 1})], [stop("small", "other")])
        assert {"minimal", "charged_first"} <= set(broken(snap, answer)), there


def test_charged_work_does_not_move_where_uncharged_work_could_stop() -> None:
    """The gang takes three quarters of each node of rack a: `spare` was there as well, and is kept beside it."""
    spare = running("spare", "a", {"a1": 1}, 2, charged=False, min_runtime=0)
    gang = job("gang", "b", 8, tasks=2, gpus_per_task=4, required="rack")
    snap = in_the_way(small(), spare, gang)
    assert broken(snap, decision(snap, [INTO_A], [stop("spare", "gang")])) == ()
    assert broken(snap, move(snap)) == ("charged_first",)


def test_moves_count_as_preemptions() -> None:
    snap = in_the_way(max_preemptions=0)
    assert broken(snap, move(snap)) == ("max_preemptions",)
    assert allocate(snap).preemptions == ()


def test_explain_says_that_it_moves() -> None:
    snap = in_the_way()
    found = workload_view(entitle(snap), allocate(snap, engine="greedy"), "small")
    assert found["state"] == "moves"
    assert (found["stopped"]["reason"], found["stopped"]["beneficiaries"]) == ("relocate", ["gang"])
    assert found["run"]["placement"] == {"b2": 1}


@pytest.mark.parametrize("seed", range(40))
def test_who_fits_where_it_ran_is_the_same_for_all_at_once_and_one_by_one(seed: int) -> None:
    ent = entitle(tiny_moves(seed))
    case = Case.of(ent, allocate(ent.snapshot, engine="greedy"))
    index, after = ent.layout.index, case.after
    for beside in (after.used, after.used_kept + after.used_express):
        returning = case.returning(beside)
        for row in np.flatnonzero(after.stopped).tolist():
            work, again = case.work(row), after.placement.get(row, {})
            assert work.run is not None
            fits = True
            for name, tasks in work.run.placement.items():
                here = beside[:, index[name]] + (tasks - again.get(index[name], 0)) * after.shapes[:, row]
                fits &= bool((here <= ent.layout.capacity[:, index[name]]).all())
            assert returning[row] == fits
            assert case.nodes_of(row) == {index[name] for name in work.run.placement}
