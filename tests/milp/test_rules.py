"""Every rule of the MILP: a solution that it allows and one that it forbids, and the reference model says the same of both."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from allocator.domain import Decision, Snapshot
from allocator.entitlement import entitle
from allocator.epoch import EpochProblem, EpochSolution, compile_epoch, value_of
from allocator.epoch.afterthoughts import claimants
from allocator.wire import load_decision, load_snapshot
from tests.builders import budget, decision, job, node, nodes, running, snapshot, start, stop, used
from tests.engines.tiny import tiny_snapshot
from tests.milp.fixing import cpsat_value, milp_value, random_solution, solution_of
from tests.verify.judge import broken

TWINS = Path(__file__).parents[2] / "instances" / "rules"

LEFT_TO_THE_LAST_PASS = {"beneficiary", "lease", "minimal", "work_conservation"}
"""Rules that exact models leave out: most of an optimum obeys them by itself."""

SETTLED_BEFORE = {"health-unprotected", "lease-limit", "reservation-due", "reservation-kept"}
"""What drains, leases and reservations ask is settled before any model is made, and no part of its answer."""

AB = [budget("a"), budget("b")]


def allowed(snap: Snapshot, answer: Decision, afterthoughts: bool = False) -> bool:
    """Whether the MILP allows a decision; checked against the reference model, and for its value."""
    ent = entitle(snap)
    problem = compile_epoch(ent)
    solution = solution_of(ent, problem, answer)
    return solution is not None and agreed(problem, solution, afterthoughts)


def agreed(problem: EpochProblem, solution: EpochSolution, afterthoughts: bool = False) -> bool:
    """Whether both models allow a solution. If they do, they agree on its value: no more than what it costs as it lies, and
    less where its counts can be laid out with fewer broken nodes."""
    claims = claimants(problem) if afterthoughts else []
    displaced = np.flatnonzero(problem.victims.charged).tolist() if afterthoughts else []
    found = milp_value(problem, solution, claims, displaced)
    reference = cpsat_value(problem, solution, claims, displaced)
    assert (found is None) == (reference is None), (found, reference)
    if found is None or reference is None:
        return False
    assert round(found) == round(reference) <= value_of(problem, solution)
    return True


@pytest.mark.parametrize(
    "folder", [own for own in sorted(TWINS.iterdir()) if own.name not in SETTLED_BEFORE], ids=lambda folder: folder.name
)
def test_published_twins(folder: Path) -> None:
    snap = load_snapshot(folder / "snapshot.json").canonical()
    accepted, refused = load_decision(folder / "accepted.json"), load_decision(folder / "refused.json")
    assert allowed(snap, accepted, afterthoughts=True)
    assert allowed(snap, refused, afterthoughts=True) == (folder.name in LEFT_TO_THE_LAST_PASS)


def test_one_offer_per_workload() -> None:
    """Eight GPUs of either pool do; both at once would run the job twice."""
    snap = snapshot([node("n1"), node("m1", pool="b200")], [budget("a")], [job("new", pools=("h100", "b200"))])
    problem = compile_epoch(entitle(snap))
    first, second = ({j: {int(np.flatnonzero(problem.node_pool == problem.offers.pool[j])[0]): 1}} for j in (0, 1))
    assert agreed(problem, EpochSolution(first))
    assert agreed(problem, EpochSolution(second))
    assert not agreed(problem, EpochSolution(first | second))


def test_capacity_counts_cpus() -> None:
    """Sixteen CPUs, and eight per job: two fit, three do not, though GPUs are left."""
    works = [job(f"new{i}", gpus=1, cpus_per_task=8) for i in range(3)]
    snap = snapshot([node("n1", cpus=16)], [budget("a")], works)
    two = [start("new0", {"n1": 1}), start("new1", {"n1": 1})]
    assert allowed(snap, decision(snap, two))
    assert not allowed(snap, decision(snap, [*two, start("new2", {"n1": 1})]))


def test_capacity_of_several_nodes_counts_whole_places() -> None:
    """Two empty nodes are one class. A node has two places of 4 GPUs: 4 + 4 and 1 lie on two nodes, 8 + 4 + 4 + 1 do not."""
    works = [job("large"), job("half1", gpus=4), job("half2", gpus=4), job("one", gpus=1)]
    snap = snapshot(nodes(2), [budget("a")], works)
    halves = [start("half1", {"n1": 1}), start("half2", {"n1": 1})]
    assert len(compile_epoch(entitle(snap)).classes.size) == 1
    assert allowed(snap, decision(snap, [*halves, start("one", {"n2": 1})]))
    assert allowed(snap, decision(snap, [*halves, start("large", {"n2": 1})]))
    assert not allowed(snap, decision(snap, [*halves, start("large", {"n2": 1}), start("one", {"n2": 1})]))


def test_capacity_is_what_stops_leave() -> None:
    """The node is full: 4 GPUs of unallocated work have to leave before 4 can start."""
    works = [
        running("old", "a", {"n1": 1}, 4, charged=False, min_runtime=0),
        running("kept", "a", {"n1": 1}, 4),
        job("new", "b", 4),
    ]
    snap = snapshot(nodes(1), AB, works)
    assert allowed(snap, decision(snap, [start("new", {"n1": 1})], [stop("old", "new")]))
    assert not allowed(snap, decision(snap, [start("new", {"n1": 1})]))


@pytest.mark.parametrize(("split", "right"), [((4, 4, 2), True), ((2, 4, 4), True), ((4, 3, 3), False), ((2, 2, 6), False)])
def test_segments_leave_one_remainder(split: tuple[int, int, int], right: bool) -> None:
    """Ten tasks in segments of four: two whole ones and a remainder of two, in any order."""
    machines = [node(f"{rack}{i}", rack) for rack in ("r1", "r2", "r3") for i in range(6)]
    snap = snapshot(machines, [budget("a")], [job("gang", gpus=80, segment=("rack", 4))])
    placement = {f"r{rack + 1}{i}": 1 for rack, count in enumerate(split) for i in range(count)}
    assert allowed(snap, decision(snap, [start("gang", placement)])) == right


@pytest.mark.parametrize(("split", "right"), [((4, 4), True), ((8, 0), True), ((6, 2), False), ((5, 3), False)])
def test_segments_without_remainder(split: tuple[int, int], right: bool) -> None:
    """Eight tasks in segments of four."""
    machines = [node(f"{rack}{i}", rack) for rack in ("r1", "r2") for i in range(8)]
    snap = snapshot(machines, [budget("a")], [job("gang", gpus=64, segment=("rack", 4))])
    placement = {f"r{rack + 1}{i}": 1 for rack, count in enumerate(split) for i in range(count)}
    assert allowed(snap, decision(snap, [start("gang", placement)])) == right


def poor_a(works: list[Any], **fields: Any) -> Snapshot:
    """Two nodes; what `a` has left of its budget pays the promise of one node for two hours, and not of two."""
    snap = snapshot(nodes(2), AB, works, **fields)
    available = int(entitle(snap).market.available[entitle(snap).tree.ids.index("a"), 0])
    hours = (available - 24 * 3600) // 3600
    return snapshot(nodes(2), AB, works, usage=[used("a", hours)], **fields)


def test_funding_and_funded_is_charged() -> None:
    """Once the first job has its promise, the second runs uncharged. Both charged is too dear; uncharged alone is a sham."""
    snap = poor_a([job("one"), job("two")])
    charged, free = start("one", {"n1": 1}), start("two", {"n2": 1}, charged=False)
    assert allowed(snap, decision(snap, [charged]))
    assert allowed(snap, decision(snap, [charged, free]))
    assert not allowed(snap, decision(snap, [charged, start("two", {"n2": 1})]))
    assert not allowed(snap, decision(snap, [free]))


def test_funded_work_is_promoted() -> None:
    """Unfunded work that runs and can be paid for is promoted or stopped, unless its funds go to another."""
    snap = poor_a([running("old", "a", {"n1": 1}, charged=False), job("new")])
    assert allowed(snap, decision(snap, promotions=["old"]))
    assert not allowed(snap, decision(snap))
    assert allowed(snap, decision(snap, [start("new", {"n2": 1})]))
    assert allowed(snap, decision(snap, [start("new", {"n1": 1})], [stop("old", "new")]))
    assert not allowed(snap, decision(snap, [start("new", {"n1": 1})], [stop("old", "new")], promotions=["old"]))


def test_gpu_limit_of_a_vertex_that_holds_too_much() -> None:
    """Sixteen GPUs are held and eight allowed: that may stay, but then nothing starts; one of two stops still is too few."""
    works = [running("old1", "a", {"n1": 1}), running("old2", "a", {"n2": 1}), job("new")]
    snap = snapshot(
        nodes(3), [budget("a", gpu_limit=8), budget("b")], [*works, job("other", "b", 8)], preempt_under_entitlement=True
    )
    new, stops = start("new", {"n3": 1}), [stop("old1", "new"), stop("old2", "new")]
    assert allowed(snap, decision(snap))
    assert allowed(snap, decision(snap, [start("other", {"n3": 1})]))
    assert not allowed(snap, decision(snap, [new]))
    assert not allowed(snap, decision(snap, [new], stops[:1]))
    assert allowed(snap, decision(snap, [new], stops))


def test_express_is_limited_by_the_lane() -> None:
    """The lane of a small pool has 8 GPUs: 4 + 4 of its own candidates. One that counts in the other pool has no room here."""
    works = [job(f"debug{i}", "a", 4, min_runtime=600, user=f"u{i}", pools=("h100",)) for i in range(2)]
    works.append(job("guest", "a", 4, min_runtime=600, user="u3", pools=("b200", "h100")))
    snap = snapshot([*nodes(2), node("m1", pool="b200")], [budget("a")], works)
    two = [start("debug0", {"n1": 1}), start("debug1", {"n1": 1})]
    assert allowed(snap, decision(snap, [*two, start("guest", {"m1": 1})]))
    assert allowed(snap, decision(snap, [two[0], start("guest", {"n2": 1})]))
    assert not allowed(snap, decision(snap, [*two, start("guest", {"n2": 1})]))


def test_licence_by_need_of_express() -> None:
    """`a` holds no more than its part, so its job stops only where an express start does not fit beside it."""
    works = [
        running("old", "a", {"n1": 1}, 6),
        job("debug", "b", 4, min_runtime=600, user="u"),
        job("tiny", "b", 1, min_runtime=600, user="u"),
    ]
    snap = snapshot(nodes(1), [budget("a", 9), budget("b")], works, usage=[used("b", 20)])
    assert allowed(snap, decision(snap, [start("debug", {"n1": 1})], [stop("old", "debug")]))
    assert allowed(snap, decision(snap, [start("tiny", {"n1": 1})]))
    assert not allowed(snap, decision(snap, [start("tiny", {"n1": 1})], [stop("old", "tiny")]))
    assert not allowed(snap, decision(snap, [], [stop("old")]))


def test_charged_first_looks_at_one_node() -> None:
    """Six GPUs have to start on a node with two unallocated and four charged: both leave. For two the charged ones stay."""
    works = [
        running("free", "a", {"n1": 1}, 2, charged=False, min_runtime=0), running("paid", "a", {"n1": 1}, 4),
        job("six", "b", 6), job("two", "b", 2), job("four", "b", 4),
    ]  # fmt: skip
    snap = snapshot(nodes(1), AB, works, preempt_under_entitlement=True)
    both = [stop("free", "six"), stop("paid", "six")]
    assert allowed(snap, decision(snap, [start("six", {"n1": 1})], both), afterthoughts=True)
    assert allowed(snap, decision(snap, [start("four", {"n1": 1})], both[:1]), afterthoughts=True)
    assert not allowed(snap, decision(snap, [start("four", {"n1": 1})], both[1:]), afterthoughts=True)
    assert not allowed(snap, decision(snap, [start("two", {"n1": 1})], both[1:]), afterthoughts=True)


def test_unallocated_last() -> None:
    """Entitled work may wait beside charged work, not behind unallocated work, unless its funds are spent elsewhere."""
    free = running("free", "b", {"n1": 1}, charged=False, min_runtime=0)
    snap = snapshot(nodes(1), AB, [free, job("new")])
    assert allowed(snap, decision(snap, [start("new", {"n1": 1})], [stop("free", "new")]), afterthoughts=True)
    assert not allowed(snap, decision(snap), afterthoughts=True)
    paid = snapshot(nodes(1), AB, [running("paid", "b", {"n1": 1}), job("new")])
    assert allowed(paid, decision(paid), afterthoughts=True)
    poor = poor_a([free, job("new"), job("rival")])
    assert allowed(poor, decision(poor, [start("rival", {"n2": 1})]), afterthoughts=True)


@pytest.mark.parametrize(("owed", "on", "gives_way"), [(4, 1, True), (3, 1, False), (8, 2, True), (4, 2, False), (8, 3, False)])
def test_unallocated_last_where_no_more_can_idle_than_starts(owed: int, on: int, gives_way: bool) -> None:
    """Work on whole nodes gives way to half a node if it lies on one, and to a whole one if it lies on two."""
    free = running("free", "b", {f"n{i + 1}": 1 for i in range(on)}, 8 * on, charged=False, min_runtime=0)
    snap = snapshot(nodes(on), AB, [free, job("new", gpus=owed)])
    assert allowed(snap, decision(snap, [start("new", {"n1": 1})], [stop("free", "new")]), afterthoughts=True)
    assert allowed(snap, decision(snap), afterthoughts=True) == (not gives_way)
    assert ("unallocated_last" in broken(snap, decision(snap))) == gives_way


@pytest.mark.parametrize("seed", range(8))
def test_both_models_allow_the_same(seed: int) -> None:
    """Whatever is drawn at random: the rows say of it what the rules of the reference model say."""
    rng, right = Random(seed), 0
    for number in range(5):
        problem = compile_epoch(entitle(tiny_snapshot(100 * seed + number)))
        right += sum(agreed(problem, random_solution(problem, rng), bool(n % 2)) for n in range(10))
    assert right
