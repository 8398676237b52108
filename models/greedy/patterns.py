"""What one node can hold, in whole units: where CPUs, memory or odd sizes decide, sums over nodes promise far too much.

A node holds units that start and victims that stay. Those contents to which nothing could be added are its *patterns*. Each
node follows one of them or less, so that counts are at most what a mix of patterns, one for each node, gives: what no unit
fits counts for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from allocator.epoch.problem import EpochProblem
from allocator.topology.layout import CPUS, GPUS, MEMORY, IntArray

Need = tuple[int, ...]

MOST_PATTERNS = 10_000
"""Patterns of all nodes together, each of them a column: more slow down the relaxation."""

MOST_OF_ONE = 250
"""Patterns of one kind of node: what is usual stays below 60."""

MOST_CONTENTS = 2_000
"""Contents of one node that are looked at to find its patterns: 165 is what families of a few kinds of work need."""


class Bundle(NamedTuple):
    """Classes of equal room, on whose nodes the same may lie, and what a node of them can hold.

    Item i of a pattern is a unit of one of `forms[i]`; behind these come victims that stay, where item i is one of the entries
    (victim, number of nodes) of `victims[i - len(forms)]`. `counts` has shape (num_patterns, num_items), `nodes` is the number
    of nodes.
    """

    classes: IntArray
    nodes: int
    forms: tuple[tuple[int, ...], ...]
    victims: tuple[tuple[tuple[int, int], ...], ...]
    counts: IntArray


class Patterns:
    """Finds the patterns of bundles of classes, as long as there are not too many.

    Parameters
    ----------
    need, wanted
        Of each form, as in `hard_classes`.
    """

    def __init__(self, problem: EpochProblem, need: IntArray, wanted: IntArray) -> None:
        self._residents, self._size = problem.classes.residents, problem.classes.size
        self._need: list[Need] = [tuple(column) for column in need.T.tolist()]
        self._wanted: list[int] = wanted.tolist()
        self._left = MOST_PATTERNS
        self._known: dict[tuple[object, ...], IntArray | None] = {}

    def bundle(self, classes: Sequence[int], forms: Sequence[int], room: IntArray) -> Bundle | None:
        """What nodes of these classes can hold, of these forms and of the victims on them; None if that is too much.

        `room` is what one node has once all victims are gone, shape (3,).
        """
        own = [need for k in classes for _, need in self._residents[k]]
        binding = _binding([*(self._need[f] for f in forms), *own], room)
        units: dict[Need, list[int]] = {}
        for f in forms:
            units.setdefault(_part(self._need[f], binding), []).append(f)
        held, most_held = self._held(classes, binding)
        most = [sum(self._wanted[f] for f in own) for own in units.values()] + [most_held[need] for need in held]
        counts = self._counts(tuple(room[binding].tolist()), (*units, *held), tuple(most))
        if counts is None:
            return None
        self._left -= len(counts)
        forms_of, victims_of = tuple(map(tuple, units.values())), tuple(map(tuple, held.values()))
        return Bundle(np.array(classes), int(self._size[classes].sum()), forms_of, victims_of, counts)

    def _held(
        self, classes: Sequence[int], binding: Sequence[int]
    ) -> tuple[dict[Need, list[tuple[int, int]]], dict[Need, int]]:
        """Victims by what they hold, each with its nodes, and how many such lie on one node at most."""
        held: dict[Need, list[tuple[int, int]]] = {}
        most: dict[Need, int] = {}
        for k in classes:
            here: dict[Need, int] = {}
            for r, own in self._residents[k]:
                need = _part(own, binding)
                held.setdefault(need, []).append((r, int(self._size[k])))
                here[need] = here.get(need, 0) + 1
            for need, number in here.items():
                most[need] = max(most.get(need, 0), number)
        return held, most

    def _counts(self, room: Need, needs: tuple[Need, ...], most: tuple[int, ...]) -> IntArray | None:
        key = (room, needs, most)
        if key not in self._known:
            self._known[key] = full_contents(room, needs, most)
        found = self._known[key]
        return found if found is not None and len(found) <= min(MOST_OF_ONE, self._left) else None


def _binding(needs: Iterable[Need], room: IntArray) -> list[int]:
    """GPUs, and the resources of which something takes more per GPU than the node has: the others never run out first."""
    distinct = set(needs)
    scarce = (r for r in (CPUS, MEMORY) if any(need[r] * room[GPUS] > room[r] * need[GPUS] for need in distinct))
    return [GPUS, *scarce]


def _part(need: Need, resources: Sequence[int]) -> Need:
    return tuple(need[r] for r in resources)


def full_contents(room: Need, needs: Sequence[Need], most: Sequence[int]) -> IntArray | None:
    """All contents to which no item can be added, shape (num_patterns, num_items); None if there are too many to look at.

    Item i needs `needs[i]`, all above 0 in the first resource, and there are at most `most[i]` of it.
    """
    counts, left = np.zeros((1, 0), dtype=np.int64), np.array([room], dtype=np.int64)
    for need, limit in zip(needs, most, strict=True):
        each = np.minimum(_times(left, need), limit) + 1
        if int(each.sum()) > MOST_CONTENTS:
            return None
        row = np.repeat(np.arange(len(each)), each)
        number = np.arange(len(row)) - np.repeat(np.cumsum(each) - each, each)
        counts = np.concatenate([counts[row], number[:, None]], axis=1)
        left = left[row] - number[:, None] * np.array(need)
    full = np.ones(len(left), dtype=np.bool_)
    for need, limit, number in zip(needs, most, counts.T, strict=True):
        full &= (number >= limit) | (_times(left, need) == 0)
    return counts[full]


def _times(left: IntArray, need: Need) -> IntArray:
    """How often an item fits what is left of each content, shape (num_contents,)."""
    fits = [left[:, r] // amount for r, amount in enumerate(need) if amount]
    return np.asarray(np.min(fits, axis=0))
