"""The whole of `entitle`: what it shows of one snapshot, and that a second call at the same instant sees the same."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.domain import Cluster, NodeState, Policy, Promotion, Snapshot
from allocator.entitlement import Entitlement, Forced, entitle, whole_before
from allocator.transition import apply
from tests.engines.tiny import tiny_snapshot
from tests.entitlement.builders import HOUR, NOW, allocation, drained, node, running, snapshot, work
from tests.entitlement.decisions import RandomDecision

MARKET = (
    "installed", "schedulable", "budget", "usage", "uncharged_usage", "available_before", "held",
    "floor", "demand", "entitled", "owed", "level",
    "curves",
)  # fmt: skip
"""What must not change with the decision; `outstanding` and `available` do."""

WORKS = (
    "leaf", "gpus", "home", "held_before", "held_pool", "express", "funded", "entitled", "entitled_since", "order_cost",
)  # fmt: skip


def differences(one: Entitlement, other: Entitlement) -> list[str]:
    """Names of what is computed from the view before now, and differs."""
    named = [(getattr(one.market, name), getattr(other.market, name), name) for name in MARKET]
    named += [(getattr(one.works, name), getattr(other.works, name), name) for name in WORKS]
    named.append((one.express_room, other.express_room, "express_room"))
    pairs = zip(whole_before(one), whole_before(other), strict=True)
    named += [(before, after, f"whole[{level}]") for level, (before, after) in enumerate(pairs)]
    return [name for before, after, name in named if not _same(before, after)]


def _same(before: object, after: object) -> bool:
    if isinstance(before, np.ndarray) and isinstance(after, np.ndarray):
        return bool(np.array_equal(before, after))
    return before == after


@settings(max_examples=4 * settings().max_examples)
@given(st.integers(0, 10**6))
def test_a_second_call_at_the_same_instant_sees_the_same(seed: int) -> None:
    case = tiny_snapshot(seed)
    before = entitle(case)
    if (before.works.fresh & (before.works.forced != Forced.NONE)).any():
        return  # started and stopped at one instant: nothing can tell that it waited before
    after = entitle(apply(case, RandomDecision(before, Random(seed)).decide()))
    assert differences(before, after) == []


def test_a_run_of_unknown_start_that_is_promoted_now_ran_before() -> None:
    case = snapshot([node("n1")], [allocation("A")], [running("w", "n1", since=None, charged=False)])
    before, promise = entitle(case), NOW + HOUR
    promoted = RandomDecision(before, Random(0)).decide()
    promoted = replace(promoted, starts=(), preemptions=(), promotions=(Promotion(workload="w", protected_until=promise),))
    assert differences(before, entitle(apply(case, promoted))) == []
    later = apply(case, promoted, advance=60).workloads[0].run
    assert later is not None
    assert (later.start_time, later.protected_until) == (NOW, promise)


@given(st.integers(0, 10**6))
def test_the_order_of_the_lists_does_not_matter(seed: int) -> None:
    case, rng = tiny_snapshot(seed), Random(seed)
    shuffled = replace(
        case,
        cluster=replace(case.cluster, nodes=tuple(rng.sample(case.cluster.nodes, len(case.cluster.nodes)))),
        budgets=tuple(rng.sample(case.budgets, len(case.budgets))),
        workloads=tuple(rng.sample(case.workloads, len(case.workloads))),
        usage=tuple(rng.sample(case.usage, len(case.usage))),
    )
    assert differences(entitle(case), entitle(shuffled)) == []


@given(st.integers(0, 10**6))
def test_what_always_holds(seed: int) -> None:
    ent = entitle(tiny_snapshot(seed))
    market, works = ent.market, ent.works
    assert (market.floor <= market.demand).all()
    assert (market.floor <= market.held).all()
    assert (market.available <= market.available_before).all()
    assert (works.express <= works.funded).all()
    assert (works.entitled <= works.funded).all()
    assert (works.licensed <= works.stoppable).all()
    assert not (works.stoppable & works.protected).any()
    assert not (works.candidate & works.running & (works.forced == Forced.NONE)).any()
    assert not works.candidate[list(works.impossible)].any()
    assert (works.order_cost >= 0).all()


def test_what_may_be_done_with_each_workload() -> None:
    works = [
        running("a-kept", "n1", protected_until=NOW + 1),
        running("b-over", "n1", since=0, gpus=4, protected_until=NOW),
        running("c-free", "n1", charged=False),
        running("d-unallocated", "n1", charged=False, min_runtime=0),
        running("e-leaving", "n1", protected_until=NOW, terminating_until=NOW + 9),
        running("f-drained", "n2", protected_until=NOW),
        work("g-waits"),
        work("h-unallocated", min_runtime=0),
    ]
    # B is owed all of the 8 GPUs of n1 less the promise of 1: A holds more than its 1.
    rival = work("i-rival", "B", gpus=8)
    case = snapshot([node("n1"), drained("n2")], [allocation("A"), allocation("B", 99)], [*works, rival])
    ent = entitle(case)
    names = [one.id[0] for one in ent.snapshot.workloads]

    def marked(name: str) -> str:
        return "".join(key for key, flag in zip(names, getattr(ent.works, name), strict=True) if flag)

    assert marked("running") == "abcdef"
    assert marked("protected") == "a"
    assert marked("forced") == "f"
    assert marked("stoppable") == "bcd"
    assert marked("licensed") == "bcd"
    assert marked("promotable") == "c"
    assert marked("candidate") == "fhi"
    assert marked("patient") == "g", "it fits the place of e-leaving"


def licensed(held: int, policy: Policy | None = None) -> bool:
    """Whether A's charged work may be stopped: it has one run of so many GPUs, B wants all of the 8."""
    one = running("a", "n", since=0, gpus=held, protected_until=NOW)
    case = snapshot([node("n")], [allocation("A"), allocation("B")], [one, work("b", "B", gpus=8)], policy=policy)
    return bool(entitle(case).works.licensed[0])


def test_the_licence_is_for_leaves_that_hold_more_than_their_entitlement() -> None:
    # Each is entitled to 4 of 8, or to what it wants if that is less.
    assert not licensed(3)
    assert not licensed(4)
    assert licensed(5)
    assert licensed(4, Policy(preempt_under_entitlement=True))


def test_a_promotion_counts_its_free_time_once() -> None:
    case = snapshot([node("n")], [allocation("A")], [running("w", "n", charged=False)])
    before = entitle(case)
    decision = RandomDecision(before, _Always()).decide()
    promoted = replace(decision, starts=(), preemptions=(), promotions=(Promotion(workload="w", protected_until=NOW + HOUR),))
    after = entitle(apply(case, promoted))
    assert before.market.uncharged_usage.tolist() == after.market.uncharged_usage.tolist() == [[HOUR], [HOUR]]


def test_work_that_was_stopped_now_cools_down() -> None:
    case = snapshot([node("n")], [allocation("A")], [running("w", "n", protected_until=NOW)])
    ent = entitle(case)
    stop = RandomDecision(ent, _Always()).decide()
    assert [row.workload for row in stop.preemptions] == ["w"]
    assert not entitle(apply(case, replace(stop, starts=()))).works.candidate.any()


class _Always(Random):
    """Says yes to everything."""

    def random(self) -> float:
        return 0.0


def test_what_must_stop_may_start_elsewhere_at_once() -> None:
    case = snapshot([node("n1", state=NodeState.DOWN), node("n2")], [allocation("A")], [running("w", "n1")])
    ent = entitle(case)
    assert ent.works.candidate.all()
    decision = RandomDecision(ent, _Always()).decide()
    assert [dict(start.placement) for start in decision.starts] == [{"n2": 1}]
    assert differences(ent, entitle(apply(case, decision))) == []


@pytest.mark.parametrize("levels", [("node",), ("cluster", "node")])
def test_nothing_at_all(levels: tuple[str, ...]) -> None:
    ent = entitle(Snapshot(now=NOW, cluster=Cluster(levels=levels, nodes=()), budgets=(), workloads=()))
    assert ent.market.installed.tolist() == []
    assert ent.warnings == ()


def test_a_cluster_without_work_and_work_without_a_cluster() -> None:
    assert entitle(snapshot([node("n")], [allocation("A")], [])).market.entitled.tolist() == [[0], [0]]
    ent = entitle(snapshot([], [allocation("A")], [work("w")]))
    assert ent.works.impossible[0][0] == "invalid_request"


def test_shares_of_zero_are_said() -> None:
    ent = entitle(snapshot([node("n")], [allocation("A", 0)], [work("w")]))
    assert ent.warnings == ("all shares of pool 'p' are zero: everything runs unallocated",)
    assert not ent.works.funded.any()


def test_a_promise_may_be_no_longer_than_the_cap() -> None:
    works = [work("w", min_runtime=20 * HOUR), work("x", min_runtime=0)]
    assert entitle(snapshot([node("n")], [allocation("A")], works)).works.promise.tolist() == [8 * HOUR, 0]
