"""Where greedy puts an offer: the tightest node, the tightest domain, whole segments; and nowhere only if nothing fits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from allocator.domain import Snapshot
from allocator.engine.plan import Plan, after_plan
from allocator.entitlement import entitle
from allocator.epoch import EpochSolution, compile_epoch
from allocator.models.greedy.placement import place
from allocator.models.greedy.variables import State, Tables, units_that_fit
from allocator.topology import can_place, eligible, shape_of, tasks_per_node
from tests.builders import HOUR, NOW, budget, job, node, nodes, running, snapshot
from tests.engines.layout import check_layout, check_placement
from tests.engines.mixes import mixed_snapshot
from tests.engines.seeds import FUZZ, chunks

AB = [budget("a"), budget("b")]


def state_of(snap: Snapshot) -> State:
    problem = compile_epoch(entitle(snap), all_offers=True)
    return State(problem, Tables(problem))


def placed(snap: Snapshot, name: str) -> dict[str, int] | None:
    """The nodes that the first offer of a workload gets while nothing has been decided."""
    state, names = state_of(snap), [row.name for row in snap.cluster.nodes]
    j = next(j for j, work in enumerate(state.tables.work) if state.problem.names[work] == name)
    found = place(state, j)
    return None if found is None else {names[n]: units for n, units in sorted(found.items())}


def held(name: str, placement: dict[str, int], gpus: int, **fields: Any) -> Any:
    """Work that runs for another hour under its promise."""
    return running(name, "b", placement, gpus, since=NOW - HOUR, protected_until=NOW + HOUR, **fields)


def test_one_task_takes_the_tightest_node() -> None:
    """5, 3 and 8 GPUs are free: three fit 3, four fit 5, six need the free node."""
    old = [held("old1", {"n1": 1}, 3), held("old2", {"n2": 1}, 5)]
    for gpus, where in ((3, "n2"), (4, "n1"), (6, "n3")):
        assert placed(snapshot(nodes(3), AB, [*old, job("new", gpus=gpus)]), "new") == {where: 1}
    assert placed(snapshot(nodes(2), AB, [*old, job("new", gpus=6)]), "new") is None


def test_among_equals_a_node_that_is_broken_up_already() -> None:
    """Both nodes have 4 GPUs free; one of them is a node of 4 that was wholly free."""
    machines = [node("n1", gpus=4), node("n2")]
    assert placed(snapshot(machines, AB, [held("old", {"n2": 1}, 4), job("new", gpus=2)]), "new") == {"n2": 1}


@pytest.mark.parametrize("resource", ["cpus", "memory_gib"])
def test_a_node_without_cpus_or_memory_is_passed_over(resource: str) -> None:
    need: dict[str, Any] = {f"{resource}_per_task": 8}
    room: dict[str, Any] = {resource: 4}
    tight, roomy = node("n1", gpus=2, **room), node("n2")
    assert placed(snapshot([tight, roomy], AB, [job("new", gpus=2, **need)]), "new") == {"n2": 1}
    assert placed(snapshot([tight, roomy], AB, [job("new", gpus=2)]), "new") == {"n1": 1}


def test_only_eligible_nodes() -> None:
    machines = [node("n1", gpus=2), node("n2", labels={"arch": "x"}), node("n3", drain_deadline=NOW + HOUR, gpus=3)]
    for fields, where in (
        ({}, "n1"),
        ({"exclude_nodes": ("n1",)}, "n2"),
        ({"node_labels": {"arch": "x"}}, "n2"),
        ({"exclude_nodes": ("n1",), "min_runtime": 0}, "n3"),
    ):
        options: dict[str, Any] = dict(fields)
        assert placed(snapshot(machines, AB, [job("new", gpus=2, **options)]), "new") == {where: 1}


def test_a_gang_takes_the_tightest_rack() -> None:
    """Three free nodes in the first rack, two in the second: a gang of two takes the second, one of three the first."""
    machines = [node(f"n{i}", "r1" if i < 4 else "r2") for i in range(1, 6)]
    assert placed(snapshot(machines, AB, [job("gang", gpus=16)]), "gang") == {"n4": 1, "n5": 1}
    assert placed(snapshot(machines, AB, [job("gang", gpus=24)]), "gang") == {"n1": 1, "n2": 1, "n3": 1}


def test_a_gang_too_large_for_a_rack_takes_the_roomiest_first() -> None:
    """Four of five nodes: all three of the first rack and one of the second. In one rack there is no room for it."""
    machines = [node(f"n{i}", "r1" if i < 4 else "r2") for i in range(1, 6)]
    assert placed(snapshot(machines, AB, [job("gang", gpus=32)]), "gang") == {"n1": 1, "n2": 1, "n3": 1, "n4": 1}
    blocked = [held("old", {"n1": 1}, 8)]
    assert placed(snapshot(machines, AB, [*blocked, job("gang", gpus=24)]), "gang") is not None
    assert placed(snapshot(machines, AB, [*blocked, job("gang", gpus=24, required="rack")]), "gang") is None


def test_a_gang_of_small_tasks_fills_the_tightest_nodes() -> None:
    """Six single GPUs where 4, 3 and 8 are free in one rack: 3 and then 3 of the 4."""
    old = [held("old1", {"n1": 1}, 4), held("old2", {"n2": 1}, 5)]
    snap = snapshot(nodes(3), AB, [*old, job("gang", gpus=6, tasks=6, gpus_per_task=1)])
    assert placed(snap, "gang") == {"n1": 3, "n2": 3}


@pytest.mark.parametrize(
    ("free", "tasks", "expected"),
    [
        ((4, 4), 8, (4, 4)),
        ((6, 4), 8, (4, 4)),
        ((6, 2), 6, (6, 0)),
        ((5, 2), 6, (4, 2)),
        ((6, 0), 6, (6, 0)),
        ((5, 3), 7, (4, 3)),
        ((3, 3), 6, None),
        ((5, 1), 6, None),
        ((3, 3, 4), 10, None),
        ((3, 4, 4), 10, (2, 4, 4)),
        ((3, 6, 4), 10, (0, 6, 4)),
    ],
)
def test_segments(free: tuple[int, ...], tasks: int, expected: tuple[int, ...] | None) -> None:
    """Segments of four tasks; the remainder goes where a rack is used already, else where little is left over."""
    machines = [node(f"{rack}-{i}", f"r{rack}") for rack in range(len(free)) for i in range(10)]
    old = [held(f"old{rack}-{i}", {f"{rack}-{i}": 1}, 8) for rack, count in enumerate(free) for i in range(10 - count)]
    found = placed(snapshot(machines, AB, [*old, job("gang", gpus=8 * tasks, segment=("rack", 4))]), "gang")
    if expected is None:
        assert found is None
    else:
        assert found is not None
        assert tuple(sum(name.startswith(f"{rack}-") for name in found) for rack in range(len(free))) == expected


def test_segments_go_to_as_few_domains_of_every_level_as_can_be() -> None:
    """Three units of two racks of four nodes: four segments of two fit the first unit alone, two of them each of its racks."""
    levels = ("cluster", "unit", "rack", "node")
    machines = [node(f"n{i}", domains=("c", f"u{i // 8}", f"r{i // 4}")) for i in range(24)]
    old = [held("old1", {"n9": 1}, 8), held("old2", {"n18": 1}, 8)]

    def racks_of(gpus: int) -> set[int]:
        gang = job("gang", gpus=gpus, segment=("rack", 2))
        found = placed(snapshot(machines, AB, [*old, gang], levels=levels), "gang")
        assert found is not None
        return {int(name[1:]) // 4 for name in found}

    assert racks_of(64) == {0, 1}
    assert racks_of(16) == {2}  # three nodes hold one segment: that is tightest
    assert racks_of(32) == {0}
    assert len(racks_of(48)) == 2
    assert racks_of(96) == {0, 1, 3}


def test_segments_inside_a_required_domain() -> None:
    """Two racks in each of two buildings; the gang needs one building, and segments of two inside racks."""
    machines = [
        node(f"{building}{rack}{i}", domains=("c", f"b{building}", f"b{building}r{rack}"))
        for building in range(2)
        for rack in range(2)
        for i in range(3)
    ]
    levels = ("cluster", "building", "rack", "node")
    old = [held("old", {"000": 1, "001": 1}, 16)]
    gang = job("gang", gpus=32, required="building", segment=("rack", 2))
    found = placed(snapshot(machines, AB, [*old, gang], levels=levels), "gang")
    assert found is not None
    assert {name[0] for name in found} == {"1"}, "in the other building one rack has a single node left"
    assert sorted(name[:2] for name in found) == ["10", "10", "11", "11"]


@pytest.mark.parametrize("seeds", chunks(usual=60, long=6000, size=500 if FUZZ else 60))
def test_nothing_is_placed_only_where_nothing_fits(seeds: range) -> None:
    """Against the search of the verifier, for every offer while nothing has been decided."""
    outcomes = {True: 0, False: 0}
    for seed in seeds:
        snap = mixed_snapshot(seed)
        ent = entitle(snap)
        state = state_of(snap)
        after = after_plan(ent, Plan({}, frozenset(), frozenset()))
        for j in range(len(state.tables.work)):
            work = ent.snapshot.workloads[state.tables.work[j]]
            until = NOW + int(ent.works.promise[state.tables.work[j]]) if state.tables.charged[j] else None
            open_to = eligible(ent.layout, work, until) & (ent.layout.pool == state.tables.pool[j])
            fits = can_place(ent.layout, work, np.where(open_to, tasks_per_node(after.free, shape_of(work)), 0))
            found = place(state, j)
            outcomes[fits] += 1
            assert (found is not None) == fits, (seed, j)
            if found is not None:
                check_placement(state.problem, j, found)
                check_layout(state.problem, EpochSolution(starts={j: found}))
    assert min(outcomes.values()) > len(seeds) // 4, outcomes


def test_units_that_fit() -> None:
    """GPUs, CPUs and memory each set a limit; nothing fits where there is less than nothing, or where it may not lie."""
    free = np.array([[8, 8, 8, -4, 8], [64, 10, 64, 64, 64], [100, 100, 7, 100, 100]], dtype=np.int64)
    open_to = np.array([True, True, True, True, False])
    need = np.array([2, 4, 3], dtype=np.int64)
    assert units_that_fit(free, need, open_to).tolist() == [4, 2, 2, 0, 0]
    assert units_that_fit(free, np.array([2, 0, 0], dtype=np.int64), open_to).tolist() == [4, 4, 4, 0, 0]
