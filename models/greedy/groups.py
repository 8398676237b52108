"""What the relaxation counts: forms of units, groups of classes, and what units of a size can use of one node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from allocator.epoch.problem import EpochProblem
from allocator.topology.layout import GPUS, UNLIMITED, BoolArray, IntArray

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
    """Classes that one capacity row covers: nodes that are wholly free or held by one victim go together, without loss.

    `most` has shape (num_forms, num_groups), `free` (3, num_groups); victim `victim[i]` leaves `leaves[:, i]` in group
    `leaves_in[i]`. `node` is the node of a group that is one node, -1 of all others, shape (num_groups,). Each column of `cuts`
    is one of `_cuts`.
    """

    def __init__(self, problem: EpochProblem, first: IntArray, *, merged: bool = True) -> None:
        classes, shapes = problem.classes, problem.shapes
        owner, victim, need = [], [], []
        for k, residents in enumerate(classes.residents):
            for r, own in residents:
                owner.append(k)
                victim.append(r)
                need.append(own)
        held_in, leaves = np.array(owner, dtype=np.int64), np.array(need, dtype=np.int64).reshape(-1, 3).T
        room = classes.free.copy()
        _add_columns(room, held_in, leaves)
        node = np.array([nodes[0] for nodes in classes.nodes], dtype=np.int64)
        open_to = shapes.open_to[first][:, node] if len(node) else np.zeros((len(first), 0), dtype=np.bool_)
        wanted = shapes.need[:, first, None]
        units = np.where(wanted > 0, room[:, None, :] // np.maximum(wanted, 1), UNLIMITED).min(axis=0, initial=UNLIMITED)
        units = np.where(open_to, np.maximum(units, 0), 0) * classes.size
        many = merged and len(classes.nodes) > MOST_CLASSES
        group = _group(many, classes.free[GPUS], room, open_to, _holders(problem))
        num_groups = int(group.max(initial=-1)) + 1
        self.most = np.zeros((len(first), num_groups), dtype=np.int64)
        self.free = np.zeros((3, num_groups), dtype=np.int64)
        _add_columns(self.most, group, units)
        _add_columns(self.free, group, np.minimum(classes.free, UNLIMITED) * classes.size)
        self.node = np.full(num_groups, -1)
        alone = (np.bincount(group, minlength=num_groups)[group] == 1) & (classes.size == 1)
        self.node[group[alone]] = node[alone]
        self.victim = np.array(victim, dtype=np.int64)
        self.leaves_in, self.leaves = group[held_in], leaves * classes.size[held_in]
        cuts = list(_cuts(problem, group, room[GPUS], shapes.need[GPUS, first])) if not many else []
        self.cuts: IntArray = np.array(cuts, dtype=np.int64).reshape(-1, 5).T


def _add_columns(total: IntArray, index: IntArray, columns: IntArray) -> None:
    for row, own in zip(total, columns, strict=True):
        np.add.at(row, index, own)


def _holders(problem: EpochProblem) -> IntArray:
    """Victims on each class; one without a licence counts as many, because it matters which of its nodes is taken."""
    weight = np.where(problem.victims.licensed, 1, 2)
    return np.array([sum(int(weight[r]) for r, _ in own) for own in problem.classes.residents], dtype=np.int64)


def _group(many: bool, free: IntArray, room: IntArray, open_to: BoolArray, holders: IntArray) -> IntArray:
    """The group of each class: its own, or shared with all that are alike where that loses nothing."""
    alike = np.full(len(free), many) | (holders == 0) | ((holders == 1) & (free == 0))
    index: dict[tuple[object, ...], int] = {}
    found = []
    for k in range(len(free)):
        key = (room[:, k].tobytes(), open_to[:, k].tobytes()) if alike[k] else (k,)
        found.append(index.setdefault(key, len(index)))
    return np.array(found, dtype=np.int64)


def _cuts(problem: EpochProblem, group: IntArray, room: IntArray, need: IntArray) -> Iterator[tuple[int, int, int, int, int]]:
    """(group, size, victim, GPUs that units of at least this size can use while the victim stays, and when all leave)."""
    sizes = sorted(set(need.tolist()))
    if any(large % small for small, large in pairwise(sizes)):
        return
    num_victims = np.array([len(own) for own in problem.classes.residents], dtype=np.int64)
    for g in range(int(group.max(initial=-1)) + 1):
        members = np.flatnonzero(group == g)
        if not num_victims[members].any():
            yield from _cuts_of_free(g, room[members], problem.classes.size[members], sizes)
        elif len(members) == 1 and problem.classes.size[members[0]] == 1:
            yield from _cuts_of_held(g, int(room[members[0]]), problem.classes.residents[int(members[0])], sizes)


def _cuts_of_free(g: int, whole: IntArray, nodes: IntArray, sizes: list[int]) -> Iterator[tuple[int, int, int, int, int]]:
    """Of classes without victims: every node is used up to a multiple of the size."""
    for size in sizes[1:]:
        most = int((whole // size * size * nodes).sum())
        if 0 < most < int((whole * nodes).sum()):
            yield g, size, -1, most, most


def _cuts_of_held(
    g: int, whole: int, residents: Sequence[tuple[int, tuple[int, int, int]]], sizes: list[int]
) -> Iterator[tuple[int, int, int, int, int]]:
    """Of one node: what a victim holds may cut more from the multiple than its own GPUs."""
    for size in sizes[1:]:
        most = whole // size * size
        if 0 < most < whole:
            yield g, size, -1, most, most
        for r, own in residents:
            least = (whole - own[GPUS]) // size * size
            if most > least and whole - own[GPUS] > least:
                yield g, size, r, least, most
