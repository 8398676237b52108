"""Water-filling against the exact reference, and the properties that the rules promise."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.domain import Allocation
from allocator.entitlement import waterfill
from allocator.entitlement.tree import build_tree
from allocator.entitlement.waterfill import fill
from tests.entitlement.cases import Case, H, a_case, a_child, usages, weights
from tests.entitlement.reference import MILLI, Child, fill_pool, fill_set


def flat(children: list[Child], gpus: int, horizon: int = H) -> tuple[list[int], Fraction | None]:
    """Entitlement in 1/1000 GPU and level, per unit of the given weights, of one set of siblings below the root."""
    budgets = [Allocation(id=f"{i:03}", parent=None, share=Fraction(child.weight)) for i, child in enumerate(children)]
    rows = np.array([[0] * 4, *([c.usage, c.floor, c.demand, c.submit] for c in children)], dtype=np.int64)
    usage, floor, demand, submit = (rows[:, [i]] for i in range(4))
    tree = build_tree(budgets, ["p"])
    result = fill(tree, np.array([MILLI * gpus]), usage, floor, demand, horizon, submit)
    level = result.level[1, 0]
    unit = next(
        (Fraction(tree.weight[i + 1, 0], child.weight) for i, child in enumerate(children) if child.weight), Fraction(1)
    )
    return result.entitled[1:, 0].tolist(), None if level is None else level * unit


@given(a_case())
def test_agrees_with_the_reference(case: Case) -> None:
    result = case.fill()
    for pool in range(len(case.capacity)):
        filled = fill_pool(case.tree, pool, int(case.capacity[pool]), case.children(pool), case.horizon)
        for vertex, below in enumerate(case.tree.children):
            if (expected := filled[vertex]) is None:
                continue
            assert result.entitled[list(below), pool].tolist() == expected.milli
            assert {result.level[child, pool] for child in below} == {expected.level}


@given(a_case())
def test_is_interior_exactly_where_the_level_decides(case: Case) -> None:
    result = case.fill()
    for pool in range(len(case.capacity)):
        for vertex, child in enumerate(case.children(pool)):
            level = result.level[vertex, pool]
            if vertex == 0 or level is None or child.weight == 0:
                assert not result.interior[vertex, pool]
                continue
            wanted = (level * child.weight - child.usage) / case.horizon
            if result.interior[vertex, pool]:
                assert child.floor <= wanted < child.demand
                assert abs(MILLI * wanted - int(result.entitled[vertex, pool])) < 1
            else:
                # What remains are bounds; a value that meets its floor exactly may be called either.
                assert result.entitled[vertex, pool] in (MILLI * child.floor, MILLI * child.demand)
                assert not child.floor < wanted < child.demand


@given(a_case())
def test_both_number_types_agree(case: Case) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(waterfill, "SAFE", 0)
        objects = case.fill()
    result = case.fill()
    assert (result.entitled == objects.entitled).all()
    assert (result.level == objects.level).all()
    assert (result.interior == objects.interior).all()


@given(a_case())
def test_adds_up_within_floors_and_demands(case: Case) -> None:
    entitled = case.fill().entitled
    for vertex, below in enumerate(case.tree.children):
        if below:
            rows = list(below)
            assert (MILLI * case.floor[rows] <= entitled[rows]).all()
            assert (entitled[rows] <= MILLI * case.demand[rows]).all()
            handed_out = np.minimum(entitled[vertex], MILLI * case.demand[rows].sum(axis=0))
            assert (entitled[rows].sum(axis=0) == np.maximum(handed_out, MILLI * case.floor[rows].sum(axis=0))).all()


children_lists = st.lists(a_child(), min_size=1, max_size=7)
gpu_counts = st.one_of(st.integers(0, 40), st.integers(0, 10**5))


@given(children_lists, gpu_counts)
def test_nobody_waits_below_a_sibling_that_is_not_on_its_floor(children: list[Child], gpus: int) -> None:
    exact = fill_set(children, MILLI * gpus, H).exact
    milli, _ = flat(children, gpus)
    for poor, rich in ((p, r) for p in range(len(children)) for r in range(len(children))):
        a, b = children[poor], children[rich]
        if min(a.weight, b.weight) > 0 and milli[poor] < MILLI * a.demand and milli[rich] > MILLI * b.floor:
            # Exact for the unrounded shares, which are within 1/1000 GPU of the integers.
            assert (b.usage + H * exact[rich]) * a.weight <= (a.usage + H * exact[poor]) * b.weight
            assert abs(milli[rich] - MILLI * exact[rich]) < 1


@given(children_lists, gpu_counts, st.fractions(Fraction(1, 1000), 1000))
def test_scaling_the_weights_changes_nothing(children: list[Child], gpus: int, factor: Fraction) -> None:
    budgets = [Allocation(id=f"{i:03}", parent=None, share=child.weight * factor) for i, child in enumerate(children)]
    tree = build_tree(budgets, ["p"])
    rows = np.array([[0] * 4, *([c.usage, c.floor, c.demand, c.submit] for c in children)], dtype=np.int64)
    usage, floor, demand, submit = (rows[:, [i]] for i in range(4))
    scaled = fill(tree, np.array([MILLI * gpus]), usage, floor, demand, H, submit)
    assert scaled.entitled[1:, 0].tolist() == flat(children, gpus)[0]


@given(children_lists, gpu_counts, st.randoms(use_true_random=False))
def test_renaming_moves_at_most_the_rounding_unit(children: list[Child], gpus: int, random: object) -> None:
    order = list(range(len(children)))
    random.shuffle(order)  # type: ignore[attr-defined]
    # The order among children of weight 0 that asked at the same time is by id: keep them apart.
    apart = [replace(child, submit=i) for i, child in enumerate(children)]
    plain, level = flat(apart, gpus)
    renamed, same_level = flat([apart[i] for i in order], gpus)
    assert same_level == level
    assert all(abs(renamed[new] - plain[old]) <= 1 for new, old in enumerate(order))


@given(a_case())
def test_the_order_of_the_input_does_not_matter(case: Case) -> None:
    # Ids decide where a vertex stands; the same tree built from a reversed list is the same tree.
    budgets = [Allocation(id=case.tree.ids[v], parent=case.tree.ids[case.tree.parent[v]] or None,
                          share=Fraction(1)) for v in range(1, len(case.tree))]  # fmt: skip
    assert build_tree(budgets, ["p"]).ids == build_tree(budgets[::-1], ["p"]).ids == case.tree.ids


@given(children_lists, gpu_counts, st.integers(0, 7), weights, usages)
def test_a_child_without_demand_changes_nothing(children: list[Child], gpus: int, place: int, weight: int, usage: int) -> None:
    idle = Child(weight, usage, 0, 0)
    plain, level = flat(children, gpus)
    among, same_level = flat([*children[:place], idle, *children[place:]], gpus)
    assert among[: min(place, len(children))] + among[min(place, len(children)) + 1 :] == plain
    assert same_level == level


@given(a_case(), st.integers(0, 100))
def test_a_chain_of_single_children_changes_nothing(case: Case, pick: int) -> None:
    tree = case.tree
    split = 1 + pick % (len(tree) - 1)
    # A new vertex takes the place of `split` below its parent and has it as its only child.
    budgets = []
    for v in range(1, len(tree)):
        above = tree.ids[tree.parent[v]] or None
        by_pool = {pool: Fraction(tree.weight[v, i]) for i, pool in enumerate(["p", "q"][: len(case.capacity)])}
        if v == split:
            link = replace(Allocation(id=tree.ids[v] + "'", parent=above, share=Fraction(0)), share_by_pool=by_pool)
            budgets.append(link)
            above = link.id
        budgets.append(Allocation(id=tree.ids[v], parent=above, share=Fraction(1), share_by_pool=by_pool))
    longer = build_tree(budgets, ["p", "q"][: len(case.capacity)])
    origin = [tree.index[name.rstrip("'")] for name in longer.ids]
    stretched = replace(
        case,
        tree=longer,
        usage=case.usage[origin],
        floor=case.floor[origin],
        demand=case.demand[origin],
        submit=case.submit[origin],
    )
    # A weight of 0 leaves an only child what the others leave: nobody. So does any other.
    assert (stretched.fill().entitled == case.fill().entitled[origin]).all()


@given(children_lists, gpu_counts, st.integers(1, 20))
def test_more_capacity_takes_from_nobody(children: list[Child], gpus: int, more: int) -> None:
    before = fill_set(children, MILLI * gpus, H)
    after = fill_set(children, MILLI * (gpus + more), H)
    assert all(b <= a for b, a in zip(before.exact, after.exact, strict=True))
    # Integers: to the unit that rounding may move.
    milli, larger = flat(children, gpus)[0], flat(children, gpus + more)[0]
    assert all(b - a <= 1 for b, a in zip(milli, larger, strict=True))


@given(children_lists, gpu_counts, st.integers(0, 6), st.integers(1, 20))
def test_asking_for_more_gives_nobody_else_more(children: list[Child], gpus: int, who: int, more: int) -> None:
    greedy = who % len(children)
    asked = [replace(c, demand=c.demand + more) if i == greedy else c for i, c in enumerate(children)]
    before, after = fill_set(children, MILLI * gpus, H), fill_set(asked, MILLI * gpus, H)
    assert all(a <= b for i, (b, a) in enumerate(zip(before.exact, after.exact, strict=True)) if i != greedy)
    milli, now = flat(children, gpus)[0], flat(asked, gpus)[0]
    assert all(a - b <= 1 for i, (b, a) in enumerate(zip(milli, now, strict=True)) if i != greedy)


def test_the_least_served_child_rises_first() -> None:
    # Levels at 0 GPUs: 4 h and 0. The second rises to 8 of 10 GPUs alone (2 x 4 h of usage), then both share the rest.
    assert flat([Child(1, 8 * H, 0, 10), Child(1, 0, 0, 10)], 10) == ([1000, 9000], Fraction(9 * H))


def test_equal_children_split_and_ties_go_by_id() -> None:
    assert flat([Child(1, 0, 0, 9)] * 3, 10)[0] == [3334, 3333, 3333]


def test_where_demand_is_met_the_level_is_the_smallest() -> None:
    assert flat([Child(1, 0, 0, 2), Child(2, 0, 0, 2)], 10) == ([2000, 2000], Fraction(2 * H))


def test_where_capacity_equals_demand_demand_is_met() -> None:
    assert flat([Child(1, 0, 0, 2), Child(2, 0, 0, 2)], 4) == ([2000, 2000], Fraction(2 * H))


def test_where_all_sit_at_bounds_the_level_is_that_of_the_next_gpu() -> None:
    # 4 GPUs: the first has all it wants (2), the second its floor (2) and wants more from level 10 h on.
    assert flat([Child(1, 0, 0, 2), Child(1, 8 * H, 2, 5)], 4) == ([2000, 2000], Fraction(10 * H))


def test_a_child_that_just_meets_its_demand_does_not_hold_the_level_down() -> None:
    # At level 2 h the first wants its 2 GPUs exactly, the second 1 too many, the third 1 too few: 3 GPUs. The next GPU
    # goes to the third, from level 3 h on.
    assert flat([Child(1, 0, 0, 2), Child(1, 0, 0, 1), Child(1, 3 * H, 0, 5)], 3) == ([2000, 1000, 0], Fraction(3 * H))


def test_floors_that_exceed_the_capacity_are_kept_with_an_alarm() -> None:
    tree = build_tree(
        [Allocation(id="a", parent=None, share=Fraction(1)), Allocation(id="b", parent=None, share=Fraction(1))], ["p"]
    )
    rows = np.array([[9], [4], [5]])
    result = fill(tree, np.array([8000]), 0 * rows, rows, rows + 1, H, 0 * rows)
    assert result.entitled[:, 0].tolist() == [9000, 4000, 5000]
    assert result.level[1, 0] == 4 * H
    assert result.alarm.tolist() == [True]
    assert fill(tree, np.array([9001]), 0 * rows, rows, rows + 1, H, 0 * rows).alarm.tolist() == [False]
    # A pool without GPUs is no alarm as long as it has promised none.
    assert fill(tree, np.array([0]), 0 * rows, 0 * rows, rows, H, 0 * rows).alarm.tolist() == [False]


def test_children_of_weight_zero_get_the_leftovers_earliest_first() -> None:
    children = [Child(0, 0, 1, 4, submit=7), Child(0, 0, 0, 4, submit=5), Child(1, 0, 0, 3), Child(0, 0, 0, 4, submit=5)]
    # Floor 1, then 3 for the weighted child, then 5 in order of submission, ties by id.
    assert flat(children, 9) == ([1000, 4000, 3000, 1000], Fraction(3 * H))
    assert flat(children, 3) == ([1000, 0, 2000, 0], Fraction(2 * H))


def test_without_a_weight_there_is_no_level() -> None:
    assert flat([Child(0, 0, 0, 4, submit=2), Child(0, 0, 0, 4, submit=1)], 6) == ([2000, 4000], None)


def test_without_demand_there_is_no_level() -> None:
    assert flat([Child(1, 0, 0, 0), Child(0, 0, 0, 2)], 6) == ([0, 2000], None)


def test_an_empty_tree_is_filled() -> None:
    zero = np.zeros((1, 1), dtype=np.int64)
    result = fill(build_tree([], ["p"]), np.array([8000]), zero, zero, zero, H, zero)
    assert result.entitled.tolist() == [[0]]
    assert result.level.tolist() == [[None]]
