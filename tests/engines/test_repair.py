"""Gangs that lost nodes are repaired where that is cheaper than moving them, and whoever comes back comes home."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from allocator.domain import Decision, LastStop, NodeState, Reservation, Snapshot, Workload
from allocator.engine import ENGINES, allocate
from allocator.transition import apply
from allocator.verify import verify
from allocator.wire import encode_decision
from tests.builders import HOUR, NOW, budget, job, node, nodes, running, snapshot
from tests.engines import tiny
from tests.engines.seeds import FUZZ, LIMIT, chunks
from tests.engines.test_metamorphic import shuffle
from tests.engines.tiny import tiny_snapshot

FEW = ("portfolio", "greedy")


def dead(snap: Snapshot, *names: str) -> Snapshot:
    """The snapshot once some nodes have died."""
    machines = tuple(replace(one, state=NodeState.DOWN) if one.name in names else one for one in snap.cluster.nodes)
    return replace(snap, cluster=replace(snap.cluster, nodes=machines))


def gang(name: str, *names: str, **fields: Any) -> Workload:
    """A gang of whole nodes whose promise lasts for another hour."""
    placement = dict.fromkeys(names, 1)
    return running(name, "a", placement, 8 * len(names), since=NOW - HOUR, protected_until=NOW + HOUR, **fields)


def decide(snap: Snapshot, engine: str) -> dict[str, set[str]]:
    """Where everything starts in a decision that keeps all rules and settles."""
    answer = allocate(snap, engine=engine, time_limit=LIMIT)
    assert answer.solver.notes == ()
    assert [str(one) for one in verify(snap, answer).violations] == []
    again = allocate(apply(snap, answer), engine=engine, time_limit=LIMIT)
    assert (again.starts, again.preemptions) == ((), ())
    return places(answer)


def places(answer: Decision) -> dict[str, set[str]]:
    return {row.workload: set(row.placement) for row in answer.starts}


def came_back(work: Workload, *names: str) -> Workload:
    """The work after it was stopped a minute ago on these nodes."""
    placement = dict.fromkeys(names, work.tasks // len(names))
    stop = LastStop(at=NOW - 60, pool="h100", gpus=work.gpus, charged=True, placement=placement)
    return replace(work, stopped=stop, preempted=1)


# --- repair ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_a_gang_is_repaired_in_its_rack_where_that_is_cheaper(engine: str) -> None:
    """r1 has a spare node; r2 is wholly free, and to break it up costs; over both racks the gang would be spread."""
    snap = snapshot(nodes(10, per_rack=5), [budget("a")], [gang("g", "n1", "n2", "n3", "n4")], slowdown={"rack": 0.05})
    assert decide(dead(snap, "n2"), engine) == {"g": {"n1", "n3", "n4", "n5"}}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_gang_moves_where_a_repair_would_spread_it(engine: str) -> None:
    """r1 has no spare node, r2 has room for all: to move costs no more than a restart, which is due anyway."""
    snap = snapshot(nodes(8), [budget("a")], [gang("g", "n1", "n2", "n3", "n4")], slowdown={"rack": 0.05})
    assert decide(dead(snap, "n2"), engine) == {"g": {"n5", "n6", "n7", "n8"}}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("rack", [1, 2, 3])
def test_of_equals_the_nodes_that_survive_are_kept(engine: str, rack: int) -> None:
    """Nothing tells the racks apart: no slowdown, and each has a node that is in use."""
    others = [gang(f"held{one}", f"n{5 * one}") for one in (1, 2, 3)]
    first = 5 * rack - 4
    mine = gang("g", f"n{first}", f"n{first + 1}", f"n{first + 3}")
    snap = snapshot(nodes(15, per_rack=5), [budget("a")], [*others, mine])
    assert decide(dead(snap, f"n{first + 1}"), engine) == {"g": {f"n{first}", f"n{first + 2}", f"n{first + 3}"}}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("gone", [("n1", "n5"), ("n1", "n2", "n5", "n9"), ("n4", "n10", "n8")])
def test_several_gangs_that_lost_nodes_at_once_are_all_repaired(engine: str, gone: tuple[str, ...]) -> None:
    """Three gangs in three racks of six nodes, with two spare each: they keep what survives, and stay in their racks."""
    machines = [node(f"n{i}", f"r{(i - 1) // 4}") for i in range(1, 13)]
    machines += [node(f"s{rack}{i}", f"r{rack}") for rack in range(3) for i in range(2)]
    works = [gang(f"g{rack}", *(f"n{4 * rack + i}" for i in range(1, 5)), required="rack") for rack in range(3)]
    found = decide(dead(snapshot(machines, [budget("a")], works), *gone), engine)
    for rack, work in enumerate(works):
        assert work.run is not None
        lost = work.run.placement.keys() & set(gone)
        assert (work.id in found) == bool(lost)
        if lost:
            assert found[work.id] >= work.run.placement.keys() - lost
            assert found[work.id] <= {*work.run.placement, f"s{rack}0", f"s{rack}1"}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_gang_that_cannot_be_repaired_does_not_block_one_that_can(engine: str) -> None:
    """`big` came first and fits no rack any more; `small` is repaired with the spare node of its own."""
    machines = [*(node(f"n{i}", "r1") for i in range(1, 5)), *(node(f"m{i}", "r2") for i in range(1, 4))]
    works = [
        replace(gang("big", "n1", "n2", "n3", "n4", required="rack"), submit_time=NOW - 9 * HOUR),
        gang("small", "m1", "m2", required="rack"),
    ]
    found = decide(dead(snapshot(machines, [budget("a")], works), "n1", "m1"), engine)
    assert found == {"small": {"m2", "m3"}}


@pytest.mark.parametrize("engine", ENGINES)
def test_gangs_do_not_change_places(engine: str) -> None:
    """Both racks lose a node, and have a spare one each: neither gang has a reason to go to the rack of the other."""
    works = [gang("g1", "n1", "n2", "n3"), gang("g2", "n5", "n6", "n7")]
    snap = snapshot(nodes(8), [budget("a")], works, slowdown={"rack": 0.05})
    found = decide(dead(snap, "n1", "n5"), engine)
    assert found == {"g1": {"n2", "n3", "n4"}, "g2": {"n6", "n7", "n8"}}


@pytest.mark.parametrize("engine", FEW)
def test_a_repair_in_segments_keeps_them(engine: str) -> None:
    """Segments of two per rack: the rack that lost a node has a spare one."""
    machines = nodes(9, per_rack=3)
    work = gang("g", "n1", "n2", "n4", "n5", segment=("rack", 2))
    assert decide(dead(snapshot(machines, [budget("a")], [work]), "n2"), engine) == {"g": {"n1", "n3", "n4", "n5"}}


# --- old nodes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("old", ["n1", "n3", "n6"])
def test_a_session_comes_back_to_its_node(engine: str, old: str) -> None:
    session = came_back(job("session", gpus=2, min_runtime=HOUR, renew=True), old)
    assert decide(snapshot(nodes(6), [budget("a")], [session]), engine) == {"session": {old}}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("old", ["n1", "n2", "n3"])
def test_others_that_start_leave_it_its_node(engine: str, old: str) -> None:
    """All nodes are filled in this decision; what is new goes elsewhere, however much earlier it stands in the queue."""
    works = [job(f"new{i}", gpus=8, submit_time=NOW - 5 * HOUR) for i in range(2)]
    found = decide(snapshot(nodes(3), [budget("a")], [*works, came_back(job("session", gpus=8), old)]), engine)
    assert found["session"] == {old}
    assert len(found) == 3


@pytest.mark.parametrize("engine", ENGINES)
def test_it_goes_elsewhere_where_its_node_is_taken(engine: str) -> None:
    held = running("held", "a", {"n1": 1}, since=NOW - HOUR, protected_until=NOW + HOUR)
    found = decide(snapshot(nodes(2), [budget("a")], [held, came_back(job("session"), "n1")]), engine)
    assert found == {"session": {"n2"}}


@pytest.mark.parametrize("engine", ENGINES)
def test_it_does_not_come_home_at_a_price(engine: str) -> None:
    """Its old node is wholly free by now: to break it up costs, while n2 has the very gap."""
    held = running("held", "a", {"n2": 1}, 6, gpus_per_task=6, since=NOW - HOUR, protected_until=NOW + HOUR)
    found = decide(snapshot(nodes(2), [budget("a")], [held, came_back(job("session", gpus=2), "n1")]), engine)
    assert found == {"session": {"n2"}}


@pytest.mark.parametrize("engine", ENGINES)
def test_nobody_is_stopped_for_the_way_home(engine: str) -> None:
    """Unallocated work may stay on the old node while another is free, and leaves for nobody's memories."""
    free = running("free", "a", {"n1": 1}, min_runtime=0, charged=False)
    found = decide(snapshot(nodes(2), [budget("a")], [free, came_back(job("session"), "n1")]), engine)
    assert found == {"session": {"n2"}}


@pytest.mark.parametrize("engine", ENGINES)
def test_what_moves_off_a_draining_node_does_not_come_home(engine: str) -> None:
    works = [running("w", "a", {"n1": 1}, protected_until=NOW - HOUR)]
    machines = [node("n1", state="drain"), node("n2"), node("n3")]
    assert decide(snapshot(machines, [budget("a")], works), engine)["w"] <= {"n2", "n3"}


@pytest.mark.parametrize("engine", FEW)
def test_two_that_lay_on_each_others_nodes_keep_to_their_own(engine: str) -> None:
    works = [came_back(job("a1"), "n2"), came_back(job("b1"), "n1")]
    found = decide(snapshot(nodes(4), [budget("a")], works), engine)
    assert found == {"a1": {"n2"}, "b1": {"n1"}}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("homes", [("n1 n2 n3", "n5 n6 n7"), ("n5 n6 n7", "n1 n2 n3"), ("n2 n3 n4", "n6 n7 n8")])
def test_gangs_come_back_to_their_racks(engine: str, homes: tuple[str, str]) -> None:
    works = [came_back(job(f"g{i}", gpus=24), *home.split()) for i, home in enumerate(homes)]
    found = decide(snapshot(nodes(8), [budget("a")], works, slowdown={"rack": 0.05}), engine)
    assert found == {f"g{i}": set(home.split()) for i, home in enumerate(homes)}


@pytest.mark.parametrize("engine", FEW)
def test_old_nodes_that_are_gone_do_not_matter(engine: str) -> None:
    session = came_back(job("session", gpus=16), "n2", "gone")
    found = decide(snapshot(nodes(4), [budget("a")], [session]), engine)
    assert "n2" in found["session"]


@pytest.mark.parametrize("old", [("n1", "n2"), ("n3", "n4"), ("n5", "n6")])
def test_a_gang_that_is_due_gets_its_old_nodes_where_they_cost_no_more(old: tuple[str, str]) -> None:
    """Six nodes of unprotected work, any two of which are as cheap to clear as any other."""
    others = [running(f"w{i}", "b", {f"n{i}": 1}, protected_until=NOW - HOUR) for i in range(1, 7)]
    work = replace(came_back(job("g", gpus=16), *old), entitled_since=NOW - HOUR)
    held = Reservation(
        workload="g", pool="h100", domain=("c",), nodes=2, start=NOW, eligible_since=NOW - HOUR, bound=NOW + 9 * HOUR
    )  # fmt: skip
    snap = snapshot(nodes(6), [budget("a"), budget("b", 9)], [*others, work], reservations=(held,))
    assert decide(snap, "greedy")["g"] == set(old)


# --- whatever happens --------------------------------------------------------------------------------------------------


def requeued(seed: int) -> Snapshot:
    """A tiny snapshot in which much has been stopped: a node has died, another drains, and some work waits again."""
    rng = Random(seed)
    snap = tiny_snapshot(seed)
    works = [_perhaps_stopped(rng, work) for work in snap.workloads]
    machines = list(snap.cluster.nodes)
    for state in (NodeState.DOWN, NodeState.DRAIN):
        at = rng.randrange(len(machines))
        if rng.random() < 0.4:
            machines[at] = replace(machines[at], state=state)
    return replace(snap, workloads=tuple(works), cluster=replace(snap.cluster, nodes=tuple(machines))).canonical()


def _perhaps_stopped(rng: Random, work: Workload) -> Workload:
    run = work.run
    if run is None or run.start_time is None or rng.random() < 0.3:
        return work
    pool = "b" if run.placement.keys() & {"n1", "n3"} and rng.random() < 0.5 else "a"
    at = tiny.NOW - rng.choice([0, 60, HOUR])
    stop = LastStop(at=at, pool=pool, gpus=work.gpus, charged=run.charged, placement=dict(run.placement))
    return replace(work, run=None, stopped=stop, preempted=work.preempted + 1)


@pytest.mark.parametrize("engine", FEW)
@pytest.mark.parametrize("seeds", chunks(usual=30, long=6000, size=30 if not FUZZ else 500))
def test_coming_home_breaks_no_rule_and_costs_nothing(seeds: range, engine: str) -> None:
    """And the order of lists does not matter."""
    for seed in seeds:
        snap = requeued(seed)
        answer = allocate(snap, engine=engine, time_limit=LIMIT)
        assert answer.solver.notes == (), seed
        assert [str(one) for one in verify(snap, answer).violations] == [], seed
        other = allocate(shuffle(snap), engine=engine, time_limit=LIMIT)
        assert encode_decision(replace(other, timing={})) == encode_decision(replace(answer, timing={})), seed


@pytest.mark.parametrize("seeds", chunks(usual=30, long=6000, size=30 if not FUZZ else 500))
def test_memories_do_not_change_the_score(seeds: range) -> None:
    """Without its old places a snapshot is decided at no lower score: the way home is free, and may even open a better one."""
    for seed in seeds:
        snap = requeued(seed)
        kept = [work for work in snap.workloads if work.stopped is None or work.stopped.at < snap.now]
        snap = replace(snap, workloads=tuple(kept))
        blank = [
            replace(work, stopped=replace(work.stopped, placement=None)) if work.stopped else work for work in snap.workloads
        ]
        score = allocate(snap, engine="greedy", time_limit=LIMIT).solver.objective
        assert score <= allocate(replace(snap, workloads=tuple(blank)), engine="greedy", time_limit=LIMIT).solver.objective, (
            seed
        )
