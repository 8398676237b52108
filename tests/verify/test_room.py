"""Who could still start: against brute force on tiny clusters, and kept up to date step by step."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product
from random import Random
from typing import Any

import numpy as np
import pytest

from allocator.domain import Snapshot, Unfunded
from allocator.entitlement import entitle
from allocator.topology import IntArray, can_place, eligible, shape_of, tasks_per_node
from allocator.verify import (
    Mode,
    Opening,
    Placed,
    Refusal,
    Room,
    build_after,
    could_start,
    could_start_over_unallocated,
    free_after,
)
from tests.builders import HOUR, NOW, budget, job, lane, node, nodes, running, snapshot, used
from tests.engines.tiny import tiny_snapshot

AB = [budget("a"), budget("b")]


def kept(snap: Snapshot) -> Room:
    """The room that is left if only forced stops are made."""
    ent = entitle(snap)
    return Room(build_after(ent, np.flatnonzero(ent.works.forced).tolist(), {}, []))


def row_of(room: Room, workload: str) -> int:
    return [work.id for work in room.ent.snapshot.workloads].index(workload)


def ask(snap: Snapshot, workload: str) -> Opening | Refusal:
    room = kept(snap)
    return could_start(room, row_of(room, workload))


def test_free_after_is_what_no_task_uses() -> None:
    snap = snapshot(nodes(2, cpus=64), AB, [running("old", "a", {"n1": 1}, 4, cpus_per_task=10), job("w", gpus=2)])
    ent = entitle(snap)
    after = build_after(ent, [], {1: Placed({1: 1}, charged=True)}, [])
    assert free_after(after)[:2].tolist() == [[4, 6], [54, 64]]


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"allocation": "limited"}, "gpu_limit"),
        ({"allocation": "broke", "unfunded": Unfunded.WAIT}, "funding"),
        ({"gpus": 24}, "capacity"),
    ],
)
def test_a_refusal_names_the_rule(fields: dict[str, object], rule: str) -> None:
    machines = [*nodes(2), node("n3"), node("n4")]
    budgets = [budget("a"), budget("limited", gpu_limit=4), budget("broke")]
    works = [running("old", "a", {"n1": 1, "n2": 1}, 16), job("w", **({"allocation": "a"} | fields))]  # type: ignore[arg-type]
    refusal = ask(snapshot(machines, budgets, works, usage=[used("broke", 5000)], reserve_from=2), "w")
    assert isinstance(refusal, Refusal)
    assert refusal.rule == rule


def test_a_refusal_of_the_lane() -> None:
    works = [job(f"w{number}", gpus=8, min_runtime=600, user="u1", pools=("h100",)) for number in range(2)]
    room = kept(snapshot(nodes(40), AB, works, express=lane(per_user=1)))
    assert room.ent.works.express.tolist() == [True, False]
    first = could_start(room, 0)
    assert isinstance(first, Opening)
    assert first.mode is Mode.EXPRESS
    room.start(0, first.placement, first.mode)
    second = could_start(room, 1)
    assert isinstance(second, Opening)
    assert second.mode is Mode.CHARGED


def test_pools_are_tried_in_the_order_of_the_workload() -> None:
    machines = [*nodes(1), *nodes(1, prefix="b", pool="b200")]
    for pools in (("h100", "b200"), ("b200", "h100")):
        opening = ask(snapshot(machines, AB, [job("w", pools=pools)]), "w")
        assert isinstance(opening, Opening)
        assert ("b200", "h100")[opening.pool] == pools[0]


def test_what_idles_least_stops() -> None:
    # n1: a gang of two nodes; n2 and n3: two halves each, of which one is enough on n3, where the other half is free.
    works = [
        running("wide", "a", {"n1": 1, "n4": 1}, 16, charged=False, min_runtime=0),
        running("half1", "a", {"n2": 1}, 4, charged=False, min_runtime=0),
        running("half2", "a", {"n2": 1}, 4, charged=False, min_runtime=0),
        running("half3", "a", {"n3": 1}, 4, charged=False, min_runtime=0),
        job("new", "b"),
    ]
    room = kept(snapshot(nodes(4), AB, works))
    opening = could_start_over_unallocated(room, row_of(room, "new"))
    assert isinstance(opening, Opening)
    assert [room.work(row).id for row in opening.stops] == ["half3"]
    assert opening.idled == 0
    assert opening.placement == {2: 1}


def test_gangs_clear_several_nodes() -> None:
    # Rack r1 holds one wide gang, r2 a free node and three single ones: r2 idles nothing.
    works = [running("wide", "a", dict.fromkeys(("n1", "n2", "n3", "n4"), 1), 32, charged=False, min_runtime=0)]
    works += [running(f"s{n}", "a", {f"n{n}": 1}, charged=False, min_runtime=0) for n in (5, 6, 7)]
    works += [job("new", "b", 24, required="rack")]
    room = kept(snapshot(nodes(8), AB, works))
    opening = could_start_over_unallocated(room, row_of(room, "new"))
    assert isinstance(opening, Opening)
    assert (opening.idled, len(opening.stops), opening.exempt) == (0, 2, False)
    assert 7 in opening.placement


def test_segments_clear_whole_domains() -> None:
    works = [running(f"s{n}", "a", {f"n{n}": 1}, charged=False, min_runtime=0) for n in (1, 2, 3, 5, 6)]
    works += [job("new", "b", 32, segment=("rack", 2))]
    room = kept(snapshot(nodes(6, per_rack=2), AB, works))
    opening = could_start_over_unallocated(room, row_of(room, "new"))
    assert isinstance(opening, Opening)
    racks = [node // 2 for node in opening.placement]
    assert all(racks.count(rack) == 2 for rack in racks)
    assert len(opening.stops) in (3, 4)


def best_idled(room: Room, row: int) -> int | None:
    """The fewest idled GPUs over all stops and all placements; None if there is none."""
    work, found = room.work(row), []
    soft = sorted({row for rows in room.residents.by_node for row in rows})
    for pool, stops in product(room.pools(row), (stops for size in range(len(soft) + 1) for stops in combinations(soft, size))):
        mode = room.mode(row, pool)
        if isinstance(mode, Refusal) or mode is Mode.UNCHARGED or room.limit(row, stops):
            continue
        free = room.free.copy()
        for stop in stops:
            where, use = room.use(stop, room.placement[stop])
            free[:, where] += use
        mask = eligible(room.ent.layout, work, room.until(row, mode)) & (room.ent.layout.pool == pool)
        tasks = np.where(mask, tasks_per_node(np.maximum(free, 0), shape_of(work)), 0)
        gpus = sum(int(room.ent.works.gpus[stop]) for stop in stops)
        for placed in _placements(room, row, tasks):
            used = np.maximum(0, placed * work.gpus_per_task - np.maximum(room.free[0], 0)).sum()
            found.append(gpus - int(used))
    return min(found, default=None)


def _placements(room: Room, row: int, tasks: IntArray) -> Iterator[IntArray]:
    work = room.work(row)
    for counts in product(*(range(most + 1) for most in tasks.tolist())):
        placed = np.array(counts, dtype=np.int64)
        if placed.sum() == work.tasks and can_place(room.ent.layout, work, placed):
            yield placed


def test_brute_force_finds_nothing_else() -> None:
    """Whether an entitled workload could start, and whether it is exempt, is what exhaustive search says."""
    compared = 0
    for seed in range(150):
        room = kept(tiny_snapshot(seed))
        works = room.ent.works
        for row in np.flatnonzero(works.candidate & works.entitled).tolist():
            if row in room.placement:
                continue
            opening, idled = could_start_over_unallocated(room, row), best_idled(room, row)
            compared += 1
            if idled is None:
                assert isinstance(opening, Refusal), (seed, row)
            else:
                assert isinstance(opening, Opening), (seed, row)
                assert opening.idled >= idled
                assert opening.exempt == (idled > opening.gpus), (seed, row)
    assert compared > 100


@pytest.mark.parametrize("seed", range(20))
def test_room_is_the_same_step_by_step(seed: int) -> None:
    rng, snap = Random(seed), tiny_snapshot(seed)
    ent = entitle(snap)
    stops, starts = set(np.flatnonzero(ent.works.forced).tolist()), dict[int, Placed]()
    room = Room(build_after(ent, stops, starts, []))
    for _ in range(8):
        _step(rng, room, stops, starts)
        fresh = Room(build_after(ent, stops, starts, []))
        for name in ("free", "reach", "left", "held"):
            assert (getattr(room, name) == getattr(fresh, name)).all(), name
        assert room.residents.by_node == fresh.residents.by_node
        assert (room.modes, room.lane.gpus, room.lane.users) == (fresh.modes, fresh.lane.gpus, fresh.lane.users)
        for row in np.flatnonzero(ent.works.candidate).tolist():
            assert could_start(room, row) == could_start(fresh, row)
            assert could_start_over_unallocated(room, row) == could_start_over_unallocated(fresh, row)


def _step(rng: Random, room: Room, stops: set[int], starts: dict[int, Placed]) -> None:
    """Start something that could start, or stop something."""
    works = room.ent.works
    waiting = [row for row in np.flatnonzero(works.candidate).tolist() if row not in room.placement]
    if waiting and rng.random() < 0.6:
        row = rng.choice(waiting)
        opening = could_start(room, row)
        if isinstance(opening, Opening):
            room.start(row, opening.placement, opening.mode)
            starts[row] = Placed(opening.placement, opening.mode is not Mode.UNCHARGED, opening.mode is Mode.EXPRESS)
        return
    stoppable = [row for row in room.placement if row in starts or works.stoppable[row]]
    if stoppable:
        row = rng.choice(stoppable)
        room.stop(row, refund=row in starts)
        if starts.pop(row, None) is None:
            stops.add(row)


def test_promotions_leave_the_unallocated() -> None:
    works = [running("old", "a", {"n1": 1}, charged=False), job("new", "b")]
    snap = snapshot(nodes(1), AB, works)
    ent = entitle(snap)
    room = Room(build_after(ent, [], {}, []))
    row = row_of(room, "old")
    assert isinstance(could_start_over_unallocated(room, row_of(room, "new")), Opening)
    room.promote(row)
    fresh = Room(build_after(ent, [], {}, [row]))
    assert (room.left == fresh.left).all()
    assert (room.reach == fresh.reach).all()
    assert room.modes == fresh.modes
    assert isinstance(could_start_over_unallocated(room, row_of(room, "new")), Refusal)


def test_promises_of_waiting_work_decide_its_nodes() -> None:
    machines = [node("n1", drain_deadline=NOW + HOUR), node("n2", drain_deadline=NOW + 3 * HOUR)]
    opening = ask(snapshot(machines, AB, [job("w")]), "w")
    assert isinstance(opening, Opening)
    assert opening.placement == {1: 1}


def crowd(seed: int) -> Snapshot:
    """Sixteen nodes in four racks, most of them under unallocated work of all sizes; gangs of `b` are entitled to them."""
    rng = Random(seed)
    free = {f"n{number + 1}": 8 for number in range(16)}
    works = []
    for number in range(rng.randint(5, 40)):
        per_task, tasks = rng.choice([1, 2, 3, 4, 8, 8]), rng.choice([1, 1, 1, 2, 3, 5])
        fitting = [name for name, gpus in free.items() if gpus >= per_task]
        if len(fitting) >= tasks:
            placement = dict.fromkeys(rng.sample(fitting, tasks), 1)
            for name in placement:
                free[name] -= per_task
            shape: dict[str, int] = {"gpus": tasks * per_task, "tasks": tasks, "gpus_per_task": per_task, "min_runtime": 0}
            works.append(running(f"old{number}", "a", placement, charged=False, **shape))
    wishes: list[dict[str, Any]] = [{}, {"required": "rack"}, {"segment": ("rack", 2)}, {"required": "node"}]
    for number, wish in enumerate(wishes):
        per_task = 2 if wish.get("required") == "node" else rng.choice([2, 3, 4, 8])
        tasks = rng.randint(1, 4 if wish.get("required") else 12)
        works.append(job(f"new{number}", "b", tasks * per_task, tasks=tasks, gpus_per_task=per_task, **wish))
    return snapshot(nodes(16), AB, works)


@pytest.mark.parametrize("seed", range(40))
def test_stops_make_room_and_none_is_needless(seed: int) -> None:
    room = kept(crowd(seed))
    layout, works = room.ent.layout, room.ent.works
    for row in np.flatnonzero(works.entitled & works.candidate).tolist():
        work, opening = room.work(row), could_start_over_unallocated(room, row)
        everything = np.where(eligible(layout, work), tasks_per_node(room.reach, shape_of(work)), 0)
        assert isinstance(opening, Opening) == can_place(layout, work, everything)
        if isinstance(opening, Refusal):
            continue
        free = room.free.copy()
        for stop in opening.stops:
            where, use = room.use(stop, room.placement[stop])
            free[:, where] += use
        placed = np.zeros(len(layout.names), dtype=np.int64)
        placed[list(opening.placement)] = list(opening.placement.values())
        assert placed.sum() == work.tasks
        assert can_place(layout, work, placed)
        spare = free[0] - placed * work.gpus_per_task
        assert (spare >= 0).all()
        gpus = sum(int(works.gpus[stop]) for stop in opening.stops)
        assert opening.idled == gpus - int(np.maximum(0, placed * work.gpus_per_task - room.free[0]).sum())
        for stop in opening.stops:
            where, use = room.use(stop, room.placement[stop])
            assert (use[0] > spare[where]).any(), "could be taken back"


def test_nodes_with_very_many_kinds_of_work() -> None:
    # Nine residents of nine kinds: too many combinations, so they go one more at a time, the smallest first.
    works = [running(f"old{n}", "a", {"n1": 1}, 1, charged=False, min_runtime=0, cpus_per_task=n + 1) for n in range(9)]
    room = kept(snapshot([node("n1", gpus=9, cpus=64)], AB, [*works, job("new", "b", 4)]))
    opening = could_start_over_unallocated(room, row_of(room, "new"))
    assert isinstance(opening, Opening)
    assert (len(opening.stops), opening.idled) == (4, 0)
