"""The reference model, rule by rule: what it allows, what it forbids, and the optimum worked out by hand.

The epochs are small enough to be checked with a pencil. Weights are 0 but for idle GPUs unless a test says otherwise: one GPU
that stays idle costs a planning step, 3,600,000 (1/1000 GPU-second). Values are relative to doing nothing.
"""

from __future__ import annotations

from typing import Any

import pytest

from allocator.domain import Snapshot, Unfunded
from allocator.entitlement.alike import start_classes
from allocator.models.cpsat import solver as cpsat
from allocator.models.cpsat.objective import LARGEST
from allocator.models.protocol import Limits, Status
from tests.builders import HOUR, NOW, budget, job, node, nodes, running, snapshot, stopped, used, weights
from tests.engines.epoch import Epoch

GPU = 3_600_000
"""What one GPU that stays idle for a planning step costs."""

AB = [budget("a"), budget("b")]

ONLY_IDLE: dict[str, Any] = {
    "unfairness": 0,
    "express": 0,
    "idle": 1,
    "lost_work": 0,
    "spread": 0,
    "fragmentation": 0,
    "order": 0,
}


def epoch(machines: Any, budgets: Any, works: Any, priced: dict[str, Any] | None = None, **fields: Any) -> Epoch:
    """An epoch in which only idle GPUs cost, and what is priced on top."""
    return Epoch(snapshot(machines, budgets, works, weights=weights(**(ONLY_IDLE | (priced or {}))), **fields))


def held(name: str, placement: dict[str, int], gpus: int = 8, **fields: Any) -> Any:
    """Work that runs for another hour under its promise."""
    return running(name, "b", placement, gpus, since=NOW - HOUR, protected_until=NOW + HOUR, **fields)


def test_one_offer_per_workload() -> None:
    """Either pool saves the idle time of 8 GPUs; both at once would run the job twice."""
    two_pools = epoch([node("n1"), node("m1", pool="b200")], [budget("a")], [job("new", pools=("h100", "b200"))])
    assert two_pools.value(["new@h100"]) == two_pools.value(["new@b200"]) == -8 * GPU
    assert two_pools.value(["new@h100", "new@b200"]) is None
    assert two_pools.best().value == -8 * GPU


def test_gang() -> None:
    """Two tasks of 8 GPUs: on two nodes all of it runs, beside a node that is held nothing of it."""
    gang = [job("gang", gpus=16)]
    assert epoch(nodes(2), AB, gang).value(["gang"]) == -16 * GPU
    held_back = epoch(nodes(2), AB, [*gang, held("old", {"n1": 1})])
    assert held_back.value(["gang"]) is None
    assert held_back.best().value == 0


def test_topology() -> None:
    """One node of each rack is free: they hold the gang unless it has to lie in one rack."""
    blocked = [held(f"old{i}", {f"{i}-0": 1}) for i in range(2)]
    assert epoch(racks(2, 2), AB, [*blocked, job("gang", gpus=16)]).value(["gang"]) == -16 * GPU
    assert epoch(racks(2, 2), AB, [*blocked, job("gang", gpus=16, required="rack")]).value(["gang"]) is None
    assert epoch(racks(2, 3), AB, [*blocked, job("gang", gpus=16, required="rack")]).value(["gang"]) == -16 * GPU


@pytest.mark.parametrize(("tasks", "fits"), [(1, True), (2, True), (4, True), (8, True), (9, False)])
def test_topology_of_a_single_node(tasks: int, fits: bool) -> None:
    """All tasks of one GPU on one node of 8; a ninth would need another node, and there the gang is never placed."""
    gang = epoch(nodes(2), AB, [job("gang", gpus=tasks, gpus_per_task=1, required="node")])
    if fits:
        assert gang.value(["gang"]) == -tasks * GPU
    else:
        assert len(gang.problem.offers.work) == 0


@pytest.mark.parametrize(
    ("free", "fits"), [((4, 2), True), ((6, 0), True), ((5, 1), False), ((3, 3), False), ((5, 2), True), ((2, 2, 2), False)]
)
def test_segment(free: tuple[int, ...], fits: bool) -> None:
    """Six tasks in segments of four: a rack with four, and one with the two that remain. Each rack has six nodes, some held."""
    blocked = [held(f"old{rack}-{i}", {f"{rack}-{i}": 1}) for rack, count in enumerate(free) for i in range(6 - count)]
    gang = epoch(racks(*[6] * len(free)), AB, [*blocked, job("gang", gpus=48, segment=("rack", 4))])
    assert gang.value(["gang"]) == (-48 * GPU if fits else None)


def racks(*sizes: int) -> list[Any]:
    """Racks r0, r1, ... with so many nodes."""
    return [node(f"{rack}-{i}", f"r{rack}") for rack, size in enumerate(sizes) for i in range(size)]


def test_placement() -> None:
    """A rack holds one gang of two nodes each: two gangs fit two racks of three, although three would by number."""
    gangs = [job(f"gang{i}", gpus=16, required="rack") for i in range(3)]
    three = epoch(racks(3, 3), AB, gangs)
    assert three.value(["gang0", "gang2"]) == -32 * GPU
    assert three.value(["gang0", "gang1", "gang2"]) is None
    assert three.best().value == -32 * GPU


def test_placement_beside_single_tasks() -> None:
    """The gang and the single jobs have the same shape; together they need three nodes in one rack."""
    works = [job("gang", gpus=16, required="rack"), job("one"), job("two")]
    assert epoch(racks(2, 2), AB, works).value(["gang", "one", "two"]) == -32 * GPU
    assert epoch(racks(3, 1), AB, works).value(["gang", "one", "two"]) == -32 * GPU
    assert epoch(racks(2, 1), AB, works).value(["gang", "one", "two"]) is None


@pytest.mark.parametrize("resource", ["cpus", "memory_gib"])
def test_capacity_of_a_node(resource: str) -> None:
    """Two tasks of one GPU take all that the node has of the other resource; a third finds 6 GPUs and nothing else."""
    need: dict[str, Any] = {f"{resource}_per_task": 8}
    room: dict[str, Any] = {resource: 16}
    bound = epoch([node("n1", **room)], AB, [job(f"new{i}", gpus=1, **need) for i in range(3)])
    assert bound.value(["new0", "new1"]) == -2 * GPU
    assert bound.value(["new0", "new1", "new2"]) is None
    assert bound.best().value == -2 * GPU


def test_capacity_of_several_nodes() -> None:
    """Three empty nodes are one class, 24 GPUs: 8 + 3 x 4 + 2 x 2 fill them, and so do 2 x 8 + 2 x 4; 2 more do not fit."""
    works = [job(f"eight{i}", gpus=8) for i in range(2)] + [job(f"four{i}", gpus=4) for i in range(3)]
    works += [job(f"two{i}", gpus=2) for i in range(2)]
    mixed = epoch(nodes(3), AB, works)
    assert len(mixed.problem.classes.size) == 1
    assert mixed.value(["eight0", "four0", "four1", "four2", "two0", "two1"]) == -24 * GPU
    assert mixed.value(["eight0", "eight1", "four0", "four1"]) == -24 * GPU
    assert mixed.value(["eight0", "eight1", "four0", "four1", "two0"]) is None
    assert mixed.best().value == -24 * GPU


def test_capacity_of_several_nodes_that_are_held_in_part() -> None:
    """Two nodes with 5 GPUs left are one class. 10 GPUs are free, but 2 + 2 is all that a node has room for."""
    old = held("old", {"n1": 1, "n2": 1}, gpus=6, tasks=2, gpus_per_task=3)
    works = [job(f"two{i}", gpus=2) for i in range(3)] + [job(f"free{i}", gpus=2, min_runtime=0) for i in range(2)]
    parts = epoch(nodes(2), AB, [old, *works])
    assert parts.problem.classes.size.tolist() == [2]
    assert parts.value(["two0", "two1", "free:free0", "free:free1"]) == -8 * GPU
    assert parts.value(["two0", "two1", "two2", "free:free0", "free:free1"]) is None


def test_capacity_after_stops() -> None:
    """Each node is full with one unallocated job of 8: every stop lets one job start, and idles nothing."""
    works = [running(f"old{i}", "a", {f"n{i}": 1}, charged=False, min_runtime=0) for i in (1, 2)]
    full = epoch(nodes(2), AB, [*works, job("new1"), job("new2")])
    assert full.value(["new1"], ["old1"]) == full.value(["new1"], ["old2"]) == 0
    assert full.value(["new1", "new2"], ["old1", "old2"]) == 0
    assert full.value(["new1", "new2"], ["old1"]) is None
    assert full.value([], ["old1"]) == 8 * GPU


def test_eligibility_and_health() -> None:
    """A charged job of two hours must not start on a node that is drained in one; work without a promise may."""
    machines = [node("n1", drain_deadline=NOW + HOUR)]
    works = [job("promised"), job("free", min_runtime=0), job("elsewhere", exclude_nodes=("n1",))]
    drained = epoch(machines, AB, works)
    assert drained.value(["free:free"]) == -8 * GPU
    assert {drained.problem.names[row] for row in drained.problem.offers.work} == {"free"}


def poor(works: list[Any], machines: int = 2, **fields: Any) -> Epoch:
    """Whatever `a` has left pays for 8 GPUs of two hours, and not for 16."""
    plain = epoch(nodes(machines), AB, works)
    left = int(plain.ent.market.available[plain.ent.tree.ids.index("a"), 0])
    return epoch(nodes(machines), AB, works, usage=[used("a", (left - 24 * HOUR) // HOUR)], **fields)


def test_funding() -> None:
    """Two jobs of 16 GPU-hours and 24 left: one is charged, not both."""
    works = [job("one", unfunded=Unfunded.WAIT), job("two", unfunded=Unfunded.WAIT)]
    both = poor(works)
    assert both.value(["one"]) == both.value(["two"]) == -8 * GPU
    assert both.value(["one", "two"]) is None
    assert both.best().value == -8 * GPU


def test_funding_of_a_promotion() -> None:
    """`old` runs on unfunded: its promotion and the start draw on the same 24 GPU-hours, and one of them is enough."""
    works = [running("old", "a", {"n1": 1}, charged=False), job("new", unfunded=Unfunded.WAIT)]
    both = poor(works)
    assert both.value([], [], ["old"]) == 0
    assert both.value(["new"]) == -8 * GPU
    assert both.value(["new"], [], ["old"]) is None


def test_funded_work_is_charged() -> None:
    """Uncharged is right only for what the decision leaves no funds for."""
    both = poor([job("one"), job("two")])
    assert both.value(["one", "free:two"]) == both.value(["free:one", "two"]) == -16 * GPU
    assert both.value(["free:one"]) is both.value(["free:one", "free:two"]) is None


def test_funded_work_is_promoted() -> None:
    """`old` could be funded: it is promoted, or stopped, or its funds go to `new`. It cannot just run on."""
    works = [running("old", "a", {"n1": 1}, charged=False), job("new")]
    both = poor(works)
    assert both.value() is None
    assert both.value([], [], ["old"]) == 0
    assert both.value(["new"]) == -8 * GPU
    assert both.value(["new"], ["old"]) == 0
    assert both.value(["new"], ["old"], ["old"]) is None


def test_assured_work_asks_for_no_funds() -> None:
    """Stopped eight times: charged beside whatever the funds pay for, in no other way, and promoted where it runs uncharged."""
    often = job("often", preempted=8, unfunded=Unfunded.WAIT)
    three = poor([often, job("free", preempted=8, min_runtime=0), job("new", unfunded=Unfunded.WAIT)], 3)
    assert three.value(["often", "free", "new"]) == -24 * GPU
    assert three.problem.offers.charged.all()
    works = [running("often", "a", {"n1": 1}, charged=False, preempted=8), job("new", unfunded=Unfunded.WAIT)]
    both = poor(works)
    assert both.value(["new"]) is None
    assert both.value(["new"], [], ["often"]) == -8 * GPU


@pytest.mark.parametrize("often", ["first", "second"])
def test_assured_work_is_told_from_work_with_the_same_promise(often: str) -> None:
    """Both are promised two hours: one draws on funds, the other does not, whichever of them is looked at first."""
    kinds: dict[str, dict[str, Any]] = {name: {"unfunded": Unfunded.WAIT} for name in ("first", "second")}
    kinds[often] |= {"preempted": 8, "max_runtime": 2 * HOUR}
    both = poor([job(name, **fields) for name, fields in kinds.items()])
    assert both.ent.works.promise.tolist() == [2 * HOUR, 2 * HOUR]
    assert len(set(start_classes(both.ent).tolist())) == 2
    costs = {name: int(both.problem.offers.promise_cost[both.offer(name)]) for name in kinds}
    assert costs == {name: 0 if name == often else 16 * HOUR for name in kinds}
    assert both.value(["first", "second"]) == -16 * GPU


def test_gpu_limit() -> None:
    """12 GPUs at most: 8 + 4 run, 8 + 8 do not."""
    works = [job("eight"), job("other", gpus=8), job("four", gpus=4)]
    limited = epoch(nodes(3), [budget("a", gpu_limit=12), budget("b")], works)
    assert limited.value(["eight", "four"]) == -12 * GPU
    assert limited.value(["eight", "other"]) is None
    assert limited.best().value == -12 * GPU


def test_gpu_limit_that_is_exceeded_already() -> None:
    """16 GPUs run where 8 may: they stay, but nothing starts until they are 8 again."""
    works = [running(f"old{i}", "a", {f"n{i}": 1}, charged=False, min_runtime=0) for i in (1, 2)]
    limited = epoch(nodes(3), [budget("a", gpu_limit=8), budget("b")], [*works, job("new"), job("beside", "b")])
    assert limited.value() == 0
    assert limited.value(["beside"]) == -8 * GPU
    assert limited.value(["new"]) is limited.value(["new"], ["old1"]) is None
    assert limited.value(["new"], ["old1", "old2"]) == 8 * GPU


def test_express() -> None:
    """The lane of a pool this small has 8 GPUs: two of its candidates fit. The third counts in the other pool."""
    works = [job(f"debug{i}", gpus=4, min_runtime=600, user=f"u{i}", pools=("h100",)) for i in range(2)]
    works.append(job("guest", gpus=4, min_runtime=600, user="u3", pools=("b200", "h100")))
    lane = epoch([*nodes(2), node("m1", pool="b200")], [budget("a")], works)
    assert lane.value(["debug0", "debug1", "guest@b200"]) == -12 * GPU
    assert lane.value(["debug0", "guest@h100"]) == -8 * GPU
    assert lane.value(["debug0", "debug1", "guest@h100"]) is None


def licensed(**fields: Any) -> Epoch:
    """Two charged jobs that anybody may stop, and two that want their nodes."""
    works = [running(f"old{i}", "a", {f"n{i}": 1}) for i in (1, 2)]
    works += [job(f"new{i}", "b") for i in (1, 2)]
    return epoch(nodes(2), AB, works, preempt_under_entitlement=True, **fields)


def test_max_preemptions() -> None:
    """One stop of charged work is allowed."""
    assert licensed().value(["new1", "new2"], ["old1", "old2"]) == 0
    assert licensed(max_preemptions=1).value(["new1"], ["old1"]) == 0
    assert licensed(max_preemptions=1).value(["new1", "new2"], ["old1", "old2"]) is None
    assert licensed(max_preemptions=0).value(["new1"], ["old1"]) is None


def test_max_preemptions_counts_stops_of_this_instant() -> None:
    """One stop is allowed and has been made at this very instant; stops of unallocated work are not counted."""
    works = [running("old1", "a", {"n1": 1}), running("free", "a", {"n2": 1}, charged=False, min_runtime=0)]
    works += [stopped(job("gone", "a")), job("new", "b")]
    done = epoch(nodes(2), AB, works, preempt_under_entitlement=True, max_preemptions=1)
    assert done.value(["new"], ["old1"]) is None
    assert done.value(["new"], ["free"]) == 0


def test_protection() -> None:
    """Whoever holds a promise is not among those that could be stopped."""
    works = [held("old", {"n1": 1}), job("new", "a")]
    assert len(epoch(nodes(1), AB, works, preempt_under_entitlement=True).problem.victims.work) == 0


def under_entitlement(works: list[Any]) -> Epoch:
    """`a` holds 6 GPUs and is entitled to more, so that only express starts may take its place."""
    old = running("old", "a", {"n1": 1}, 6)
    return epoch(nodes(1), [budget("a", 9), budget("b")], [old, *works], usage=[used("b", 20)])


def test_licence() -> None:
    """Beside `old` two GPUs are free: 4 of the express lane need its place, 2 do not, nor does anybody else."""
    works = [job("four", "b", 4, min_runtime=600, user="u"), job("two", "b", 2, min_runtime=600, user="v")]
    lane = under_entitlement([*works, job("plain", "b", 4)])
    assert lane.value(["four"], ["old"]) == 2 * GPU
    assert lane.value(["two"]) == -2 * GPU
    assert lane.value(["two"], ["old"]) is lane.value(["plain"], ["old"]) is lane.value([], ["old"]) is None
    assert lane.value(["four", "two"], ["old"]) == 0


def test_without_express_candidates_there_are_no_victims_without_a_licence() -> None:
    assert len(under_entitlement([job("plain", "b", 4)]).problem.victims.work) == 0


def mixed_node(works: list[Any], **fields: Any) -> Epoch:
    """A full node: 4 GPUs of charged, 4 of unallocated work."""
    old = [running("paid", "a", {"n1": 1}, 4), running("free", "a", {"n1": 1}, 4, charged=False, min_runtime=0)]
    return epoch(nodes(1), [budget("a"), budget("b")], old + works, preempt_under_entitlement=True, **fields)


def test_charged_first() -> None:
    """Four GPUs are made by stopping `free`. Stopping `paid` is right for 8, and for nobody who is not charged himself."""
    full = mixed_node([job("four", "b", 4), job("eight", "b", 8), job("other", "b", 4, min_runtime=0)])
    assert full.value(["four"], ["free"], displaced=["paid"]) == 0
    assert full.value(["four"], ["paid"], displaced=["paid"]) is None
    assert full.value(["free:other"], ["paid"], displaced=["paid"]) is None
    assert full.value(["eight"], ["paid", "free"], displaced=["paid"]) == 0
    assert full.value(["four"], ["paid"]) == 0, "an afterthought: stated only for the victims that are named"


def test_charged_first_under_a_gpu_limit() -> None:
    """Beside 6 charged GPUs of `a` its limit of 8 leaves `paid` no room: the limit is as good a reason as the node."""
    old = [running("paid", "a", {"n1": 1}, 4)]
    limit = [budget("a", gpu_limit=8), budget("b")]
    full = epoch(nodes(2), limit, [*old, job("six", "a", 6), job("four", "a", 4)], preempt_under_entitlement=True)
    assert full.value(["six"], ["paid"], displaced=["paid"]) == -2 * GPU
    assert full.value(["four"], displaced=["paid"]) == -4 * GPU
    assert full.value(["four"], ["paid"], displaced=["paid"]) is None


def test_unallocated_last() -> None:
    """`owed` is entitled to the place of `free`: it may wait only if charged work takes that place instead."""
    works = [running("free", "a", {"n1": 1}, charged=False, min_runtime=0), job("owed", "b", submit_time=0)]
    works += [job("also", "b")]
    claim = epoch(nodes(1), AB, works)
    assert claim.ent.works.entitled[list(claim.problem.names).index("owed")]
    assert claim.value() == 0, "an afterthought: stated only for the offers that are named"
    assert claim.value(claims=["owed"]) is None
    assert claim.value(["owed"], ["free"], claims=["owed"]) == 0
    assert claim.value(["also"], ["free"], claims=["owed"]) == 0
    assert claim.best().value == 0
    assert "-free" in claim.named(claim.best())


def test_unallocated_last_unless_much_would_idle() -> None:
    """One GPU is owed, 8 would be freed: 7 idle for the sake of 1, so nobody has to."""
    works = [running("free", "a", {"n1": 1}, charged=False, min_runtime=0), job("owed", "b", 1)]
    claim = epoch(nodes(1), AB, works)
    assert claim.value(claims=["owed"]) == 0


@pytest.mark.parametrize(("owed", "places", "gives_way"), [
    (4, {"n1": 1}, True), (3, {"n1": 1}, False), (8, {"n1": 1, "n2": 1}, True), (4, {"n1": 1, "n2": 1}, False),
    (8, {"n1": 1, "n2": 1, "n3": 1}, False),
])  # fmt: skip
def test_unallocated_last_where_no_more_can_idle_than_starts(owed: int, places: dict[str, int], gives_way: bool) -> None:
    """Where 8 GPUs of each node stop, 4 idle for the sake of 4, and 8 for the sake of 8; nobody idles 5 for 3, or 12 for 4."""
    works = [running("free", "a", places, 8 * len(places), charged=False, min_runtime=0), job("owed", "b", owed)]
    claim = epoch(nodes(len(places)), AB, works)
    assert claim.ent.works.entitled[list(claim.problem.names).index("owed")]
    assert (claim.value(claims=["owed"]) is None) == gives_way
    assert claim.value(["owed"], ["free"], claims=["owed"]) == (8 * len(places) - owed) * GPU


@pytest.mark.parametrize(("owed", "others", "gives_way"), [(8, [1, 1], True), (4, [8], True), (2, [8], False)])
def test_unallocated_last_holds_for_starts_on_any_of_several_nodes(owed: int, others: list[int], gives_way: bool) -> None:
    """Charged starts may take a place on both nodes, but `free` has one to itself, and that is the place of `owed`."""
    paid = [job(f"paid{i}", "a", gpus) for i, gpus in enumerate(others)]
    claim = epoch(nodes(2), AB, [*paid, job("free", "a", min_runtime=0), job("owed", "b", owed)])
    assert len(claim.problem.classes.size) == 1
    assert claim.ent.works.entitled[list(claim.problem.names).index("owed")]
    starts, value = ["free:free", *(work.id for work in paid)], -(8 + sum(others)) * GPU
    assert claim.value(starts) == value
    assert claim.value(starts, claims=["owed"]) == (None if gives_way else value)


@pytest.mark.parametrize("known", [(None, None), (None, 0), (-8, 0), (-8, -8), (None, -9), (-10, -9), (-7, -9)])
def test_what_is_known_of_the_optimum_changes_no_answer(known: tuple[int | None, int | None]) -> None:
    """Not even where no value lies: then it is forgotten."""
    lower, upper = (None if value is None else value * GPU for value in known)
    queue = epoch(nodes(1), AB, [job("one"), job("two", "b", 4)])
    found = cpsat.solve(queue.problem, Limits(60.0, lower=lower, upper=upper))
    assert (found.status, found.value, found.bound) == (Status.OPTIMAL, -8 * GPU, -8 * GPU)


def test_lost_work() -> None:
    """`old` does not resume: a stop loses 600 s and 60 s of restart on 8 GPUs, 5,280 GPU-seconds; the second time twice."""
    for preempted, lost in ((0, 5_280_000), (1, 10_560_000)):
        old = running("old", "a", {"n1": 1}, since=NOW - 600, protected_until=NOW, resumable=False, preempted=preempted)
        dear = epoch(nodes(1), AB, [old, job("new", "b")], {"lost_work": 1}, preempt_under_entitlement=True)
        assert dear.value(["new"], ["old"]) == lost


def test_order() -> None:
    """Three jobs in one leaf: ranks 0, 1, 2 of 3 cost 8 T, 2/3 of it and 1/3 while they wait. The first two run."""
    works = [job(f"job{i}", submit_time=NOW - HOUR + i) for i in range(3)]
    queue = epoch(nodes(2), AB, works, {"idle": 0, "order": 1})
    assert queue.value(["job0"]) == -8 * GPU
    assert queue.value(["job1"]) == -8 * GPU * 2 // 3
    assert queue.value(["job2"]) == -8 * GPU // 3
    assert queue.best().value == -8 * GPU * 5 // 3


def test_express_that_waits() -> None:
    """A candidate of the lane that waits costs T x 4, five times over."""
    lane = epoch(nodes(1), AB, [job("debug", gpus=4, min_runtime=600, user="u")], {"idle": 0, "express": 5})
    assert lane.value(["debug"]) == lane.best().value == -4 * 5 * GPU


def test_spread() -> None:
    """Three nodes in racks of two: at least two racks. Spread over three it costs T x 24 x 10 % more."""
    gang = [job("gang", gpus=24)]
    price: dict[str, Any] = {"spread": 1}
    assert epoch(racks(2, 2), AB, gang, price, slowdown={"rack": 0.1}).value(["gang"]) == -24 * GPU
    blocked = [held(f"old{i}", {f"{i}-0": 1}) for i in range(3)]
    spread = epoch(racks(2, 2, 2), AB, [*gang, *blocked], price, slowdown={"rack": 0.1})
    assert spread.value(["gang"]) == -24 * GPU + 24 * GPU // 10


def test_spread_below_a_preferred_level() -> None:
    """The gang prefers one rack and gets two: twice the slowdown of 10 %, for 16 GPUs."""
    gang = [job("gang", gpus=16, preferred="rack")]
    blocked = [held(f"old{i}", {f"{i}-0": 1}) for i in range(2)]
    spread = epoch(racks(2, 2), AB, [*gang, *blocked], {"spread": 1}, slowdown={"rack": 0.1})
    assert spread.value(["gang"]) == -16 * GPU + 2 * 16 * GPU // 10


def test_fragmentation() -> None:
    """3 GPUs of a free node of 8 break it up by 3, 6 by 2. The rack of two nodes counts too: 3 and 6 of 16."""
    works = [job("three", gpus=3), job("six", gpus=6)]
    whole = epoch(nodes(2), AB, works, {"idle": 0, "fragmentation": 1})
    assert whole.value(["three"]) == (3 + 3) * GPU
    assert whole.value(["six"]) == (2 + 6) * GPU
    assert whole.value(["three", "six"]) == (3 + 2 + 7) * GPU


def test_unfairness() -> None:
    """`a` and `b` are owed 8 of 16 GPUs each. With 16, `a` is 8 above (at 5 %) and `b` 8 below: 8 + 8^2 / (2 x 8) = 12."""
    works = [job(f"a{i}", "a") for i in range(2)] + [job(f"b{i}", "b") for i in range(2)]
    shares = epoch(nodes(2), AB, works, {"idle": 0, "unfairness": 1})
    apart, equal = shares.value(["a0", "a1"]), shares.value(["a0", "b0"])
    assert apart is not None
    assert equal is not None
    assert equal == shares.best().value == -2 * 12 * GPU
    assert apart - equal == 12 * GPU + 8 * GPU // 20


def test_an_epoch_in_which_nothing_can_be_done() -> None:
    """No offer, no victim: the model is empty, and 0 is proven."""
    result = epoch(nodes(1), AB, [held("old", {"n1": 1})]).best()
    assert (result.status, result.value, result.bound) == (Status.OPTIMAL, 0, 0)


def contested() -> Epoch:
    """More work than fits, and something to stop."""
    works = [running(f"old{i}", "a", {f"n{i}": 1}) for i in (1, 2, 3)]
    works += [job(f"new{i}", "b", gpus=gpus) for i, gpus in enumerate((8, 4, 4, 2, 16, 1))]
    return Epoch(snapshot(nodes(4), AB, works))


def test_the_same_call_gives_the_same_answer() -> None:
    first, second = (cpsat.solve(contested().problem, Limits(60.0)) for _ in range(2))
    assert first == second
    assert first.status is Status.OPTIMAL
    assert first.value == first.bound


def test_without_time_there_is_no_answer_and_no_false_bound() -> None:
    best = contested().best().value
    assert best is not None
    for seconds in (0.0, 0.001, 0.005, 0.02):
        result = cpsat.solve(contested().problem, Limits(seconds))
        assert result.bound is None or result.bound <= best
        assert result.value is None or result.value >= best


def test_a_guess_changes_no_optimum() -> None:
    known = contested()
    best = known.best()
    assert cpsat.solve(known.problem, Limits(60.0), best.solution).value == best.value


def test_weights_beyond_exact_arithmetic_are_refused() -> None:
    """An idle GPU at 10^12 planning steps: 8 of them are beyond 2^52."""
    dear: Snapshot = snapshot(nodes(1), AB, [job("new")], weights=weights(idle=10**12))
    assert 8 * GPU * 10**12 > LARGEST
    with pytest.raises(OverflowError, match="lower the weights of the policy"):
        Epoch(dear).best()
