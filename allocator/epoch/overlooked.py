"""Entitled work that a solution leaves waiting although unallocated work holds the room: `unallocated_last`, checked after a solve.

The rule binds in few epochs and weakens every relaxation, so exact engines add it only for the offers found here.
"""

from __future__ import annotations

import numpy as np

from allocator.epoch.problem import EpochProblem
from allocator.epoch.solution import EpochSolution
from allocator.topology.layout import CPUS, GPUS, MEMORY, UNLIMITED, BoolArray, IntArray


def overlooked(problem: EpochProblem, solution: EpochSolution) -> list[int]:
    """Charged offers of entitled work that waits, fits beside all charged work, and has no excuse that engines know of."""
    if not np.any(problem.offers.entitled):
        return []
    started = np.zeros(len(problem.names), dtype=np.bool_)
    started[problem.offers.work[sorted(solution.starts)]] = True
    waiting = [j for j in claimants(problem) if not started[problem.offers.work[j]]]
    room = _room_beside_charged(problem, solution) if waiting else problem.free
    return [j for j in waiting if _funded(problem, solution, j) and not _large(problem, solution, j) and _fits(problem, room, j)]


def claimants(problem: EpochProblem) -> list[int]:
    """Offers for which engines can state the rule: no segments, no limits but GPUs, no tight lane, no gpu_limit."""
    offers = problem.offers
    limited = {int(j) for row in problem.limits for j in row.offers}
    tight = {pool for pool in range(len(problem.express_room)) if _lane_is_tight(problem, pool)}
    simple = only_gpus_bind(problem)[offers.shape] & (offers.segment_level < 0)
    found = np.flatnonzero(offers.entitled & offers.charged & simple).tolist()
    return [j for j in found if j not in limited and not (offers.express[j] and int(offers.pool[j]) in tight)]


def only_gpus_bind(problem: EpochProblem) -> BoolArray:
    """Shapes whose nodes state no CPUs and memory that they could run out of, shape (num_shapes,)."""
    shapes, capacity = problem.shapes, problem.capacity
    bound = [np.any(shapes.open_to & (capacity[r] < UNLIMITED), axis=1) & (shapes.need[r] > 0) for r in (CPUS, MEMORY)]
    return np.asarray(~(bound[0] | bound[1]))


def _lane_is_tight(problem: EpochProblem, pool: int) -> bool:
    offers = problem.offers
    return int(offers.gpus[offers.express & (offers.pool == pool)].sum()) > int(problem.express_room[pool])


def large_unallocated(problem: EpochProblem, pool: int, need: int) -> tuple[IntArray, IntArray]:
    """Uncharged victims and offers of a pool whose stop could idle more than a unit of `need` GPUs uses."""
    victims, offers = problem.victims, problem.offers
    spans = np.array([len(nodes) > 1 for nodes in victims.nodes], dtype=np.bool_)
    kept = ~victims.charged & (victims.pool == pool) & (spans | (victims.gpus > need + 1))
    starts = ~offers.charged & (offers.pool == pool) & ((offers.units > 1) | (offers.gpus > need + 1))
    return np.flatnonzero(kept), np.flatnonzero(starts)


def _large(problem: EpochProblem, solution: EpochSolution, j: int) -> bool:
    need = int(problem.shapes.need[GPUS, problem.offers.shape[j]])
    victims, starts = large_unallocated(problem, int(problem.offers.pool[j]), need)
    return any(r not in solution.stops for r in victims.tolist()) or any(i in solution.starts for i in starts.tolist())


def _funded(problem: EpochProblem, solution: EpochSolution, j: int) -> bool:
    cost = int(problem.offers.promise_cost[j])
    for row in problem.funding:
        if j in row.offers:
            made = sum(int(problem.offers.promise_cost[i]) for i in row.offers.tolist() if i in solution.starts)
            made += sum(int(problem.promotions.promise_cost[u]) for u in row.promotions.tolist() if u in solution.promotions)
            if made + cost > row.available:
                return False
    return True


def _room_beside_charged(problem: EpochProblem, solution: EpochSolution) -> IntArray:
    """GPUs of each node that no charged work uses after the solution, shape (1, num_nodes)."""
    free = problem.free[GPUS].copy()
    promoted = {int(problem.promotions.victim[u]) for u in solution.promotions}
    for r, nodes in enumerate(problem.victims.nodes):
        if r in solution.stops or not (problem.victims.charged[r] or r in promoted):
            free[nodes] += problem.victims.need[r][GPUS]
    for j, placement in solution.starts.items():
        if problem.offers.charged[j]:
            for node, units in placement.items():
                free[node] -= units * int(problem.shapes.need[GPUS, problem.offers.shape[j]])
    return free[None, :]


def _fits(problem: EpochProblem, room: IntArray, j: int) -> bool:
    offers, shapes = problem.offers, problem.shapes
    s, level = int(offers.shape[j]), int(offers.required[j])
    units = np.where(shapes.open_to[s], np.maximum(room[0], 0) // shapes.need[GPUS, s], 0)
    domain = problem.node_domain[level] if level >= 0 else np.zeros_like(units)
    return bool(np.any(np.bincount(domain, weights=units) >= int(offers.units[j])))
