"""Random trees with floors, demands and usage, built so that they are consistent."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from hypothesis import strategies as st

from allocator.domain import Allocation
from allocator.entitlement.tree import BudgetTree, build_tree
from allocator.entitlement.waterfill import FillResult, fill
from allocator.topology.layout import IntArray
from tests.entitlement.reference import MILLI, Child

H = 14_400


@dataclass(frozen=True)
class Case:
    """A tree with what its leaves have; arrays by vertex and pool (rows of inner vertices are sums)."""

    tree: BudgetTree
    capacity: IntArray
    usage: IntArray
    floor: IntArray
    demand: IntArray
    submit: IntArray
    horizon: int

    def fill(self) -> FillResult:
        return fill(self.tree, self.capacity, self.usage, self.floor, self.demand, self.horizon, self.submit)

    def children(self, pool: int) -> list[Child]:
        columns = (self.tree.weight, self.usage, self.floor, self.demand, self.submit)
        return [Child(*(int(column[v, pool]) for column in columns)) for v in range(len(self.tree))]


# Few values, so that ties and bounds that coincide are common; some so large that int64 cannot hold the products.
weights = st.one_of(st.integers(0, 3), st.sampled_from([0, 1, 45, 65, 10**6, 10**18 + 1]))
usages = st.one_of(st.integers(0, 3).map(lambda n: n * H), st.integers(0, 10**6), st.sampled_from([0, 10**11, 10**15]))
horizons = st.sampled_from([1, 7, 600, H, 86_400])


@st.composite
def a_child(draw: st.DrawFn) -> Child:
    floor = draw(st.integers(0, 4))
    more = draw(st.one_of(st.integers(0, 8), st.sampled_from([0, 64, 100_000])))
    return Child(draw(weights), draw(usages), floor, floor + more, draw(st.integers(0, 3)))


@st.composite
def a_case(draw: st.DrawFn) -> Case:
    """A tree of up to three levels in one or two pools; floors and demands add up, some demands are capped."""
    budgets: list[Allocation] = []
    parents: list[str | None] = [None]
    pools = ["p", "q"][: draw(st.integers(1, 2))]
    for depth in range(draw(st.integers(1, 3))):
        parents_of_next: list[str | None] = []
        for above in parents:
            for i in range(draw(st.integers(0 if depth else 1, 4))):
                budgets.append(_vertex(draw, f"{above or ''}/{i}", above, pools))
                parents_of_next.append(budgets[-1].id)
        parents = parents_of_next
    tree = build_tree(budgets, pools)
    leaves = [[draw(a_child()) if tree.is_leaf[v] else Child(0, 0, 0, 0) for _ in pools] for v in range(len(tree))]
    usage, floor, demand = (
        tree.sum_up(np.array([[getattr(child, name) for child in row] for row in leaves], dtype=np.int64))
        for name in ("usage", "floor", "demand")
    )
    limit = np.array([[draw(st.sampled_from([10**6, 10**6, 6, 0])) for _ in pools] for _ in leaves], dtype=np.int64)
    for v in range(len(tree) - 1, -1, -1):  # children first
        below = list(tree.children[v])
        demand[v] = np.maximum(floor[v], np.minimum(demand[below].sum(axis=0) if below else demand[v], limit[v]))
    submit = np.array([[child.submit for child in row] for row in leaves], dtype=np.int64)
    capacity = np.array([draw(st.one_of(st.integers(0, 40), st.integers(0, 10**5))) * MILLI for _ in pools], dtype=np.int64)
    return Case(tree, capacity, usage, floor, demand, submit, draw(horizons))


def _vertex(draw: st.DrawFn, name: str, above: str | None, pools: list[str]) -> Allocation:
    by_pool = {pool: Fraction(draw(weights)) for pool in pools if draw(st.booleans())}
    return Allocation(id=name, parent=above, share=Fraction(draw(weights), draw(st.integers(1, 3))), share_by_pool=by_pool)
