"""Coefficients of the objective, derived by hand, in 1/1000 GPU-second."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.domain import LastStop, Policy, Run, TopologyWish, UsageRecord, Weights, Workload
from allocator.entitlement import (
    Score,
    entitle,
    express_cost,
    fragmentation_cost,
    idle_cost,
    round_half_up,
    spread_cost,
    spread_costs,
    whole_before,
)
from tests.entitlement.builders import HOUR, NOW, allocation, drained, node, running, snapshot, work


def test_rounding() -> None:
    halves = [Fraction(-3, 2), Fraction(-1, 2), Fraction(1, 2), Fraction(3, 2), Fraction(49, 100), Fraction(7)]
    assert [round_half_up(value) for value in halves] == [-1, 0, 1, 2, 0, 7]


def test_a_gpu_for_a_step() -> None:
    # 3,600 s x 1000, times 1, 10 and 1/100.
    assert idle_cost(Policy()) == 3_600_000
    assert express_cost(Policy(), 4) == 144_000_000
    assert fragmentation_cost(Policy()) == 36_000
    assert idle_cost(Policy(planning_step=900, weights=Weights(idle=Fraction(1, 3)))) == 300_000


def test_the_score_is_the_sum_of_its_terms() -> None:
    score = Score(unfairness=1, express=2, idle=4, lost_work=8, spread=16, fragmentation=32, order=64)
    assert score.total == 127
    assert list(score.as_dict()) == ["unfairness", "express", "idle", "lost_work", "spread", "fragmentation", "order"]


@pytest.mark.parametrize(
    ("fields", "amount"),
    [
        # 8 GPUs, restarted in 300 s: 2,400 GPU-seconds; bounds 60 x 8 = 480 and 4 x 3,600 x 8 = 115,200.
        pytest.param({"checkpoint_on_notice": True}, Fraction(2400), id="restart only"),
        pytest.param({"checkpoint_on_notice": True, "preempted": 2}, Fraction(3 * 2400), id="stopped twice before"),
        pytest.param({"checkpoint_on_notice": True, "restart_time": 0}, Fraction(480), id="at least"),
        pytest.param({"last_checkpoint": NOW - 100}, Fraction(800 + 2400), id="since the checkpoint"),
        pytest.param({"since": 50_000}, Fraction(115_200), id="at most"),
        pytest.param({"since": 50_000, "resumable": False, "preempted": 3}, Fraction(4 * (400_000 + 2400)), id="last try"),
        pytest.param({"checkpoint_on_notice": True, "charged": False}, Fraction(240), id="uncharged: a tenth"),
        pytest.param({"since": 50_000, "charged": False}, Fraction(11_520), id="uncharged: a tenth of the most"),
    ],
)
def test_what_a_stop_costs(fields: dict[str, Any], amount: Fraction) -> None:
    ent = entitle(snapshot([node("n")], [allocation("A")], [running("w", "n", gpus=8, **fields)]))
    assert ent.works.lost_cost.tolist() == [round_half_up(amount * 1500)]


def test_lost_gpu_seconds_leave_the_restart_out() -> None:
    ent = entitle(snapshot([node("n")], [allocation("A")], [running("w", "n", since=100, gpus=8), work("x")]))
    assert ent.works.lost_gpu_seconds.tolist() == [800, 0]
    assert ent.works.lost_cost.tolist() == [(800 + 2400) * 1500, 0]


def order_costs(*works: Workload, usage: tuple[UsageRecord, ...] = (), **budgets: int) -> dict[str, int]:
    shares = [allocation(leaf, share) for leaf, share in (budgets or {"A": 1}).items()]
    ent = entitle(snapshot([node("n1"), node("n2")], shares, works, usage))
    return {one.id: int(cost) for one, cost in zip(ent.snapshot.workloads, ent.works.order_cost, strict=True)}


def test_order_inside_a_leaf() -> None:
    # T x 1000 / 1000 = 3,600 per GPU, times (3 - rank) / 3: the urgent one first, then the one that runs, then the late.
    works = [
        work("late", gpus=2, submit_time=NOW),
        running("runs", "n1", gpus=2),
        work("urgent", gpus=2, submit_time=NOW, priority=1),
        work("other", "B", gpus=2),
    ]
    assert order_costs(*works, A=1, B=1) == {"urgent": 7200, "runs": 4800, "late": 2400, "other": 7200}


def test_order_of_unallocated_work() -> None:
    # Used per share: A 100 / 1, B 150 / 2. So B first, inside a leaf the small one; ranks 0, 1, 2, 3 of 4.
    usage = (
        UsageRecord(id="a", allocation="A", pool="p", gpus=1, start=NOW - 100, end=NOW, charged=False),
        UsageRecord(id="b", allocation="B", pool="p", gpus=1, start=NOW - 150, end=NOW),
    )
    works = [
        work("a1", min_runtime=0),
        work("b1", "B", gpus=4, min_runtime=0, submit_time=1),
        work("b2", "B", gpus=2, min_runtime=0, submit_time=2),
        work("c1", "C", min_runtime=0),
        work("x"),
    ]
    costs = order_costs(*works, usage=usage, A=1, B=2, C=0)
    assert costs == {"b2": 2 * 3600, "b1": 4 * 2700, "a1": 1800, "c1": 900, "x": 3600}


def test_what_can_never_start_has_no_rank() -> None:
    assert order_costs(work("a", pools=("x",)), work("b")) == {"a": 0, "b": 3600}


def test_order_costs_beyond_64_bits_are_exact() -> None:
    # The weight has a denominator of 10^18, so that 3,600 x 1000 x 10^18 overflows int64 long before it is divided.
    weight = Fraction(10**18 + 1, 10**18)
    policy = Policy(weights=Weights(order=weight))
    works = [work(f"w{i}", gpus=8) for i in range(3)]
    ent = entitle(snapshot([node("n1")], [allocation("A")], works, policy=policy))
    assert ent.works.order_cost.tolist() == [round_half_up(weight * 3_600_000 * 8 * (3 - i) / 3) for i in range(3)]


LEVELS = ("cluster", "su", "leaf", "node")
SLOW = {"su": Fraction(1, 20), "leaf": Fraction(1, 50)}


def tree_of_nodes(*works: Workload, gpus: int = 8) -> Any:
    """Two su of two leaves of two nodes each: n0 .. n7."""
    nodes = [node(f"n{i}", gpus, domains=("c", f"s{i // 4}", f"l{i // 2}")) for i in range(8)]
    return entitle(snapshot(nodes, [allocation("A")], works, levels=LEVELS, slowdown=SLOW))


@pytest.mark.parametrize(
    ("preferred", "slowdown"),
    [
        # 32 GPUs x 3,600,000 = 115,200,000 per unit of slowdown.
        pytest.param(None, (0, Fraction(1, 20), Fraction(1, 50), 0), id="no wish"),
        pytest.param("leaf", (0, Fraction(1, 10), Fraction(1, 25), 0), id="leaf: doubled there and above"),
        pytest.param("su", (0, Fraction(1, 10), Fraction(1, 50), 0), id="su: not below"),
        pytest.param("node", (0, Fraction(1, 10), Fraction(1, 25), Fraction(1, 25)), id="without an entry: a fiftieth"),
    ],
)
def test_spread_by_level(preferred: str | None, slowdown: tuple[Fraction, ...]) -> None:
    ent = tree_of_nodes(work("w", gpus=32, topology=TopologyWish(preferred=preferred)))
    costs = spread_costs(ent, 0, 0)
    assert costs.per_domain.tolist() == [int(115_200_000 * rate) for rate in slowdown]
    assert costs.fewest.tolist() == [1, 1, 2, 4]


def test_spread_of_a_placement() -> None:
    # 4 nodes fit one su and two leaves; these touch both su and three leaves: one too many of each.
    ent = tree_of_nodes(work("w", gpus=32))
    assert spread_cost(ent, 0, np.array([0, 1, 2, 3])) == 0
    assert spread_cost(ent, 0, np.array([0, 1, 2, 4])) == 5_760_000 + 2_304_000


def whole_names(ent: Any, level: int) -> set[str]:
    whole = whole_before(ent)[level]
    return {ent.layout.domain_paths[level][domain][-1] for domain in whole.nonzero()[0]}


def test_what_is_wholly_free() -> None:
    ent = tree_of_nodes(running("a", "n0"), running("b", "n4", charged=False, min_runtime=0))
    assert whole_names(ent, 0) == set()
    assert whole_names(ent, 1) == set()
    assert whole_names(ent, 2) == {"l1", "l3"}
    assert whole_names(ent, 3) == {"n1", "n2", "n3", "n5", "n6", "n7"}


def test_what_starts_or_stops_now_does_not_change_what_was_free() -> None:
    started = running("a", "n0", since=0, granted_at=NOW)
    stopped = work("b", stopped=LastStop(at=NOW, pool="p", gpus=1, charged=True, placement={"n4": 1}))
    assert whole_names(tree_of_nodes(started, stopped), 2) == {"l0", "l1", "l3"}
    unknown = replace(stopped, stopped=LastStop(at=NOW, pool="p", gpus=1, charged=True))
    assert whole_names(tree_of_nodes(unknown), 2) == {"l0", "l1", "l2", "l3"}


def test_nodes_that_take_no_work_and_other_pools_stand_apart() -> None:
    nodes = [node("a", pool="p"), drained("b", pool="p"), node("c", pool="q"), node("d", pool="q")]
    nodes = [replace(one, domains=("c", "l" if one.name < "d" else "m")) for one in nodes]
    ent = entitle(snapshot(nodes, [allocation("A")], [], levels=("cluster", "leaf", "node")))
    # Leaf l in pool p has b, which drains; in pool q it has c alone.
    assert whole_before(ent)[1].tolist() == [[False, True], [False, True]]
    assert whole_before(ent)[2].tolist() == [[True, False], [False, False], [False, True], [False, True]]


def test_a_cluster_of_nodes_only() -> None:
    ent = entitle(snapshot([replace(node("a"), domains=())], [allocation("A")], [], levels=("node",)))
    assert [whole.tolist() for whole in whole_before(ent)] == [[[True]]]


@given(st.integers(0, 20), st.integers(1, 9), st.integers(0, 4), st.booleans())
def test_a_stop_costs_what_its_formula_says(hours: int, gpus: int, preempted: int, charged: bool) -> None:
    gpus = min(gpus, 8)
    one = running("w", "n", since=hours * HOUR, gpus=gpus, preempted=preempted, charged=charged)
    assert isinstance(one.run, Run)
    ent = entitle(snapshot([node("n")], [allocation("A")], [one]))
    raw = (gpus * hours * HOUR + 300 * gpus) * (1 + preempted)
    bounded = min(max(raw, 60 * gpus), 4 * HOUR * gpus)
    assert ent.works.lost_cost.tolist() == [round_half_up(Fraction(bounded * 1500) / (1 if charged else 10))]
