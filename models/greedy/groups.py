"""What the relaxation counts: forms of units, groups of classes, and what units of a size can use of one node."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from allocator.epoch.problem import EpochProblem
from allocator.models.greedy.emptied import Emptied, emptied, hard_classes
from allocator.models.greedy.patterns import Bundle, Patterns
from allocator.topology.layout import GPUS, UNLIMITED, IntArray

MOST_CLASSES = 400
"""Beyond so many classes those of equal room are one: the relaxation gets weaker, and stays fast."""


def forms_of(problem: EpochProblem) -> tuple[IntArray, IntArray]:
    """Shapes that need the same of the same nodes are one form: the form of each shape, and the first shape of each form.

    Express shapes are forms of their own where they are what charged work without a licence may stop for.
    """
    apart = not problem.victims.licensed.all()
    index: dict[tuple[bytes, bytes, bool], int] = {}
    form: list[int] = []
    first: list[int] = []
    for s in range(len(problem.shapes.pool)):
        key = (
            problem.shapes.need[:, s].tobytes(),
            problem.shapes.open_to[s].tobytes(),
            apart and bool(problem.shapes.express[s]),
        )
        if key not in index:
            index[key] = len(first)
            first.append(s)
        form.append(index[key])
    return np.array(form, dtype=np.int64), np.array(first, dtype=np.int64)


def pairs_of_equals(left: IntArray, right: IntArray) -> tuple[IntArray, IntArray]:
    """All pairs of positions at which the two hold the same, by the first and then by the second."""
    order = np.argsort(right, kind="stable")
    begin, end = (np.searchsorted(right[order], left, side=side) for side in ("left", "right"))
    count = end - begin
    first = np.repeat(np.arange(len(left)), count)
    nth = np.arange(len(first)) - np.repeat(np.cumsum(count) - count, count)
    return first, order[begin[first] + nth]


class Groups:
    """Classes that one set of capacity rows covers.

    Nodes that are wholly free or held by one victim go together, without loss, and so do nodes of equal room whose patterns are
    known.

    Attributes
    ----------
    of_class
        The group of each class.
    most, free
        Units of each form and what is free, shapes (num_forms, num_groups) and (3, num_groups).
    victim, leaves_in, leaves
        Victim `victim[i]` leaves `leaves[:, i]` in group `leaves_in[i]`.
    node, cell
        The node of a group that is one node, -1 of all others, and the cell of its first class, shape (num_groups,).
    bundles, bundled
        What the nodes of group `bundled[i]` can hold: these need no other row.
    cuts
        Each column is one of `_cuts`, for the others.

    Parameters
    ----------
    form, first
        As of `forms_of`.
    merged
        Whether many classes are merged though that loses something: weaker, and faster.
    level
        The finest level whose domains stay apart; -1: none.
    """

    def __init__(self, problem: EpochProblem, form: IntArray, first: IntArray, *, merged: bool = True, level: int = -1) -> None:
        classes, need = problem.classes, problem.shapes.need[:, first]
        empty = emptied(problem, first, level)
        many = merged and len(classes.nodes) > MOST_CLASSES
        self.bundles = _bundles(problem, form, need, empty, apart=not many)
        group = _group(many, problem, empty.kind, self.bundles)
        num_groups = int(group.max(initial=-1)) + 1
        self.of_class = group
        self.bundled = np.array([group[own.classes[0]] for own in self.bundles], dtype=np.int64)
        self.most = np.zeros((len(first), num_groups), dtype=np.int64)
        self.free = np.zeros((3, num_groups), dtype=np.int64)
        _add_columns(self.most, group, empty.units * classes.size)
        _add_columns(self.free, group, np.minimum(classes.free, UNLIMITED) * classes.size)
        alone = (np.bincount(group, minlength=num_groups)[group] == 1) & (classes.size == 1)
        self.node, self.cell = np.full(num_groups, -1), np.zeros(num_groups, dtype=np.int64)
        self.node[group[alone]] = [classes.nodes[k][0] for k in np.flatnonzero(alone)]
        self.cell[group[::-1]] = classes.cell[::-1]
        self.victim, self.leaves_in = empty.victim, group[empty.held_in]
        self.leaves = empty.need * classes.size[empty.held_in]
        cuts = list(_cuts(problem, group, empty, need[GPUS], self.bundled)) if not many else []
        self.cuts: IntArray = np.array(cuts, dtype=np.int64).reshape(-1, 5).T


def _add_columns(total: IntArray, index: IntArray, columns: IntArray) -> None:
    for row, own in zip(total, columns, strict=True):
        np.add.at(row, index, own)


def _bundles(problem: EpochProblem, form: IntArray, need: IntArray, empty: Emptied, *, apart: bool) -> list[Bundle]:
    """Hard classes of one kind with their patterns, where these are not too many.

    Classes with a victim that has no licence stay apart if that is asked for: it matters on whose nodes express work starts.
    """
    wanted = np.zeros(need.shape[1], dtype=np.int64)
    np.add.at(wanted, form[problem.offers.shape], problem.offers.units)
    hard = np.flatnonzero(hard_classes(problem, empty, need, wanted)).tolist()
    patterns, licensed = Patterns(problem, need, wanted), problem.victims.licensed
    members: dict[Hashable, list[int]] = {}
    for k in hard:
        alone = apart and not all(licensed[r] for r, _ in problem.classes.residents[k])
        members.setdefault(k if alone else empty.kind[k], []).append(k)
    found = (
        patterns.bundle(classes, np.flatnonzero(empty.units[:, classes[0]]).tolist(), empty.room[:, classes[0]])
        for classes in members.values()
    )
    return [bundle for bundle in found if bundle is not None]


def _holders(problem: EpochProblem) -> IntArray:
    """Victims on each class; one without a licence counts as many, because it matters which of its nodes is taken."""
    weight = np.where(problem.victims.licensed, 1, 2)
    return np.array([sum(int(weight[r]) for r, _ in own) for own in problem.classes.residents], dtype=np.int64)


def _group(many: bool, problem: EpochProblem, kind: Sequence[Hashable], bundles: Sequence[Bundle]) -> IntArray:
    """The group of each class: that of its bundle, shared with all of its kind where that loses nothing, or its own."""
    free, holders = problem.classes.free[GPUS], _holders(problem)
    alike = np.full(len(free), many) | (holders == 0) | ((holders == 1) & (free == 0))
    bundle_of = {k: number for number, bundle in enumerate(bundles) for k in bundle.classes.tolist()}
    index: dict[Hashable, int] = {}
    found = []
    for k in range(len(free)):
        key = ("bundle", bundle_of[k]) if k in bundle_of else kind[k] if alike[k] else k
        found.append(index.setdefault(key, len(index)))
    return np.array(found, dtype=np.int64)


def _cuts(
    problem: EpochProblem, group: IntArray, empty: Emptied, need: IntArray, bundled: IntArray
) -> Iterator[tuple[int, int, int, int, int]]:
    """(group, size, victim, GPUs that units of at least this size can use while the victim stays, and when all leave)."""
    room, classes = empty.room[GPUS], problem.classes
    num_victims = np.array([len(own) for own in classes.residents], dtype=np.int64)
    for g in sorted(set(group.tolist()) - set(bundled.tolist())):
        members = np.flatnonzero(group == g)
        sizes = sorted(set(need[(empty.units[:, members] > 0).any(axis=1)].tolist()))
        if any(large % small for small, large in pairwise(sizes)):
            continue
        if not num_victims[members].any():
            yield from _cuts_of_free(g, room[members], classes.size[members], sizes)
        elif len(members) == 1 and classes.size[members[0]] == 1:
            yield from _cuts_of_held(g, int(room[members[0]]), classes.residents[int(members[0])], sizes)


def _cuts_of_free(g: int, whole: IntArray, nodes: IntArray, sizes: list[int]) -> Iterator[tuple[int, int, int, int, int]]:
    """Of classes without victims: every node is used up to a multiple of the size."""
    for size in sizes:
        most = int((whole // size * size * nodes).sum())
        if 0 < most < int((whole * nodes).sum()):
            yield g, size, -1, most, most


def _cuts_of_held(
    g: int, whole: int, residents: Sequence[tuple[int, tuple[int, int, int]]], sizes: list[int]
) -> Iterator[tuple[int, int, int, int, int]]:
    """Of one node: what a victim holds may cut more from the multiple than its own GPUs."""
    for size in sizes:
        most = whole // size * size
        if 0 < most < whole:
            yield g, size, -1, most, most
        for r, own in residents:
            least = (whole - own[GPUS]) // size * size
            if most > least and whole - own[GPUS] > least:
                yield g, size, r, least, most
