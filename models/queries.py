"""What every exact model asks of the problem before it makes variables and rows. Knows no solver."""

from __future__ import annotations

from collections import Counter

import numpy as np

from allocator.epoch.problem import EpochProblem, charged_twins
from allocator.epoch.solution import EpochSolution
from allocator.topology.layout import IntArray


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
