"""Rules that bind in few epochs and weaken every relaxation: checked after a solve, and added only where they are broken.

`unallocated_last`: entitled work that waits although only unallocated work holds the room (`overlooked`).
`charged_first`: charged work that stops although unallocated work could have made the room (`misplaced`).
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
    """What no charged work, and nothing that may not be stopped, uses after the solution, shape (3, num_nodes)."""
    free = problem.free.copy()
    promoted = {int(problem.promotions.victim[u]) for u in solution.promotions}
    for r, nodes in enumerate(problem.victims.nodes):
        if r in solution.stops or not (problem.victims.charged[r] or r in promoted):
            free[:, nodes] += problem.victims.need[r]
    for j, placement in solution.starts.items():
        if problem.offers.charged[j]:
            for node, units in placement.items():
                free[:, node] -= units * problem.shapes.need[:, problem.offers.shape[j]]
    return free


def _fits(problem: EpochProblem, room: IntArray, j: int) -> bool:
    offers, shapes = problem.offers, problem.shapes
    s, level = int(offers.shape[j]), int(offers.required[j])
    units = np.where(shapes.open_to[s], np.maximum(room[GPUS], 0) // shapes.need[GPUS, s], 0)
    domain = problem.node_domain[level] if level >= 0 else np.zeros_like(units)
    return bool(np.any(np.bincount(domain, weights=units) >= int(offers.units[j])))


def misplaced(problem: EpochProblem, solution: EpochSolution) -> list[int]:
    """Charged victims that would fit beside everything that is charged, or that nobody may stop, after the solution."""
    stopped = [r for r in sorted(solution.stops) if problem.victims.charged[r]]
    if not stopped:
        return []
    room = _room_beside_charged(problem, solution)
    limited = {r for row in problem.limits for r in row.victims.tolist()}
    found = []
    for r in stopped:
        fits = np.all(room[:, problem.victims.nodes[r]] >= problem.victims.need[r])
        if fits and not (r in limited and _needed_under_limit(problem, solution, r)):
            found.append(r)
    return found


def _needed_under_limit(problem: EpochProblem, solution: EpochSolution, r: int) -> bool:
    """Whether charged work under some gpu_limit leaves no room for a victim."""
    promoted = {int(problem.promotions.victim[u]) for u in solution.promotions}
    for row in problem.limits:
        if r in row.victims:
            started = sum(int(problem.offers.gpus[j]) for j in row.offers.tolist() if j in solution.starts and problem.offers.charged[j])
            stays = sum(
                int(problem.victims.gpus[v])
                for v in row.victims.tolist()
                if v not in solution.stops and (problem.victims.charged[v] or v in promoted)
            )
            if row.kept_charged + started + stays + int(problem.victims.gpus[r]) > row.limit:
                return True
    return False
