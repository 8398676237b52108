"""The budget tree as arrays: who is whose child, and with which weight."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import gcd, lcm
from typing import Any

import numpy as np
import numpy.typing as npt

from allocator.domain import Allocation, Issue, SnapshotError
from allocator.topology.layout import BoolArray, IntArray

ROOT = 0
"""Index of the implicit root; its id is empty."""

NO_LIMIT = -1
"""The `gpu_limit` of a vertex that states none."""

ObjectArray = npt.NDArray[np.object_]


@dataclass(frozen=True, slots=True, eq=False)
class SiblingSets:
    """All sets of siblings of one depth. Siblings lie side by side, so that `ufunc.reduceat` sums a set.

    Attributes
    ----------
    first, stop
        The vertices of this depth are `first, ..., stop - 1`.
    starts
        Where each set begins, counted from `first`, shape (num_sets,).
    parents
        The vertex whose children a set holds, ascending, shape (num_sets,).
    owner
        The set of each vertex of this depth, shape (stop - first,).
    """

    first: int
    stop: int
    starts: IntArray
    parents: IntArray
    owner: IntArray

    @property
    def rows(self) -> slice:
        """The vertices of this depth as rows of an array of shape (num_vertices, ...)."""
        return slice(self.first, self.stop)


@dataclass(frozen=True, slots=True, eq=False)
class Subtrees:
    """The vertices in an order in which each subtree is one run: that of vertex v is `order[start[v]:stop[v]]`.

    `bounds` are start and stop of every vertex in turn.
    """

    order: IntArray
    start: IntArray
    stop: IntArray
    bounds: IntArray


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class BudgetTree:
    """Vertices by depth; inside a depth by parent; inside a set of siblings by id, orphans last. Index 0 is the root.

    So parents come before their children, siblings are neighbours, and among siblings the smaller index is the smaller id.
    The root is implicit: it is no allocation. Arrays are read-only.

    Attributes
    ----------
    ids
        Id of each vertex, "" for the root. An orphan may share its id with an inner vertex.
    index
        Vertex by id. Where an orphan shares its id with an inner vertex, the inner vertex; see `leaf_of`.
    orphans
        Leaf by id for running work whose allocation is unknown or not a leaf.
    parent
        Parent of each vertex, -1 for the root. Shape (num_vertices,), as all but `weight` and `share`.
    children
        Children of each vertex, ascending.
    is_leaf
        True for vertices without children, never for the root.
    funds
        True where a vertex holds a budget of its own; never for the root and for orphans.
    gpu_limit
        GPUs, NO_LIMIT where there is none.
    weight
        Shares of a set of siblings as Python integers without common divisor, by pool, shape (num_vertices, num_pools).
    share
        Product of the normalised shares from the root down, exact `Fraction`s, shape (num_vertices, num_pools).
    depth
        0 for the root.
    sets
        The sets of siblings of depth 1, 2, ... (`sets[0]` are the children of the root).
    every_set
        All of them at once.
    subtrees
        Which vertices lie below which.
    own_leaves, leaves
        Ids of the leaves of the budgets, and the leaf at which work of an allocation counts, by id: its own, else the orphan
        of that id.
    """

    ids: tuple[str, ...]
    index: Mapping[str, int]
    orphans: Mapping[str, int]
    parent: IntArray
    children: tuple[tuple[int, ...], ...]
    is_leaf: BoolArray
    funds: BoolArray
    gpu_limit: IntArray
    weight: ObjectArray
    share: ObjectArray
    depth: IntArray
    sets: tuple[SiblingSets, ...]
    every_set: SiblingSets
    subtrees: Subtrees
    own_leaves: frozenset[str]
    leaves: Mapping[str, int]
    paths: tuple[tuple[int, ...], ...]
    funding_paths: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        """Number of vertices, the root and the orphans included."""
        return len(self.ids)

    @property
    def order_by_depth(self) -> list[IntArray]:
        """The vertices of each depth, the root first."""
        return [np.array([ROOT]), *(np.arange(level.first, level.stop) for level in self.sets)]

    def path(self, vertex: int) -> tuple[int, ...]:
        """The vertices from this one up to, but without, the root."""
        return self.paths[vertex]

    def funding_path(self, vertex: int) -> tuple[int, ...]:
        """Those vertices of the path that fund."""
        return self.funding_paths[vertex]

    def path_share(self, vertex: int, pool: int) -> Fraction:
        """Product of the normalised shares from the root down to the vertex; 1 for the root."""
        share: Fraction = self.share[vertex, pool]
        return share

    def leaf_of(self, allocation: str) -> int:
        """The leaf at which work of an allocation counts: its own, else the orphan of that id, else -1."""
        return self.leaves.get(allocation, -1)

    def sum_up(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Subtree sums of values by vertex, shape (num_vertices, ...), as a new array."""
        running = np.zeros((len(values) + 1, *values.shape[1:]), dtype=values.dtype)
        values[self.subtrees.order].cumsum(axis=0, out=running[1:])
        total: npt.NDArray[Any] = running[self.subtrees.stop] - running[self.subtrees.start]
        return total

    def sum_down(self, values: IntArray) -> IntArray:
        """Sums of values by vertex over the path from the root to each vertex, shape (num_vertices, ...), as a new array."""
        change = np.zeros((len(values) + 1, *values.shape[1:]), dtype=values.dtype)
        change[self.subtrees.start] = values
        np.subtract.at(change, self.subtrees.stop, values)
        return np.asarray(np.cumsum(change, axis=0)[self.subtrees.start])

    def least_of(self, values: IntArray) -> IntArray:
        """Subtree minima of values by vertex, shape (num_vertices, ...), as a new array."""
        return self._of_subtrees(np.minimum, values)

    def most_of(self, values: IntArray) -> IntArray:
        """Subtree maxima."""
        return self._of_subtrees(np.maximum, values)

    def _of_subtrees(self, ufunc: np.ufunc, values: IntArray) -> IntArray:
        beyond = np.concatenate([values[self.subtrees.order], values[:1]])  # `stop` may be the number of vertices
        return np.asarray(ufunc.reduceat(beyond, self.subtrees.bounds, axis=0)[::2])


def build_tree(budgets: Sequence[Allocation], pools: Sequence[str], orphans: Sequence[str] = ()) -> BudgetTree:
    """Arrange the allocations as a tree.

    Parameters
    ----------
    budgets
        The allocations, in any order.
    pools
        Pool names; weights and shares have one column for each.
    orphans
        Ids of allocations that running work names although they are unknown or not leaves. Each becomes a leaf of share
        zero under the root that holds no budget.

    Raises
    ------
    SnapshotError
        If an id stands twice, or a vertex does not hang under the root.
    """
    _require_unique(budgets)
    strays = [Allocation(id=orphan, parent=None, share=Fraction(0), funds=False) for orphan in sorted(set(orphans))]
    vertices, parent, sets = _arrange(budgets, strays)
    weight = _weights(vertices, sets, pools)
    children = _children(parent)
    paths = _paths(parent)
    # Strays are the last children of the root.
    first_stray = 1 + len(children[ROOT]) - len(strays)
    orphan_index = {stray.id: first_stray + position for position, stray in enumerate(strays)}
    index = orphan_index | {v.id: idx for idx, v in enumerate(vertices) if not 0 <= idx - first_stray < len(strays)}
    return BudgetTree(
        ids=tuple(vertex.id for vertex in vertices),
        index=index,
        orphans=orphan_index,
        parent=frozen(parent),
        children=children,
        is_leaf=frozen(np.array([idx != ROOT and not below for idx, below in enumerate(children)])),
        funds=frozen(np.array([vertex.funds for vertex in vertices])),
        gpu_limit=frozen(np.array([NO_LIMIT if v.gpu_limit is None else v.gpu_limit for v in vertices], dtype=np.int64)),
        weight=frozen(weight),
        share=frozen(_path_shares(weight, parent, sets)),
        depth=frozen(np.array([len(path) for path in paths], dtype=np.int64)),
        sets=sets,
        every_set=_every_set(sets),
        subtrees=_subtrees(children),
        own_leaves=leaves_of(budgets),
        leaves=orphan_index | {name: idx for name, idx in index.items() if idx != ROOT and not children[idx]},
        paths=paths,
        funding_paths=tuple(tuple(idx for idx in path if vertices[idx].funds) for path in paths),
    )


def leaves_of(budgets: Sequence[Allocation]) -> frozenset[str]:
    """Ids of the allocations without children."""
    parents = {vertex.parent for vertex in budgets}
    return frozenset(vertex.id for vertex in budgets if vertex.id not in parents)


def frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array itself, read-only from now on."""
    array.setflags(write=False)
    return array


def _require_unique(budgets: Sequence[Allocation]) -> None:
    seen = {""}
    for position, allocation in enumerate(budgets):
        if allocation.id in seen:
            path, problem = f"$.budgets[{position}].id", f"the id {allocation.id!r} is taken"
            raise SnapshotError([Issue(path=path, problem=problem, remedy="give every allocation an id of its own")])
        seen.add(allocation.id)


def _arrange(
    budgets: Sequence[Allocation], strays: Sequence[Allocation]
) -> tuple[list[Allocation], IntArray, tuple[SiblingSets, ...]]:
    """Vertices in the order of the tree (the root first), their parents, and the sets of siblings by depth."""
    below: dict[str | None, list[Allocation]] = {}
    for allocation in sorted(budgets, key=lambda vertex: vertex.id):
        below.setdefault(allocation.parent, []).append(allocation)
    vertices = [Allocation(id="", parent=None, share=Fraction(1), funds=False)]
    parent = [-1]
    sets: list[SiblingSets] = []
    hanging = below.get(None, [])
    top = [*hanging, *strays]
    groups = [(ROOT, top)] if top else []
    while groups:
        first = len(vertices)
        sets.append(_sibling_sets(first, groups))
        for above, members in groups:
            vertices += members
            parent += [above] * len(members)
        known = 1 + len(hanging) if first == 1 else len(vertices)
        groups = [(idx, below[vertices[idx].id]) for idx in range(first, known) if vertices[idx].id in below]
    if len(vertices) != 1 + len(budgets) + len(strays):
        raise _unreachable(budgets, {vertex.id for vertex in [*hanging, *vertices[1 + len(top) :]]})
    return vertices, np.array(parent, dtype=np.int64), tuple(sets)


def _sibling_sets(first: int, groups: Sequence[tuple[int, Sequence[Allocation]]]) -> SiblingSets:
    sizes = np.array([len(members) for _, members in groups], dtype=np.int64)
    return SiblingSets(
        first=first,
        stop=first + int(sizes.sum()),
        starts=frozen(np.cumsum(sizes) - sizes),
        parents=frozen(np.array([above for above, _ in groups], dtype=np.int64)),
        owner=frozen(np.repeat(np.arange(len(groups)), sizes)),
    )


def _every_set(sets: Sequence[SiblingSets]) -> SiblingSets:
    """The sets of all depths as one: they lie side by side, each depth behind the one above it."""
    empty = np.zeros(0, dtype=np.int64)
    starts = np.concatenate([empty, *(level.first - 1 + level.starts for level in sets)])
    stop = sets[-1].stop if sets else 1
    return SiblingSets(
        first=1,
        stop=stop,
        starts=frozen(starts),
        parents=frozen(np.concatenate([empty, *(level.parents for level in sets)])),
        owner=frozen(np.repeat(np.arange(len(starts)), np.diff(starts, append=stop - 1))),
    )


def _subtrees(children: Sequence[Sequence[int]]) -> Subtrees:
    """Parents first, then their children one after the other, each with all that is below it."""
    order: list[int] = []
    waiting = [ROOT]
    while waiting:
        order.append(waiting.pop())
        waiting += reversed(children[order[-1]])
    start = np.empty(len(order), dtype=np.int64)
    start[order] = np.arange(len(order))
    size = np.ones(len(order), dtype=np.int64)
    for vertex in reversed(order):
        size[vertex] += sum(int(size[below]) for below in children[vertex])
    stop = start + size
    bounds = np.stack([start, stop], axis=1).ravel()
    return Subtrees(frozen(np.array(order, dtype=np.int64)), frozen(start), frozen(stop), frozen(bounds))


def _unreachable(budgets: Sequence[Allocation], reached: set[str]) -> SnapshotError:
    return SnapshotError(
        [
            Issue(
                path=f"$.budgets[{position}].parent",
                problem=f"allocation {allocation.id!r} does not hang under the root (parent {allocation.parent!r})",
                remedy="name an existing parent, and no vertex below the allocation itself",
            )
            for position, allocation in enumerate(budgets)
            if allocation.id not in reached
        ]
    )


def _children(parent: IntArray) -> tuple[tuple[int, ...], ...]:
    children: list[list[int]] = [[] for _ in parent]
    for vertex, above in enumerate(parent.tolist()):
        if above >= 0:
            children[above].append(vertex)
    return tuple(map(tuple, children))


def _paths(parent: IntArray) -> tuple[tuple[int, ...], ...]:
    paths: list[tuple[int, ...]] = [()]
    for vertex, above in enumerate(parent.tolist()):
        if above >= 0:
            paths.append((vertex, *paths[above]))
    return tuple(paths)


def _weights(vertices: Sequence[Allocation], sets: Sequence[SiblingSets], pools: Sequence[str]) -> ObjectArray:
    """Shares as integers, by vertex and pool; 1 for the root."""
    weight = np.ones((len(vertices), len(pools)), dtype=object)
    for first, stop in _spans(sets):
        siblings = vertices[first:stop]
        common = _integers([vertex.share for vertex in siblings])
        for pool, name in enumerate(pools):
            if any(name in vertex.share_by_pool for vertex in siblings):
                weight[first:stop, pool] = _integers([vertex.share_by_pool.get(name, vertex.share) for vertex in siblings])
            else:
                weight[first:stop, pool] = common
    return weight


def _spans(sets: Sequence[SiblingSets]) -> Iterator[tuple[int, int]]:
    """First vertex and end of every set of siblings."""
    for level in sets:
        bounds = [*(level.first + level.starts).tolist(), level.stop]
        yield from pairwise(bounds)


def _integers(shares: Sequence[Fraction]) -> list[int]:
    """The same proportions as integers without common divisor."""
    scale = lcm(*(share.denominator for share in shares))
    scaled = [share.numerator * (scale // share.denominator) for share in shares]
    divisor = gcd(*scaled) or 1
    return [value // divisor for value in scaled]


def _path_shares(weight: ObjectArray, parent: IntArray, sets: Sequence[SiblingSets]) -> ObjectArray:
    share = np.full(weight.shape, Fraction(0), dtype=object)
    share[ROOT] = Fraction(1)
    # Siblings and pools repeat the same product. Fractions are slow to hash; `share` keeps them, and so their ids, alive.
    known: dict[tuple[int, int, int], Fraction] = {}
    for level in sets:
        total = np.add.reduceat(weight[level.rows], level.starts, axis=0)[level.owner]
        for row, pool in np.argwhere(weight[level.rows] > 0).tolist():
            vertex = level.first + row
            above, part, whole = share[parent[vertex], pool], weight[vertex, pool], total[row, pool]
            key = (id(above), part, whole)
            if key not in known:
                known[key] = above * Fraction(part, whole)
            share[vertex, pool] = known[key]
    return share
