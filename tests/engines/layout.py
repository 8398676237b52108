"""Whether a solution can lie as it says, node by node: capacity, whole gangs, eligible nodes, topology."""

from __future__ import annotations

from collections import Counter

import numpy as np

from allocator.epoch import EpochProblem, EpochSolution
from allocator.epoch.solution import Placement


def check_layout(problem: EpochProblem, solution: EpochSolution) -> None:
    """Every node holds what lies on it, every gang is whole and lies where it may."""
    free = problem.free.copy()
    for r in solution.stops:
        free[:, problem.victims.nodes[r]] += problem.victims.need[r]
    for j, placement in solution.starts.items():
        shape = int(problem.offers.shape[j])
        check_placement(problem, j, placement)
        for n, units in placement.items():
            free[:, n] -= units * problem.shapes.need[:, shape]
    touched = [n for placement in solution.starts.values() for n in placement]
    assert np.all(free[:, touched] >= 0)


def check_placement(problem: EpochProblem, j: int, placement: Placement) -> None:
    """A gang is whole, on nodes that it may use, in the domains that it needs."""
    offers = problem.offers
    assert sum(placement.values()) == offers.units[j]
    for n, units in placement.items():
        assert units > 0
        assert problem.shapes.open_to[offers.shape[j], n]
    if offers.required[j] >= 0:
        assert len({int(problem.node_domain[offers.required[j], n]) for n in placement}) == 1
    if offers.segment_level[j] >= 0:
        tasks: Counter[int] = Counter()
        for n, units in placement.items():
            tasks[int(problem.node_domain[offers.segment_level[j], n])] += units
        assert sum(count % int(offers.segment_units[j]) > 0 for count in tasks.values()) <= 1
