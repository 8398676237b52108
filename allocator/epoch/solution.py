"""What an engine answers: offers with their nodes, stops and promotions; and what that is worth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from allocator.entitlement.curve import Curve
from allocator.epoch.problem import EpochProblem, WholeDomain
from allocator.topology.layout import GPUS, IntArray

Placement = Mapping[int, int]
"""Units by node."""


@dataclass(frozen=True, slots=True)
class EpochSolution:
    """`starts` maps offers to units by node; `stops` are victims, `promotions` rows of the promotions."""

    starts: Mapping[int, Placement] = field(default_factory=dict)
    stops: frozenset[int] = frozenset()
    promotions: frozenset[int] = frozenset()


def value_of(problem: EpochProblem, solution: EpochSolution) -> int:
    """Score of the decision less the score of keep, in 1/1000 GPU-second: the objective that every engine minimises."""
    started = np.array(sorted(solution.starts), dtype=np.int64)
    stopped = np.array(sorted(solution.stops), dtype=np.int64)
    promoted = np.array(sorted(solution.promotions), dtype=np.int64)
    fixed = int(problem.victims.cost[stopped].sum()) - int(problem.offers.gain[started].sum())
    return (
        fixed
        + sum(spread_value(problem, offer, placement) for offer, placement in solution.starts.items())
        + _share_value(problem, started, stopped, promoted)
        + fragmentation_value(problem, placed_gpus(problem, solution))
        - fragmentation_value(problem, problem.whole_placed)
    )


def spread_value(problem: EpochProblem, offer: int, placement: Placement) -> int:
    """Cost of the domains that a started gang touches beyond the fewest."""
    cost = problem.offers.spread[offer]
    if not cost.any():
        return 0
    nodes = list(placement)
    touched = np.array([len(set(row)) for row in problem.node_domain[:, nodes].tolist()], dtype=np.int64)
    return int(np.sum(cost * (touched - problem.offers.fewest[offer])))


def _share_value(problem: EpochProblem, started: IntArray, stopped: IntArray, promoted: IntArray) -> int:
    chosen = np.zeros(len(problem.offers.work), dtype=np.int64)
    chosen[started] = problem.offers.gpus[started]
    gone = np.zeros(len(problem.victims.work), dtype=np.int64)
    gone[stopped] = problem.victims.gpus[stopped]
    raised = np.zeros(len(problem.promotions.work), dtype=np.int64)
    raised[promoted] = problem.promotions.gpus[promoted]
    total = 0
    for term in problem.shares:
        change = int(chosen[term.offers].sum() - gone[term.victims].sum() + raised[term.promotions].sum())
        if change:
            total += term.curve.value(term.base + change) - term.curve.value(term.base)
    return total


def placed_gpus(problem: EpochProblem, solution: EpochSolution) -> IntArray:
    """GPUs started on each node that was wholly free just before now: at this instant already, or by this solution."""
    placed = problem.whole_placed.copy()
    for offer, placement in solution.starts.items():
        size = int(problem.shapes.need[GPUS, problem.offers.shape[offer]])
        for node, units in placement.items():
            placed[node] += size * units
    return placed


def use_of_starts(problem: EpochProblem, starts: Mapping[int, Placement]) -> IntArray:
    """GPUs, CPUs and GiB that the units of some starts take of each node, shape (3, num_nodes)."""
    used = np.zeros_like(problem.free)
    cells = [(offer, node, units) for offer, placement in starts.items() for node, units in placement.items()]
    offer, node, units = np.array(cells, dtype=np.int64).reshape(-1, 3).T
    for total, need in zip(used, problem.shapes.need[:, problem.offers.shape[offer]], strict=True):
        np.add.at(total, node, need * units)
    return used


def fragmentation_value(problem: EpochProblem, placed: IntArray) -> int:
    """Cost of the nodes and domains that were wholly free and are broken up."""
    capacity = problem.capacity[GPUS]
    broken = int((problem.whole_weight * np.minimum(placed, capacity - placed)).sum())
    return problem.fragmentation_cost * (broken + sum(_broken(domain, placed) for domain in problem.whole_domains))


def _broken(domain: WholeDomain, placed: IntArray) -> int:
    gpus = int(placed[domain.nodes].sum())
    return min(gpus, domain.capacity - gpus)


def steps_between(curve: Curve, low: int, high: int) -> Iterator[tuple[int, int, int]]:
    """The linear pieces (first GPU, last GPU, slope) of a curve between two numbers of GPUs."""
    ends = [*curve.points[1:], max(high, curve.points[-1]) + 1]
    for start, stop, slope in zip(curve.points, ends, curve.slopes, strict=True):
        first, last = max(start, low), min(stop, high)
        if first < last:
            yield first, last, slope
