"""From counts to nodes. Always succeeds: classes are built so that what adds up can be laid out."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from allocator.domain import InfeasibleError
from allocator.epoch.problem import EpochProblem
from allocator.topology.layout import IntArray

Slots = dict[tuple[int, int], list[int]]
"""Nodes by (shape, cell), one entry per unit, in the order in which they are handed out."""


def decode_counts(
    problem: EpochProblem,
    start: IntArray,
    stop: IntArray,
    counts: Mapping[tuple[int, int], int],
    units: Mapping[tuple[int, int], int],
) -> dict[int, dict[int, int]]:
    """Lay the units of every started offer on nodes.

    Parameters
    ----------
    start, stop
        Chosen offers and victims, 0 or 1.
    counts
        Units by (shape, class).
    units
        Units by (gang offer, cell).

    Returns
    -------
    dict
        Units by node for every started offer.
    """
    slots = _lay_out(problem, stop, counts)
    started = start.nonzero()[0]
    gangs = [int(j) for j in started if problem.offers.units[j] > 1]
    placed = {j: _take(problem, slots, j, units) for j in gangs}
    for j in map(int, started):
        if problem.offers.units[j] == 1:
            placed[j] = {_take_any(problem, slots, int(problem.offers.shape[j])): 1}
    return placed


def _lay_out(problem: EpochProblem, stop: IntArray, counts: Mapping[tuple[int, int], int]) -> Slots:
    free = problem.free.copy()
    for r in stop.nonzero()[0]:
        free[:, problem.victims.nodes[r]] += problem.victims.need[r]
    slots: Slots = {}
    largest_first = sorted((key for key, count in counts.items() if count), key=lambda key: _size_key(problem, *key))
    for s, k in largest_first:
        need = problem.shapes.need[:, s]
        for _ in range(counts[s, k]):
            node = _tightest(free, problem.classes.nodes[k], need)
            free[:, node] -= need
            slots.setdefault((s, int(problem.classes.cell[k])), []).append(node)
    return slots


def _size_key(problem: EpochProblem, s: int, k: int) -> tuple[int, int, int, int]:
    # Charged units of a size lie together, so that a stop that they need stands on one node.
    return (k, -int(problem.shapes.need[0, s]), int(not problem.shapes.charged[s]), s)


def _tightest(free: IntArray, nodes: IntArray, need: IntArray) -> int:
    """The node with the least room that still fits, the first of equals: full nodes first, one broken node last."""
    room = free[:, nodes]
    fits = np.all(room >= need[:, None], axis=0)
    if not fits.any():
        raise InfeasibleError(f"counts do not decode: no node of {nodes.tolist()} has room for {need.tolist()}")
    return int(nodes[fits.nonzero()[0][np.argmin(room[0, fits])]])


def _take(problem: EpochProblem, slots: Slots, j: int, units: Mapping[tuple[int, int], int]) -> dict[int, int]:
    """Nodes of a gang, cell by cell."""
    found: dict[int, int] = {}
    for cell in range(len(problem.cell_pool)):
        for _ in range(units.get((j, cell), 0)):
            node = slots[int(problem.offers.shape[j]), cell].pop()
            found[node] = found.get(node, 0) + 1
    return found


def _take_any(problem: EpochProblem, slots: Slots, shape: int) -> int:
    for cell in range(len(problem.cell_pool)):
        if slots.get((shape, cell)):
            return slots[shape, cell].pop()
    raise InfeasibleError(f"counts do not decode: no node left for shape {shape}")
