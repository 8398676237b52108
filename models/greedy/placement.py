"""Where an offer fits: on free nodes, or on nodes that victims leave."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from allocator.epoch.solution import spread_value
from allocator.models.greedy.variables import State
from allocator.topology.layout import GPUS, BoolArray, IntArray


def room_for(state: State, j: int, nodes: BoolArray | None = None) -> IntArray:
    """Units of offer j that each node could take now, shape (num_nodes,)."""
    shapes, s = state.problem.shapes, int(state.problem.offers.shape[j])
    return units_that_fit(state.free, shapes.need[:, s], shapes.open_to[s] if nodes is None else nodes)


def units_that_fit(free: IntArray, need: IntArray, open_to: BoolArray) -> IntArray:
    """Units with this need that fit each open node, shape (num_nodes,)."""
    room = np.where(open_to, free[GPUS] // need[GPUS], 0)
    for resource in (1, 2):
        if need[resource]:
            room = np.minimum(room, free[resource] // need[resource])
    return np.asarray(np.maximum(room, 0), dtype=np.int64)


def place(state: State, j: int, room: IntArray, node_cost: IntArray | None = None) -> dict[int, int] | None:
    """Nodes for all units of offer j within `room`, None if they do not fit.

    The cheapest by `node_cost` (1/1000 GPU-second by node; nothing if absent) and spread; of equals the tightest.
    """
    offers = state.problem.offers
    units = int(offers.units[j])
    if int(room.sum()) < units:
        return None
    cost = np.zeros(len(room), dtype=np.int64) if node_cost is None else node_cost
    if units == 1:
        return {_best_node(state, room, cost): 1}
    if offers.segment_level[j] >= 0:
        return _place_segments(state, j, room, units, cost)
    found = _candidates(state, j, room, units, cost)
    return min(found, key=lambda nodes: int(sum(cost[n] for n in nodes)) + spread_value(state.problem, j, nodes), default=None)


def _best_node(state: State, room: IntArray, cost: IntArray) -> int:
    """The cheapest node; of equals one that is broken up already, with the least free GPUs."""
    candidates = np.flatnonzero(room)
    order = np.lexsort((candidates, state.free[GPUS, candidates], _intact(state, candidates), cost[candidates]))
    return int(candidates[order[0]])


def _intact(state: State, nodes: IntArray) -> BoolArray:
    return np.asarray((state.problem.whole_weight[nodes] > 0) & (state.placed[nodes] == 0))


def _candidates(state: State, j: int, room: IntArray, units: int, cost: IntArray) -> Iterator[dict[int, int]]:
    """For each level, from fine to coarse, the best domain that can hold the gang; coarser ones only if they are cheaper."""
    domain, required = state.problem.node_domain, int(state.problem.offers.required[j])
    least: int | None = None
    for level in range(len(domain) - 2, max(required, 0) - 1, -1):
        total = np.bincount(domain[level], weights=room).astype(np.int64)
        fitting = np.flatnonzero(total >= units)
        if not len(fitting):
            continue
        prices = [(_price(room, units, cost, domain[level] == d), int(total[d]), int(d)) for d in fitting]
        price, _, best = min(prices)
        if least is None or price < least:
            least = price
            yield _fill(state, np.where(domain[level] == best, room, 0), units, level + 1, cost)
    if required < 0 and least is None:
        yield _fill(state, room, units, 0, cost)


def _price(room: IntArray, units: int, cost: IntArray, inside: BoolArray) -> int:
    """Cost of the cheapest nodes inside a domain that hold the units."""
    nodes = np.flatnonzero(inside & (room > 0))
    order = nodes[np.argsort(cost[nodes], kind="stable")]
    last = int(np.searchsorted(np.cumsum(room[order]), units))
    return int(cost[order[: last + 1]].sum())


def _fill(state: State, room: IntArray, units: int, level: int, cost: IntArray) -> dict[int, int]:
    """Take units from the domains of a level: the cheapest that holds them all, else the one with most room and then the rest."""
    domain = state.problem.node_domain
    if level >= len(domain) - 1:
        return _fill_nodes(state, room, units, cost)
    found: dict[int, int] = {}
    total = np.bincount(domain[level], weights=room).astype(np.int64)
    while units:
        enough = np.flatnonzero(total >= units)
        if len(enough):
            part = min((_price(room, units, cost, domain[level] == d), int(total[d]), int(d)) for d in enough)[2]
        else:
            part = int(np.argmax(total))
        take = min(units, int(total[part]))
        found |= _fill(state, np.where(domain[level] == part, room, 0), take, level + 1, cost)
        total[part] = 0
        units -= take
    return found


def _fill_nodes(state: State, room: IntArray, units: int, cost: IntArray) -> dict[int, int]:
    """The cheapest nodes first; of equals those broken up already, with the least room left over."""
    found: dict[int, int] = {}
    candidates = np.flatnonzero(room)
    order = np.lexsort((candidates, state.free[GPUS, candidates], _intact(state, candidates), cost[candidates]))
    for node in candidates[order].tolist():
        take = min(units, int(room[node]))
        found[node] = take
        units -= take
        if not units:
            break
    return found


def _place_segments(state: State, j: int, room: IntArray, units: int, cost: IntArray) -> dict[int, int] | None:
    """Whole segments from the domains of the segment level with most room, the remainder from one more or the same."""
    offers, domain = state.problem.offers, state.problem.node_domain
    level, size, required = int(offers.segment_level[j]), int(offers.segment_units[j]), int(offers.required[j])
    groups = [np.ones(len(room), dtype=np.bool_)]
    if required >= 0:
        groups = [domain[required] == d for d in np.unique(domain[required][room > 0])]
    for group in groups:
        found = _segments_in(state, np.where(group, room, 0), units, level, size, cost)
        if found is not None:
            return found
    return None


def _segments_in(
    state: State, room: IntArray, units: int, level: int, size: int, cost: IntArray
) -> dict[int, int] | None:
    domain = state.problem.node_domain
    total = np.bincount(domain[level], weights=room).astype(np.int64)
    wanted = np.zeros_like(total)
    left = units // size
    for part in np.lexsort((np.arange(len(total)), -total)).tolist():
        take = min(left, int(total[part]) // size)
        wanted[part] = take * size
        left -= take
    rest = units - int(wanted.sum())
    spare = np.flatnonzero(total - wanted >= rest)
    if left > 0 or (rest and not len(spare)):
        return None
    if rest:
        used = spare[np.lexsort((spare, total[spare] - wanted[spare], wanted[spare] == 0))]
        wanted[used[0]] += rest
    found: dict[int, int] = {}
    for part in np.flatnonzero(wanted).tolist():
        found |= _fill(state, np.where(domain[level] == part, room, 0), int(wanted[part]), level + 1, cost)
    return found
