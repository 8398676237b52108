"""Rules that bind in few epochs and weaken every relaxation: checked after a solve, and added only where they are broken.

`unallocated_last`: entitled work that waits although only unallocated work holds the room (`overlooked`).
`charged_first`: charged work that stops although unallocated work could have made the room (`misplaced`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from allocator.epoch.problem import EpochProblem, holdings, lack_room
from allocator.epoch.solution import EpochSolution, use_of_starts
from allocator.topology.layout import CPUS, GPUS, MEMORY, BoolArray, IntArray


def overlooked(problem: EpochProblem, solution: EpochSolution, among: Sequence[int] | None = None) -> list[int]:
    """Charged offers of entitled work that waits and fits beside all work that does not surely give way.

    Of `claimants`, or `among` other plain claims.
    """
    started = np.zeros(len(problem.names), dtype=np.bool_)
    started[problem.offers.work[sorted(solution.starts)]] = True
    waiting = [j for j in (claimants(problem) if among is None else among) if not started[problem.offers.work[j]]]
    if not waiting:
        return []
    sizes = {int(problem.shapes.need[GPUS, problem.offers.shape[j]]) for j in waiting}
    room = {need: _room_beside(problem, solution, gives_way(problem, need)) for need in sizes}
    return [j for j in waiting if _funded(problem, solution, j) and _fits(problem, room, j)]


def claimants(problem: EpochProblem) -> list[int]:
    """Offers for which engines can state the rule: plain claims, unless the lane may have no room for all of them."""
    offers, found = problem.offers, plain_claims(problem)
    tight = {pool for pool in set(offers.pool[found].tolist()) if _lane_is_tight(problem, pool)}
    return [j for j in found if not (offers.express[j] and int(offers.pool[j]) in tight)]


def plain_claims(problem: EpochProblem) -> list[int]:
    """Charged offers of entitled work, of which GPUs say whether they fit: no segments, no limits but GPUs, no gpu_limit."""
    offers = problem.offers
    if not np.any(offers.entitled):
        return []
    limited = {int(j) for row in problem.limits for j in row.offers}
    simple = only_gpus_bind(problem)[offers.shape] & (offers.segment_level < 0)
    found = (offers.entitled & offers.charged & simple).nonzero()[0].tolist()
    return [j for j in found if j not in limited]


def only_gpus_bind(problem: EpochProblem) -> BoolArray:
    """Shapes on all of whose nodes GPUs run out before CPUs and memory do, shape (num_shapes,).

    So it is where everything that lies or may lie on a node takes no more CPUs and GiB per GPU than the node has.
    """
    plentiful, held = np.ones(problem.capacity.shape[1], dtype=np.bool_), holdings(problem.victims)
    for resource in (CPUS, MEMORY):
        gpus, own = problem.capacity[GPUS], problem.capacity[resource]
        plentiful &= problem.free[resource] * gpus >= own * np.maximum(problem.free[GPUS], 0)
        more = held.need[resource] * gpus[held.node] > own[held.node] * held.need[GPUS]
        plentiful[held.node[more]] = False
        for need, open_to in zip(problem.shapes.need.T, problem.shapes.open_to, strict=True):
            plentiful[open_to] &= need[resource] * gpus[open_to] <= own[open_to] * need[GPUS]
    return np.asarray(~np.any(problem.shapes.open_to & ~plentiful, axis=1))


def _lane_is_tight(problem: EpochProblem, pool: int) -> bool:
    offers = problem.offers
    return int(offers.gpus[offers.express & (offers.pool == pool)].sum()) > int(problem.express_room[pool])


@dataclass(frozen=True, slots=True)
class GivesWay:
    """Unallocated work that may be displaced from nodes.

    `entries` are those of `holdings`, shape (num_entries,); `units` of some shapes that start, shape (num_shapes, num_nodes).
    """

    entries: BoolArray
    units: BoolArray

    def on(self, problem: EpochProblem, node: int) -> set[int]:
        """The victims that give way on a node."""
        held = holdings(problem.victims)
        return set(held.victim[self.entries & (held.node == node)].tolist())


def unallocated(problem: EpochProblem) -> GivesWay:
    """All unallocated work."""
    held, shapes = holdings(problem.victims), problem.shapes
    units = np.broadcast_to(~shapes.charged[:, None], shapes.open_to.shape)
    return GivesWay(~problem.victims.charged[held.victim], units)


def gives_way(problem: EpochProblem, need: int) -> GivesWay:
    """What a unit of `need` GPUs may displace whatever happens.

    What else has to give way depends on what would idle: no engine states that.
    """
    victims, offers, shapes, held = problem.victims, problem.offers, problem.shapes, holdings(problem.victims)
    most = problem.free.copy()
    held.add_to(most)
    entries = _never_idles_more(need, victims.gpus[held.victim], held.need[GPUS], most[GPUS, held.node])
    size = np.zeros(len(shapes.pool), dtype=np.int64)
    np.maximum.at(size, offers.shape, offers.gpus)
    units = _never_idles_more(need, size[:, None], shapes.need[GPUS][:, None], most[GPUS])
    return GivesWay(entries & ~victims.charged[held.victim], units & ~shapes.charged[:, None])


def _never_idles_more(need: int, size: IntArray, here: IntArray, room: IntArray) -> BoolArray:
    """Whether the stop of work that holds `size` GPUs, `here` of them on a node, never idles more there than a unit uses.

    Where f GPUs are free beside work that makes the room by itself, f + size - need idle; f is less than `need`, and at most
    what the work leaves of the `room` that there can ever be. Two stops are needed only where neither is enough: what lies
    nowhere else idles no more then either.
    """
    alone = size == here
    return np.asarray(
        alone & (size <= need + 1) | (alone | (here >= need)) & (size - here + np.maximum(room, here) <= 2 * need)
    )


def _funded(problem: EpochProblem, solution: EpochSolution, j: int) -> bool:
    cost = int(problem.offers.promise_cost[j])
    for row in problem.funding:
        if j in row.offers:
            made = sum(int(problem.offers.promise_cost[i]) for i in row.offers.tolist() if i in solution.starts)
            made += sum(int(problem.promotions.promise_cost[u]) for u in row.promotions.tolist() if u in solution.promotions)
            if made + cost > row.available:
                return False
    return True


def _room_beside(problem: EpochProblem, solution: EpochSolution, yields: GivesWay) -> IntArray:
    """What is left on each node if what yields gave way, and all the rest stayed, shape (3, num_nodes)."""
    free, held = problem.free.copy(), holdings(problem.victims)
    promoted, stopped = np.zeros((2, len(problem.victims.work)), dtype=np.bool_)
    firm = problem.promotions.victim[list(solution.promotions)]
    promoted[firm[firm >= 0]] = True
    stopped[list(solution.stops)] = True
    held.add_to(free, yields.entries & ~promoted[held.victim] | stopped[held.victim])
    shape = problem.offers.shape
    starts = {
        j: {node: units for node, units in placement.items() if not yields.units[shape[j], node]}
        for j, placement in solution.starts.items()
    }
    return free - use_of_starts(problem, starts)


def _fits(problem: EpochProblem, rooms: Mapping[int, IntArray], j: int) -> bool:
    offers, shapes = problem.offers, problem.shapes
    s, level = int(offers.shape[j]), int(offers.required[j])
    room = np.maximum(rooms[int(shapes.need[GPUS, s])][GPUS], 0)
    units = np.where(shapes.open_to[s], room // shapes.need[GPUS, s], 0)
    domain = problem.node_domain[level] if level >= 0 else np.zeros_like(units)
    return bool(np.any(np.bincount(domain, weights=units) >= int(offers.units[j])))


def misplaced(problem: EpochProblem, solution: EpochSolution) -> list[int]:
    """Charged victims that would fit beside everything that is charged, or that nobody may stop, after the solution."""
    stopped = [r for r in sorted(solution.stops) if problem.victims.charged[r]]
    if not stopped:
        return []
    room = _room_beside(problem, solution, unallocated(problem))
    moved = {int(problem.offers.victim[j]): j for j in solution.starts}
    limited = {r for row in problem.limits for r in row.victims.tolist()} - moved.keys()
    short = lack_room(problem.victims, room)
    found = []
    for r in stopped:
        if r in moved:
            here = room[:, problem.victims.nodes[r]] + _restart_on(problem, solution, moved[r], r)
            fits = bool(np.all(here >= problem.victims.need[r]))
        else:
            fits = not short[r]
        if fits and not (r in limited and _needed_under_limit(problem, solution, r)):
            found.append(r)
    return found


def _restart_on(problem: EpochProblem, solution: EpochSolution, j: int, r: int) -> IntArray:
    """What the restart of a victim takes of the nodes that it leaves, shape (3, number of them)."""
    units = np.array([solution.starts[j].get(node, 0) for node in problem.victims.nodes[r].tolist()], dtype=np.int64)
    return np.asarray(problem.shapes.need[:, problem.offers.shape[j], None] * units)


def _needed_under_limit(problem: EpochProblem, solution: EpochSolution, r: int) -> bool:
    """Whether charged work under some gpu_limit leaves no room for a victim."""
    promoted = {int(problem.promotions.victim[u]) for u in solution.promotions}
    for row in problem.limits:
        if r in row.victims:
            started = sum(
                int(problem.offers.gpus[j]) for j in row.offers.tolist() if j in solution.starts and problem.offers.charged[j]
            )
            stays = sum(
                int(problem.victims.gpus[v])
                for v in row.victims.tolist()
                if v not in solution.stops and (problem.victims.charged[v] or v in promoted)
            )
            if row.kept_charged + started + stays + int(problem.victims.gpus[r]) > row.limit:
                return True
    return False
