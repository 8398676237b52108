"""The budget tree: its order, its weights, and what it refuses."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from allocator.domain import Allocation, SnapshotError
from allocator.entitlement.tree import NO_LIMIT, BudgetTree, build_tree


def vertex(name: str, parent: str | None = None, share: Fraction | int = 1, **more: object) -> Allocation:
    return Allocation(id=name, parent=parent, share=Fraction(share), **more)  # type: ignore[arg-type]


@pytest.fixture
def tree() -> BudgetTree:
    """Two programs, the first with two projects, one of them with two researchers; listed upside down."""
    return build_tree(
        [
            vertex("base.train.bob", "base.train", funds=False),
            vertex("base.train.ann", "base.train", funds=False),
            vertex("base.train", "base", Fraction("0.65"), share_by_pool={"b200": Fraction(0)}),
            vertex("base.data", "base", Fraction("0.35"), gpu_limit=16),
            vertex("rl", None, 22),
            vertex("base", None, 44),
        ],
        ["b200", "h100"],
        orphans=["gone", "base", "gone"],
    )


def test_parents_stand_before_children_and_siblings_side_by_side(tree: BudgetTree) -> None:
    assert tree.ids == ("", "base", "rl", "base", "gone", "base.data", "base.train", "base.train.ann", "base.train.bob")
    assert tree.parent.tolist() == [-1, 0, 0, 0, 0, 1, 1, 6, 6]
    assert tree.children[:2] == ((1, 2, 3, 4), (5, 6))
    assert tree.depth.tolist() == [0, 1, 1, 1, 1, 2, 2, 3, 3]
    assert [rows.tolist() for rows in tree.order_by_depth] == [[0], [1, 2, 3, 4], [5, 6], [7, 8]]
    assert [level.parents.tolist() for level in tree.sets] == [[0], [1], [6]]


def test_leaves_and_paths(tree: BudgetTree) -> None:
    assert np.flatnonzero(tree.is_leaf).tolist() == [2, 3, 4, 5, 7, 8]
    assert tree.path(7) == (7, 6, 1)
    assert tree.funding_path(7) == (6, 1)
    assert tree.path(0) == ()
    assert tree.gpu_limit.tolist() == [NO_LIMIT] * 5 + [16] + [NO_LIMIT] * 3


def test_orphans_are_leaves_of_share_zero_without_a_budget(tree: BudgetTree) -> None:
    assert tree.orphans == {"base": 3, "gone": 4}
    assert [tree.funds[v] for v in (0, 3, 4)] == [False, False, False]
    assert tree.weight[3:5].tolist() == [[0, 0], [0, 0]]
    assert tree.index["base"] == 1
    assert tree.index["gone"] == 4


def test_work_counts_at_its_leaf_or_its_orphan(tree: BudgetTree) -> None:
    # "base" is an inner vertex: its running work stands at the orphan of that id.
    assert [tree.leaf_of(name) for name in ("rl", "base", "gone", "base.train", "", "unknown")] == [2, 3, 4, -1, -1, -1]


def test_weights_are_integers_without_common_divisor(tree: BudgetTree) -> None:
    assert tree.weight[[1, 2], 0].tolist() == [2, 1]
    # In b200 only the data project has a share.
    assert tree.weight[[5, 6]].tolist() == [[1, 7], [0, 13]]


def test_path_shares_are_exact_products(tree: BudgetTree) -> None:
    assert tree.path_share(0, 0) == 1
    assert tree.path_share(1, 0) == Fraction(2, 3)
    assert tree.path_share(7, 1) == Fraction(2, 3) * Fraction(13, 20) / 2
    assert tree.path_share(7, 0) == 0
    assert tree.path_share(4, 0) == 0


def test_shares_that_are_all_zero_stay_zero() -> None:
    tree = build_tree([vertex("a", None, 0), vertex("b", None, 0)], ["p"])
    assert tree.weight[1:].tolist() == [[0], [0]]
    assert [tree.path_share(v, 0) for v in (1, 2)] == [0, 0]


@pytest.mark.parametrize("kind", [np.int64, object])
def test_subtree_sums(tree: BudgetTree, kind: type) -> None:
    values: npt.NDArray[Any] = np.array([[1, 10 * v] for v in range(9)]).astype(kind)
    total = tree.sum_up(values)
    assert total[:, 0].tolist() == [9, 5, 1, 1, 1, 1, 3, 1, 1]
    assert total[6].tolist() == [3, 60 + 70 + 80]
    assert values[0].tolist() == [1, 0]


def test_arrays_are_read_only(tree: BudgetTree) -> None:
    for array in (tree.parent, tree.is_leaf, tree.funds, tree.gpu_limit, tree.weight, tree.share, tree.depth):
        assert not array.flags.writeable


def test_an_empty_tree_is_a_root_that_is_no_leaf() -> None:
    tree = build_tree([], ["p"])
    assert len(tree) == 1
    assert not tree.is_leaf[0]
    assert tree.sum_up(np.array([[3]])).tolist() == [[3]]


def test_refuses_an_id_that_stands_twice() -> None:
    with pytest.raises(SnapshotError, match=r"\$\.budgets\[1\]\.id: the id 'a' is taken"):
        build_tree([vertex("a"), vertex("a")], ["p"])


def test_refuses_cycles_and_unknown_parents() -> None:
    with pytest.raises(SnapshotError) as error:
        build_tree([vertex("a", "b"), vertex("b", "a"), vertex("c", "nobody"), vertex("d")], ["p"], ["a"])
    assert [issue.path for issue in error.value.issues] == [f"$.budgets[{i}].parent" for i in range(3)]


def test_sums_and_extremes_over_subtrees_and_paths(tree: BudgetTree) -> None:
    values = np.array([[2**v, -v] for v in range(len(tree))], dtype=np.int64)
    below = [{v for v in range(len(tree)) if v == top or top in (*tree.path(v), 0)} for top in range(len(tree))]
    above = [{v, *tree.path(v), 0} for v in range(len(tree))]
    assert tree.sum_up(values).tolist() == [values[sorted(own)].sum(axis=0).tolist() for own in below]
    assert tree.sum_down(values).tolist() == [values[sorted(own)].sum(axis=0).tolist() for own in above]
    assert tree.least_of(values).tolist() == [values[sorted(own)].min(axis=0).tolist() for own in below]
    assert tree.most_of(values).tolist() == [values[sorted(own)].max(axis=0).tolist() for own in below]
    assert tree.sum_up(values.astype(object)).tolist() == tree.sum_up(values).tolist()


def test_all_sets_as_one(tree: BudgetTree) -> None:
    every = tree.every_set
    assert (every.first, every.stop) == (1, len(tree))
    assert every.parents.tolist() == [0, 1, 6]
    assert every.owner.tolist() == [0, 0, 0, 0, 1, 1, 2, 2]
    assert every.starts.tolist() == [0, 4, 6]


def test_a_tree_without_vertices_has_sums_too() -> None:
    empty = build_tree([], ["h100"])
    assert empty.sum_up(np.array([[3]])).tolist() == [[3]]
    assert empty.least_of(np.array([[3]])).tolist() == [[3]]
    assert empty.every_set.starts.tolist() == []
    assert (dict(empty.leaves), empty.own_leaves) == ({}, frozenset())
