"""What every exact model asks of the problem before it makes variables and rows. Knows no solver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from allocator.epoch.problem import EpochProblem, charged_twins
from allocator.epoch.solution import EpochSolution
from allocator.topology.layout import CPUS, GPUS, MEMORY, IntArray


def most_units(problem: EpochProblem) -> IntArray:
    """Units of each shape that each class could hold if every victim on it were stopped, shape (num_shapes, num_classes)."""
    classes, shapes = problem.classes, problem.shapes
    room = classes.free.copy()
    for k, residents in enumerate(classes.residents):
        for _, need in residents:
            room[:, k] += need
    first = np.array([nodes[0] for nodes in classes.nodes], dtype=np.int64)
    open_to = shapes.open_to[:, first] if len(first) else np.zeros((len(shapes.pool), 0), dtype=np.bool_)
    wanted = shapes.need[:, :, None]
    per_node = np.where(wanted > 0, room[:, None, :] // np.maximum(wanted, 1), 1 << 40).min(axis=0)
    return np.asarray(np.where(open_to, np.maximum(per_node, 0), 0) * classes.size, dtype=np.int64)


def cell_room(problem: EpochProblem, room: IntArray) -> IntArray:
    """Units of each shape that each cell could hold, given what each class could hold, shape (num_shapes, num_cells)."""
    found = np.zeros((len(problem.shapes.pool), len(problem.cell_pool)), dtype=np.int64)
    for s in range(len(problem.shapes.pool)):
        np.add.at(found[s], problem.classes.cell, room[s])
    return found


def counts_of(problem: EpochProblem, solution: EpochSolution) -> tuple[Counter[tuple[int, int]], Counter[tuple[int, int]]]:
    """What a solution places: units by (shape, class), and units of gangs by (offer, cell)."""
    counts: Counter[tuple[int, int]] = Counter()
    units: Counter[tuple[int, int]] = Counter()
    for j, placement in solution.starts.items():
        for node, number in placement.items():
            k = int(problem.node_class[node])
            counts[int(problem.offers.shape[j]), k] += number
            if problem.offers.units[j] > 1:
                units[j, int(problem.classes.cell[k])] += number
    return counts, units


def binding_resources(problem: EpochProblem, k: int, shapes: Sequence[int]) -> list[int]:
    """GPUs, and the resources that can run out on one node of a class before its GPUs do.

    With p the most that a unit takes of a resource per GPU, units take no more of it than p times their GPUs. So the row of a
    resource follows from that of the GPUs where p times the GPUs left, whatever is stopped, is no more than what is left of it.
    """
    need, free = problem.shapes.need[:, list(shapes)], problem.classes.free[:, k]
    own = np.array([room for _, room in problem.classes.residents[k]], dtype=np.int64).reshape(-1, 3).T
    found = [GPUS] if need.size else []
    for resource in (CPUS, MEMORY):
        most = max((Fraction(int(r), int(g)) for r, g in zip(need[resource], need[GPUS], strict=True)), default=Fraction(0))
        spare = [int(r) * most.denominator - int(g) * most.numerator for r, g in zip(own[resource], own[GPUS], strict=True)]
        left = int(free[resource]) * most.denominator - int(free[GPUS]) * most.numerator
        if most and left + sum(min(0, surplus) for surplus in spare) < 0:
            found.append(resource)
    return found


def by_value(values: IntArray) -> list[list[int]]:
    """Indices grouped by value, in order of value."""
    order = np.argsort(values, kind="stable")
    bounds = np.flatnonzero(np.diff(values[order])) + 1
    return [group.tolist() for group in np.split(order, bounds) if len(group)]


def twin_rows(problem: EpochProblem) -> dict[int, list[int]]:
    """Funding rows that the charged twin of each uncharged offer would draw on."""
    return {
        j: [i for i, row in enumerate(problem.funding) if twin in row.offers]
        for j, twin in charged_twins(problem.offers).items()
    }
