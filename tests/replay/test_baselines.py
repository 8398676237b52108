"""Each baseline on tiny cases, derived by hand. Nodes have 8 GPUs, named n1, n2, ... in one pool unless said otherwise."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.domain import Decision, NodeState, Snapshot, StopReason, Workload
from allocator.generate.organisation_trace import TraceParams, generate_trace
from allocator.replay import ReplayOptions, SchedulingPolicy, Simulator, make_policy
from allocator.replay.baselines import BASELINES
from allocator.replay.baselines.drf import Drf, max_min
from allocator.replay.baselines.fair_tree import FairTree
from allocator.replay.baselines.fifo_backfill import FifoBackfill
from allocator.replay.baselines.partitions import Partitions, deal
from allocator.replay.baselines.priority_classes import PriorityClasses
from allocator.replay.baselines.priority_optout import PriorityOptOut
from allocator.verify.physical import verify_physical
from tests.builders import HOUR, NOW, budget, job, node, nodes, running, snapshot

AB = [budget("a"), budget("b")]


def decide(policy: SchedulingPolicy, *works: Workload, count: int = 2, budgets: Any = AB, cluster: Any = None) -> Decision:
    snap = snapshot(nodes(count) if cluster is None else cluster, budgets, list(works))
    decision = policy.decide(snap, None)
    assert verify_physical(snap, decision) == ()
    return decision


def started(decision: Decision) -> dict[str, dict[str, int]]:
    return {row.workload: dict(row.placement) for row in decision.starts}


def stopped(decision: Decision) -> dict[str, tuple[str, ...]]:
    return {row.workload: row.beneficiaries for row in decision.preemptions}


def wait(name: str, minute: int, allocation: str = "a", gpus: int = 8, **fields: Any) -> Workload:
    """Submitted so many minutes after the first."""
    return job(name, allocation, gpus, submit_time=NOW - HOUR + 60 * minute, **fields)


def run(name: str, allocation: str = "a", *where: str, gpus: int = 8, began: int = HOUR, **fields: Any) -> Workload:
    """Began so many seconds ago on these nodes, with equal tasks."""
    return running(name, allocation, dict.fromkeys(where, 1), gpus, since=NOW - began, **fields)


# --- fifo_backfill ---------------------------------------------------------------------------------------------------------


def test_the_head_of_the_queue_is_not_delayed() -> None:
    """n1 is busy for one more hour, n2 is free. The head wants both nodes, so it starts in an hour. `short` ends by then and
    may go before it on n2; `long` may not, though it was submitted before."""
    works = [
        run("r", "a", "n1", max_runtime=2 * HOUR),
        wait("head", 0, gpus=16),
        wait("long", 1, max_runtime=2 * HOUR),
        wait("short", 2, max_runtime=HOUR),
    ]
    assert started(decide(FifoBackfill(), *works)) == {"short": {"n2": 1}}


def test_what_the_head_leaves_free_is_filled_for_any_time() -> None:
    """Three nodes; n1 is busy for an hour more, and then the head of 16 GPUs starts on two of three: the third is anybody's."""
    works = [
        run("r", "a", "n1", max_runtime=2 * HOUR),
        run("s", "a", "n2", max_runtime=2 * HOUR),
        wait("head", 0, gpus=16),
        wait("long", 1, max_runtime=100 * HOUR),
        wait("longer", 2, max_runtime=200 * HOUR),
    ]
    assert list(started(decide(FifoBackfill(), *works, count=3))) == ["long"]


def test_parts_of_a_node_beside_the_head() -> None:
    """The head of 6 GPUs waits for n1, where `r` holds 4 of 8; of the 4 free ones only 2 may be held for long."""
    works = [run("r", "a", "n1", gpus=4, max_runtime=2 * HOUR), wait("head", 0, gpus=6)]
    for gpus, starts in ((2, True), (3, False)):
        waiting = wait("long", 1, gpus=gpus, max_runtime=100 * HOUR)
        assert bool(started(decide(FifoBackfill(), *works, waiting, count=1))) is starts
    assert started(decide(FifoBackfill(), *works, wait("short", 1, gpus=4, max_runtime=HOUR), count=1))


def test_work_without_a_limit_counts_as_ten_days() -> None:
    """`r` began an hour ago without a limit: the head may start in 239 h, so 239 h fit before it, and 240 h do not."""
    works = [run("r", "a", "n1"), wait("head", 0, gpus=16)]
    assert started(decide(FifoBackfill(), *works, wait("x", 1, max_runtime=239 * HOUR)))
    assert not started(decide(FifoBackfill(), *works, wait("x", 1, max_runtime=240 * HOUR)))


def test_a_gang_that_can_never_start_holds_up_nobody() -> None:
    dead = (*nodes(2), node("n3", state="down"))
    works = [run("r", "a", "n1"), wait("huge", 0, gpus=24), wait("x", 1, max_runtime=1_000 * HOUR)]
    assert started(decide(FifoBackfill(), *works, cluster=dead)) == {"x": {"n2": 1}}


def test_first_come_first_served_in_order_of_submission() -> None:
    works = [wait("z", 0), wait("a", 1), wait("b", 2)]
    assert list(started(decide(FifoBackfill(), *works))) == ["z", "a"]


def test_small_work_goes_to_the_fullest_node_and_gangs_into_one_rack() -> None:
    works = [
        run("r", "a", "n6", gpus=4),
        wait("small", 0, gpus=2),
        wait("gang", 1, gpus=24),
        wait("leaf", 2, gpus=16, required="rack"),
    ]
    found = started(decide(FifoBackfill(), *works, count=8))
    assert found["small"] == {"n6": 1}
    assert found["gang"] == {"n5": 1, "n7": 1, "n8": 1}
    assert set(found["leaf"]) == {"n1", "n2"}


def test_a_required_rack_that_no_rack_can_give() -> None:
    """Two nodes are free, one in each rack: 16 GPUs fit, but not in one rack."""
    held = [run(f"r{number}", "a", f"n{number}") for number in (1, 2, 3, 5, 6, 7)]
    assert not started(decide(FifoBackfill(), *held, wait("x", 0, gpus=16, required="rack"), count=8))
    assert started(decide(FifoBackfill(), *held, wait("x", 0, gpus=16), count=8)) == {"x": {"n4": 1, "n8": 1}}


def test_segments_and_pools() -> None:
    cluster = (*nodes(4, per_rack=2), *nodes(2, prefix="m", pool="b200"))
    works = [wait("seg", 0, gpus=32, segment=("rack", 2)), wait("any", 1), wait("named", 2, pools=("b200",))]
    found = started(decide(FifoBackfill(), *works, cluster=cluster))
    assert set(found["seg"]) == {"n1", "n2", "n3", "n4"}
    assert found["any"] == {"m1": 1}
    assert found["named"] == {"m2": 1}


def test_nothing_starts_that_would_run_into_maintenance() -> None:
    """n1 is wanted in two hours: three hours do not fit before, one does."""
    cluster = (node("n1", drain_deadline=NOW + 2 * HOUR),)
    assert not started(decide(FifoBackfill(), wait("x", 0, max_runtime=3 * HOUR), cluster=cluster))
    assert started(decide(FifoBackfill(), wait("x", 0, max_runtime=HOUR), cluster=cluster))


@pytest.mark.parametrize("name", sorted(BASELINES))
def test_work_on_dead_nodes_is_stopped_and_dead_nodes_are_not_used(name: str) -> None:
    cluster = (node("n1", state="down"), node("n2"))
    decision = decide(BASELINES[name](), run("r", "a", "n1"), wait("x", 0, "b"), cluster=cluster)
    assert [(row.workload, row.reason) for row in decision.preemptions] == [("r", StopReason.NODE_DOWN)]
    assert started(decision) == {"x": {"n2": 1}}


# --- partitions ------------------------------------------------------------------------------------------------------------


def test_every_project_has_its_own_nodes() -> None:
    """Three of four nodes are a's; b may have one, though two of a's stand idle."""
    works = [wait("a1", 0, "a"), wait("b1", 1, "b"), wait("b2", 2, "b")]
    found = started(decide(Partitions(), *works, count=4, budgets=[budget("a", 3), budget("b")]))
    assert found == {"a1": {"n1": 1}, "b1": {"n4": 1}}


def test_a_gang_larger_than_its_partition_never_starts_and_holds_up_nobody() -> None:
    works = [wait("gang", 0, "b", 16), wait("b2", 1, "b")]
    assert started(decide(Partitions(), *works, count=2)) == {"b2": {"n2": 1}}


def test_researchers_share_the_partition_of_their_project() -> None:
    tree = [budget("p"), budget("q"), budget("u", 1, "p", funds=False), budget("v", 9, "p", funds=False)]
    works = [wait("u1", 0, "u"), wait("u2", 1, "u"), wait("v1", 2, "v")]
    assert list(started(decide(Partitions(), *works, count=4, budgets=tree))) == ["u1", "u2"]


@pytest.mark.parametrize(
    ("count", "parts", "dealt"),
    [(4, [3, 1], [3, 1]), (5, [1, 1], [3, 2]), (7, [0.5, 0.3, 0.2], [4, 2, 1]), (3, [0, 0], [0, 0]), (2, [1, 0, 1], [1, 0, 1])],
)
def test_nodes_are_dealt_by_largest_remainder(count: int, parts: list[float], dealt: list[int]) -> None:
    assert deal(count, parts) == dealt


# --- fair_tree -------------------------------------------------------------------------------------------------------------


def later(policy: SchedulingPolicy, seconds: int, *works: Workload, count: int = 1, budgets: Any = AB) -> Decision:
    snap = snapshot(nodes(count), budgets, list(works), now=NOW + seconds)
    return policy.decide(snap, None)


def test_who_has_used_least_for_his_share_goes_first() -> None:
    """a has run for an hour; then a's older job and b's newer one want the node: b goes first. With nine shares to one, and
    an hour of b's own, a goes first again."""
    policy = FairTree()
    later(policy, 0, run("r", "a", "n1"))
    assert list(started(later(policy, HOUR, wait("a1", 0, "a"), wait("b1", 1, "b")))) == ["b1"]
    policy = FairTree()
    budgets = [budget("a", 9), budget("b")]
    later(policy, 0, run("r", "a", "n1"), run("s", "b", "n2"), count=2, budgets=budgets)
    assert list(started(later(policy, HOUR, wait("a1", 1, "a"), wait("b1", 0, "b"), budgets=budgets))) == ["a1"]


def test_usage_fades_with_the_half_life() -> None:
    """a runs for 8 h, and then nothing for two half-lives: 2 h are left of it. b then runs for 4 h: a goes first."""
    policy = FairTree(half_life=HOUR * 100)
    later(policy, 0, run("r", "a", "n1"))
    later(policy, 8 * HOUR)
    later(policy, 208 * HOUR, run("s", "b", "n1"))
    assert list(started(later(policy, 212 * HOUR, wait("a1", 1, "a"), wait("b1", 0, "b")))) == ["a1"]


def test_a_subtree_comes_before_the_next_one() -> None:
    """p has used less than q, so both of p's come before q's, although u alone has used more than v."""
    tree = [budget("p", 9), budget("q"), budget("u", 1, "p"), budget("w", 1, "p"), budget("v", 1, "q")]
    policy = FairTree()
    later(policy, 0, run("r", "u", "n1"), run("s", "v", "n2", gpus=2), count=2, budgets=tree)
    works = [wait("v1", 0, "v"), wait("u1", 1, "u"), wait("w1", 2, "w")]
    assert list(started(later(policy, HOUR, *works, count=2, budgets=tree))) == ["w1", "u1"]


def test_inside_one_user_priority_then_submission() -> None:
    works = [wait("old", 0), wait("high", 1, priority=5), wait("new", 2)]
    assert list(started(decide(FairTree(), *works))) == ["high", "old"]


# --- priority_classes ------------------------------------------------------------------------------------------------------


def test_a_higher_class_stops_the_lowest_that_began_last() -> None:
    works = [
        run("mid", "a", "n1", priority=1),
        run("low-old", "a", "n2", priority=0, began=2 * HOUR),
        run("low-new", "a", "n3", priority=0),
        wait("high", 0, priority=2),
    ]
    decision = decide(PriorityClasses(), *works, count=3)
    assert (started(decision), stopped(decision)) == ({"high": {"n3": 1}}, {"low-new": ("high",)})
    assert PriorityClasses().wake(snapshot(nodes(3), AB, works), decision) == NOW + 1


def test_equals_are_not_stopped_and_small_work_passes_a_gang() -> None:
    works = [run("r", "a", "n1", priority=1), wait("gang", 0, gpus=16, priority=1), wait("small", 1, priority=0)]
    decision = decide(PriorityClasses(), *works)
    assert (started(decision), stopped(decision)) == ({"small": {"n2": 1}}, {})


def test_only_those_whose_gpus_are_needed_are_stopped() -> None:
    """16 GPUs are wanted and one node is free: the newest victim alone, of half a node, is not enough; the older one of a
    whole node is, and then the newest is spared."""
    works = [
        run("half", "a", "n1", gpus=4, priority=0, began=60),
        run("whole", "a", "n2", priority=0, began=HOUR),
        run("fixed", "a", "n1", gpus=4, priority=9),
        wait("high", 0, gpus=16, priority=2),
    ]
    decision = decide(PriorityClasses(), *works, count=3)
    assert (set(started(decision)["high"]), stopped(decision)) == ({"n2", "n3"}, {"whole": ("high",)})


def test_two_claims_never_take_the_same_victim() -> None:
    works = [run("l1", "a", "n1"), run("l2", "a", "n2"), wait("h1", 0, priority=1), wait("h2", 1, priority=1)]
    decision = decide(PriorityClasses(), *works)
    assert set(stopped(decision).values()) == {("h1",), ("h2",)}
    assert len(stopped(decision)) == 2


# --- priority_optout -------------------------------------------------------------------------------------------------------


def test_up_to_the_cap_work_is_opted_out_and_above_it_preemptible() -> None:
    """Half of four nodes is a's part, and the whole of that its cap: two jobs are promised their time limit, the third runs
    free of charge."""
    works = [wait(f"a{number}", number, max_runtime=10 * HOUR) for number in range(3)]
    decision = decide(PriorityOptOut(cap=1.0), *works, count=4)
    assert [(row.workload, row.charged, row.protected_until) for row in decision.starts] == [
        ("a0", True, NOW + 10 * HOUR),
        ("a1", True, NOW + 10 * HOUR),
        ("a2", False, None),
    ]


def test_opted_out_work_takes_from_preemptible_work_and_only_from_that() -> None:
    works = [
        run("soft", "a", "n1", charged=False),
        run("hard", "a", "n2", charged=True),
        wait("b1", 0, "b"),
        wait("b2", 1, "b"),
    ]
    decision = decide(PriorityOptOut(cap=1.0), *works)
    assert (started(decision), stopped(decision)) == ({"b1": {"n1": 1}}, {"soft": ("b1",)})


def test_work_is_opted_out_in_place_where_there_is_room() -> None:
    works = [run("first", "a", "n1", charged=False, began=2 * HOUR), run("second", "a", "n2", charged=False)]
    decision = decide(PriorityOptOut(cap=0.5), *works, count=4)
    assert [(row.workload, row.protected_until) for row in decision.promotions] == [("first", NOW + 240 * HOUR)]


def test_evals_are_never_opted_out() -> None:
    decision = decide(PriorityOptOut(cap=1.0), wait("e", 0, min_runtime=0))
    assert [row.charged for row in decision.starts] == [False]


def test_everything_is_high_after_a_while() -> None:
    """With a cap of nothing all is preemptible: the higher priority takes the node while the lower is young, and no more once
    both have waited for an hour."""
    young, old = 10 * 60, 2 * HOUR
    for age, stops in ((young, {"low": ("high",)}), (old, {})):
        low = running("low", "a", {"n1": 1}, 8, since=NOW - 60, submit_time=NOW - age, charged=False, priority=0)
        high = job("high", "b", 8, submit_time=NOW - young, priority=3)
        assert stopped(decide(PriorityOptOut(cap=0.0), low, high, count=1)) == stops
    policy = PriorityOptOut(cap=0.0)
    waiting = [run("low", "a", "n1", charged=False, submit_time=NOW - HOUR), job("x", "b", 8, submit_time=NOW - young)]
    snap = snapshot(nodes(1), AB, waiting)
    assert policy.wake(snap, policy.decide(snap, None)) == NOW - young + HOUR


def test_a_drain_takes_preemptible_work_and_leaves_the_rest_to_a_person() -> None:
    cluster = (node("n1", state="drain"), node("n2", state="drain"), node("n3", drain_deadline=NOW))
    works = [run("soft", "a", "n1", charged=False), run("hard", "a", "n2", charged=True), run("late", "a", "n3", charged=False)]
    decision = decide(PriorityOptOut(), *works, cluster=cluster)
    assert {row.workload: row.reason for row in decision.preemptions} == {"soft": StopReason.DRAIN, "late": StopReason.DRAIN}


# --- drf -------------------------------------------------------------------------------------------------------------------


def test_the_least_served_is_served_next() -> None:
    """a holds a node; of the two free ones b gets the first, and then both hold one: a, by name."""
    works = [run("r", "a", "n1"), wait("a1", 0, "a"), wait("b1", 1, "b"), wait("b2", 2, "b")]
    assert list(started(decide(Drf(), *works, count=3))) == ["b1", "a1"]
    assert list(started(decide(Drf(), *works, count=3, budgets=[budget("a"), budget("b", 3)]))) == ["b1", "b2"]


def test_gpus_are_taken_back_up_to_what_is_deserved() -> None:
    """a holds all four nodes; b deserves two of them, and wants three."""
    works = [run(f"r{number}", "a", f"n{number}", began=number * 60) for number in range(1, 5)]
    works += [wait(f"b{number}", number, "b") for number in range(3)]
    decision = decide(Drf(), *works, count=4)
    assert stopped(decision) == {"r1": ("b0",), "r2": ("b1",)}


def test_a_gang_larger_than_deserved_takes_nothing_back() -> None:
    works = [run(f"r{number}", "a", f"n{number}") for number in range(1, 5)] + [wait("gang", 0, "b", 24)]
    decision = decide(Drf(), *works, count=4)
    assert (started(decision), stopped(decision)) == ({}, {})


def test_nothing_is_taken_from_who_holds_what_he_deserves() -> None:
    works = [run("r", "a", "n1"), run("s", "b", "n2"), wait("b1", 0, "b"), wait("a1", 1, "a")]
    decision = decide(Drf(), *works)
    assert (started(decision), stopped(decision)) == ({}, {})


def test_projects_come_before_researchers() -> None:
    """p and q deserve half each. u, of p, holds all of p's half and v of p none: v takes from u, not from q."""
    tree = [budget("p"), budget("q"), budget("u", 1, "p"), budget("v", 1, "p"), budget("w", 1, "q")]
    works = [run("u1", "u", "n1"), run("u2", "u", "n2"), run("w1", "w", "n3"), run("w2", "w", "n4"), wait("v1", 0, "v")]
    assert stopped(decide(Drf(), *works, wait("w3", 1, "w"), wait("u3", 2, "u"), count=4, budgets=tree)) == {"u1": ("v1",)}


def test_the_dominant_share_is_that_of_the_pool_where_most_is_held() -> None:
    """a holds 2 of 4 h100 nodes (half), b one of one b200 node (all): a is served first, and b then
    takes back what it deserves of the h100 nodes."""
    cluster = (*nodes(4), *nodes(1, prefix="m", pool="b200"))
    works = [run("r", "a", "n1"), run("s", "a", "n2"), run("t", "b", "m1"), wait("b1", 0, "b", 16), wait("a1", 1, "a", 16)]
    decision = decide(Drf(), *works, cluster=cluster)
    assert list(started(decision)) == ["a1", "b1"]
    assert stopped(decision) == {"r": ("b1",), "s": ("b1",)}


@pytest.mark.parametrize(
    ("amount", "weights", "wants", "given"),
    [
        (12, [1, 1], [20, 20], [6, 6]),
        (12, [1, 1], [2, 20], [2, 10]),
        (12, [2, 1], [20, 20], [8, 4]),
        (12, [1, 1], [2, 3], [2, 3]),
        (12, [1, 0], [20, 20], [12, 0]),
        (9, [1, 1, 1], [1, 9, 9], [1, 4, 4]),
    ],
)
def test_max_min_shares(amount: float, weights: list[float], wants: list[float], given: list[float]) -> None:
    assert max_min(amount, weights, wants) == pytest.approx(given)


# --- all -------------------------------------------------------------------------------------------------------------------


@st.composite
def crowds(draw: st.DrawFn) -> Snapshot:
    """Four nodes, some of them in use, and work that waits."""
    works = []
    for number in range(4):
        if draw(st.booleans()):
            charged = draw(st.booleans())
            gpus = draw(st.sampled_from([2, 4, 8]))
            began = draw(st.integers(1, 9)) * HOUR
            priority = draw(st.integers(0, 2))
            works.append(
                run(f"r{number}", draw(st.sampled_from("ab")), f"n{number + 1}", gpus=gpus, began=began, charged=charged,
                    priority=priority)
            )  # fmt: skip
    for number in range(draw(st.integers(0, 6))):
        limit = draw(st.sampled_from([None, HOUR, 50 * HOUR]))
        gpus = draw(st.sampled_from([1, 2, 3, 4, 6, 8, 16, 24, 32]))
        minimum = draw(st.sampled_from([0, HOUR]))
        works.append(
            wait(f"w{number}", draw(st.integers(0, 59)), draw(st.sampled_from("ab")), gpus, max_runtime=limit,
                 min_runtime=minimum, priority=draw(st.integers(0, 2)))
        )  # fmt: skip
    states = [draw(st.sampled_from([NodeState.UP, NodeState.UP, NodeState.DRAIN, NodeState.DOWN])) for _ in range(4)]
    cluster = tuple(node(f"n{number + 1}", f"r{number // 2}", state=state) for number, state in enumerate(states))
    return snapshot(cluster, AB, works)


@pytest.mark.parametrize("name", sorted(BASELINES))
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_decisions_are_possible_and_the_same_whatever_came_before(name: str, data: st.DataObject) -> None:
    """No baseline breaks a rule of placement, and what one remembers is not needed for the decision of the same snapshot."""
    first, second = data.draw(crowds()), data.draw(crowds())
    warm = BASELINES[name]()
    warm.decide(first, None)
    cold = pickle.loads(pickle.dumps(warm))
    decision = warm.decide(second, None)
    assert verify_physical(second, decision) == ()
    assert cold.decide(second, None) == decision
    if name != "fair_tree":
        assert BASELINES[name]().decide(second, None) == decision
    stops = {row.workload for row in decision.preemptions}
    assert all(row.beneficiaries or row.reason in (StopReason.NODE_DOWN, StopReason.DRAIN) for row in decision.preemptions)
    assert stops.isdisjoint(row.workload for row in decision.starts)
    assert isinstance(warm, SchedulingPolicy)


def earliest(snap: Snapshot, decision: Decision | None, head: Workload) -> int | None:
    """By plain arithmetic, when a gang fits if everything ends by its limit and nothing else starts."""
    ends: list[tuple[int, dict[str, int]]] = []
    for work in snap.workloads:
        if work.run is not None:
            began = work.run.start_time or NOW
            held = {name: tasks * work.gpus_per_task for name, tasks in work.run.placement.items()}
            ends.append((max(began + (work.max_runtime or 240 * HOUR), NOW + 1), held))
    works = {work.id: work for work in snap.workloads}
    for row in decision.starts if decision is not None else ():
        work = works[row.workload]
        held = {name: tasks * work.gpus_per_task for name, tasks in row.placement.items()}
        ends.append((NOW + (work.max_runtime or 240 * HOUR), held))
    for moment in sorted({NOW, *(end for end, _ in ends)}):
        free = {one.name: one.gpus for one in snap.cluster.nodes if one.state is NodeState.UP}
        for end, held in ends:
            for name, gpus in held.items():
                if end > moment and name in free:
                    free[name] -= gpus
        if sum(gpus // head.gpus_per_task for gpus in free.values()) >= head.tasks:
            return moment
    return None


@settings(max_examples=200, deadline=None)
@given(snap=crowds())
def test_backfill_never_delays_the_head(snap: Snapshot) -> None:
    decision = FifoBackfill().decide(snap, None)
    begun = {row.workload for row in decision.starts}
    queue = sorted((work for work in snap.workloads if work.run is None), key=lambda work: (work.submit_time, work.id))
    before = [work for work in queue if work.id not in begun and earliest(snap, None, work) is not None]
    if before:
        head = before[0]
        ahead = [
            row for row in decision.starts if queue.index(next(w for w in queue if w.id == row.workload)) < queue.index(head)
        ]
        first = earliest(snap, replace(decision, starts=tuple(ahead)), head)
        assert earliest(snap, decision, head) == first


@pytest.mark.parametrize("name", sorted(BASELINES))
def test_each_plays_a_day_with_failures_twice_alike(name: str) -> None:
    """The replay's own books check conservation; the policies that stop nobody stop nobody."""
    trace = generate_trace(TraceParams(gpus=64, pools=1, days=1, load=1.5, seed=2, failures=0.02))
    played = [Simulator(trace, make_policy(name), ReplayOptions(tick=60)) for _ in range(2)]
    for simulator in played:
        simulator.run()
    assert played[0].world.runs == played[1].world.runs
    ended = {row.ended_by for row in played[0].world.runs}
    assert "completed" in ended
    if name in ("fifo_backfill", "partitions", "fair_tree"):
        assert ended.isdisjoint({"share", "drain"})
