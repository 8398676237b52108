"""Curves of deviation with memory: against the formula, and hand-sized cases."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from allocator.domain import Allocation, Policy, Weights
from allocator.entitlement.curve import MAX_SEGMENTS, Curve, CurveTable, build_curves
from allocator.entitlement.tree import build_tree
from allocator.entitlement.waterfill import fill
from allocator.topology.layout import IntArray
from tests.entitlement.cases import Case, H, a_case
from tests.entitlement.reference import MILLI, Child, deviation, fill_pool, shares_and_debts

T = 3_600
K = 2 * T * MILLI
"""Cost of one GPU for one step of planning at debt 0, 1/1000 GPU-second, with the default weight."""


def curves_of(case: Case, held: IntArray, policy: Policy) -> Mapping[tuple[int, int], Curve]:
    capacity = np.maximum(case.capacity // MILLI, case.demand[0])
    return build_curves(case.tree, policy, capacity, case.usage, held, case.demand, case.fill())


def flat(children: list[Child], gpus: int, held: list[int] | None = None, policy: Policy | None = None) -> list[Curve | None]:
    """The curves of one set of siblings below the root."""
    budgets = [Allocation(id=f"{i:03}", parent=None, share=Fraction(child.weight)) for i, child in enumerate(children)]
    rows = np.array([[0] * 3, *([c.usage, c.floor, c.demand] for c in children)], dtype=np.int64)
    usage, floor, demand = (rows[:, [i]] for i in range(3))
    tree = build_tree(budgets, ["p"])
    filled = fill(tree, np.array([MILLI * gpus]), usage, floor, demand, H, 0 * usage)
    now = np.array([[0], *([h] for h in held or [0] * len(children))], dtype=np.int64)
    curves = build_curves(tree, policy or Policy(), np.array([gpus]), usage, now, demand, filled)
    return [curves.get((v, 0)) for v in range(1, len(tree))]


@st.composite
def a_case_with_held(draw: st.DrawFn) -> tuple[Case, IntArray]:
    case = draw(a_case())
    leaves = [[draw(st.integers(0, 12)) if case.tree.is_leaf[v] else 0 for _ in case.capacity] for v in range(len(case.tree))]
    return case, case.tree.sum_up(np.array(leaves, dtype=np.int64))


weights_of_unfairness = st.sampled_from([Fraction(2), Fraction(1, 3), Fraction(7)])


@given(a_case_with_held(), weights_of_unfairness, st.sampled_from([None, 86_400]))
def test_agrees_with_the_formula_at_its_breakpoints(
    drawn: tuple[Case, IntArray], weight: Fraction, half_life: int | None
) -> None:
    case, held = drawn
    policy = Policy(horizon=case.horizon, half_life=half_life, weights=Weights(unfairness=weight))
    window = 604_800 if half_life is None else 124_649  # 86,400 s / ln 2 = 124,648.9
    curves = dict(curves_of(case, held, policy))
    entitled = case.fill().entitled
    for pool in range(len(case.capacity)):
        children = case.children(pool)
        filled = fill_pool(case.tree, pool, int(case.capacity[pool]), children, case.horizon)
        counts = longest_paths(case, pool)
        for vertex, below in enumerate(case.tree.children):
            result = filled[vertex]
            siblings = [children[child] for child in below]
            if result is None or sum(child.demand > 0 for child in siblings) < 2:
                continue
            handed_out = Fraction(int(entitled[vertex, pool]), MILLI)
            row = [int(held[child, pool]) for child in below]
            parts = shares_and_debts(siblings, result, row, handed_out, case.horizon, window)
            for child, milli, (share, debt) in zip(below, result.milli, parts, strict=True):
                if children[child].demand > 0:
                    unit = weight * T * MILLI / counts[child]
                    assert_follows(curves.pop((child, pool)), Fraction(milli, MILLI), share, debt, unit)
    assert not curves


def longest_paths(case: Case, pool: int) -> dict[int, int]:
    """The largest number of contributing vertices on a path through each vertex, path by path."""
    asks = case.demand[:, pool] > 0
    counts: dict[int, int] = {}
    for leaf in range(1, len(case.tree)):
        path = case.tree.path(leaf)
        number = sum(asks[v] and sum(asks[s] for s in case.tree.children[case.tree.parent[v]]) > 1 for v in path)
        counts |= {v: max(counts.get(v, 0), int(number)) for v in path}
    return counts


def assert_follows(curve: Curve, entitled: Fraction, share: Fraction | None, debt: Fraction, unit: Fraction) -> None:
    """The curve is the rounded formula: at its breakpoints, between two integers and far beyond."""
    exact = {x: unit * deviation(entitled, share, debt, x) for x in [*curve.points, curve.points[-1] + 1000]}
    upper = -(-entitled // 1)
    assert abs(curve.value(int(upper)) - unit * deviation(entitled, share, debt, int(upper))) <= Fraction(1, 2)
    for x, value in exact.items():
        # Each slope is off by half a unit at most.
        assert abs(curve.value(x) - value) <= Fraction(1 + abs(int(upper) - x), 2)
    assert sorted(curve.slopes) == list(curve.slopes)
    if share is not None:
        quadratic = [p for p in curve.points if entitled - 2 * share - 1 < p <= entitled]
        assert len(quadratic) - 1 <= MAX_SEGMENTS
        for left, right in pairwise(quadratic):
            assert right - left <= max(1, -(-2 * share // MAX_SEGMENTS) + 1)


@given(a_case_with_held())
def test_is_convex_and_never_negative(drawn: tuple[Case, IntArray]) -> None:
    case, held = drawn
    curves = list(curves_of(case, held, Policy(horizon=case.horizon)).values())
    table = CurveTable(curves)
    for number, curve in enumerate(curves):
        values = [curve.value(x) for x in range(curve.points[-1] + 3 if curve.points[-1] < 200 else 200)]
        assert table.values(np.full(len(values), number), np.arange(len(values))).tolist() == values
        steps = [b - a for a, b in pairwise(values)]
        assert steps == sorted(steps)
        assert min(values) >= 0
        assert len(curve.points) == len(curve.slopes)
        assert curve.points[0] == 0
        assert list(curve.points) == sorted(set(curve.points))


def test_equal_siblings_without_usage_owe_nothing() -> None:
    # 8 GPUs for two: e = f = 4, level 4 h, no debt. Quadratic from 4 - 8 < 0 on, so exact at every integer.
    first, second = flat([Child(1, 0, 0, 9), Child(1, 0, 0, 9)], 8)
    assert first is not None
    assert first == second
    assert [first.value(x) for x in range(6)] == [
        K * 6,  # 4 + 16 / 8
        K * 33 // 8,  # 3 + 9 / 8
        K * 5 // 2,
        K * 9 // 8,
        0,
        K // 20,
    ]


def test_the_quadratic_part_stops_rising_at_two() -> None:
    # X = 6, w = 1 and 5: f = 1 and 5. The first has used nothing, the second much: e = 6 and 0.
    poor, rich = flat([Child(1, 0, 0, 9), Child(5, 10**9, 0, 9)], 6)
    assert poor is not None
    assert rich is not None
    assert poor.points == (0, 4, 5, 6)
    # Distances 1 and 2 on the parabola (1/2 and 2), then straight: 2 + 2, 2 + 4, ...
    assert [poor.value(6 - y) for y in range(7)] == [K * n // 2 for n in (0, 3, 8, 14, 20, 26, 32)]
    assert (rich.points, rich.slopes, rich.value(0)) == ((0,), (K // 20,), 0)


def test_who_met_its_demand_is_in_debt_to_the_level() -> None:
    # The first wants 2 of 10 and gets them; the second rises to 8 GPUs, level 8 h. f = 5 for both.
    # Debt of the first: (8 h - 2 h) / (h * 5) = 6/5.
    first, second = flat([Child(1, 0, 0, 2), Child(1, 0, 0, 20)], 10)
    assert first is not None
    assert second is not None
    assert first.value(1) == K * (22 + 1) // 10  # 1 + 6/5 + 1/10
    assert second.value(7) == K * 11 // 10  # 1 + 1/10


def test_a_sibling_that_holds_more_than_it_is_owed_puts_the_others_in_debt() -> None:
    # Both want all 8 GPUs; e = 0 and 8, level 16 h. Where the first held 8 on its floor, level 32 h counts instead:
    children = [Child(1, 24 * H, 8, 8), Child(1, 8 * H, 0, 8)]
    calm, worried = flat(children, 8, [0, 0])[1], flat(children, 8, [8, 0])[1]
    assert calm is not None
    assert worried is not None
    # e of the second is 0 in both (the floor of the first takes all), so there is nothing below e to weigh.
    assert calm.slopes == worried.slopes == (K // 20,)
    # With 4 GPUs more, e = 4 and f = 6: L = 12 h (8 h used + 4 GPUs). The first sits at 24 h + 8 = 32 h, but holds what it
    # is owed.
    assert flat(children, 12, [8, 0])[1] == flat(children, 12, [0, 0])[1]
    # It held 9: L' = 32 h, so the second is (32 - 12) h behind, 20 / 6 horizons of its f.
    owed = flat(children, 12, [9, 0])[1]
    assert owed is not None
    assert owed.value(3) - owed.value(4) == round(K * (1 + Fraction(20, 6) + Fraction(1, 12)))


def test_debt_ends_at_the_window() -> None:
    # 42 horizons are a week. The first is thousands of horizons behind.
    first, _ = flat([Child(1, 0, 0, 1), Child(1, 10**9, 0, 9)], 4)
    assert first is not None
    assert first.slopes[0] == -(K * 43 + K // 4)  # 1 + 42 + 1 / (2 * 2)


def test_weight_zero_has_neither_debt_nor_curvature() -> None:
    free, _ = flat([Child(0, 0, 0, 4), Child(1, 0, 0, 2)], 6)
    assert free is not None
    assert (free.points, free.slopes) == ((0, 4), (-K, K // 20))


def test_where_no_weight_is_positive_f_is_one() -> None:
    first, second = flat([Child(0, 0, 0, 4), Child(0, 0, 0, 4)], 6)
    assert first is not None
    assert second is not None
    assert [first.value(4 - y) for y in range(4)] == [K * n // 2 for n in (0, 3, 8, 14)]
    assert [second.value(2 - y) for y in range(3)] == [K * n // 2 for n in (0, 3, 8)]


def test_a_part_of_a_gpu_mixes_both_sides() -> None:
    # e = 0.5 each, f = 1: from 0 (0.5 + 0.125) to 1 (0.05 * 0.5).
    first, _ = flat([Child(1, 0, 0, 1), Child(1, 0, 0, 1)], 1)
    assert first is not None
    assert (first.points, first.slopes, first.value(0)) == ((0, 1), (-K * 6 // 10, K // 20), K * 5 // 8)


def test_long_parabolas_have_eight_segments() -> None:
    first, _ = flat([Child(1, 0, 0, 1000), Child(1, 0, 0, 1000)], 1000)
    assert first is not None
    assert first.points == tuple(500 * step // 8 for step in range(9))


def test_nobody_contributes_without_a_sibling_that_asks() -> None:
    assert flat([Child(1, 0, 0, 4), Child(1, 0, 0, 0)], 6) == [None, None]
    assert flat([Child(1, 0, 0, 4)], 6) == [None]


def test_without_a_weight_in_the_policy_nobody_contributes() -> None:
    assert flat([Child(1, 0, 0, 4)] * 2, 6, policy=Policy(weights=Weights(unfairness=Fraction(0)))) == [None, None]


def test_no_breakpoint_lies_beyond_the_pool() -> None:
    # Floors that exceed the pool: e = 5 and 4 of 4 GPUs.
    first, second = flat([Child(1, 0, 5, 5), Child(1, 0, 4, 4)], 4)
    assert first is not None
    assert second is not None
    assert first.points[-1] == second.points[-1] == 4
    assert first.slopes[-1] < 0 < second.slopes[-1]
