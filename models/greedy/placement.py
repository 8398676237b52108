"""Where an offer fits: on free nodes, or on nodes that victims leave."""

from __future__ import annotations

import numpy as np

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


def place(state: State, j: int, room: IntArray) -> dict[int, int] | None:
    """Nodes for all units of offer j within `room`, touching few domains and breaking up little; None if they do not fit."""
    offers = state.problem.offers
    units = int(offers.units[j])
    if int(room.sum()) < units:
        return None
    if units == 1:
        return {_tightest_node(state, room): 1}
    return _place_gang(state, j, room, units)


def _tightest_node(state: State, room: IntArray) -> int:
    """The open node with the least free GPUs; wholly free nodes only if nothing else fits."""
    candidates = np.flatnonzero(room)
    key = state.free[GPUS, candidates] + ((state.problem.whole_weight[candidates] > 0) & (state.placed[candidates] == 0)) * (1 << 20)
    return int(candidates[np.argmin(key)])


def _place_gang(state: State, j: int, room: IntArray, units: int) -> dict[int, int] | None:
    """The smallest domain that can hold the gang, filled from its fullest part; coarser levels if no fine one can."""
    offers, domain = state.problem.offers, state.problem.node_domain
    required, segment = int(offers.required[j]), int(offers.segment_level[j])
    if segment >= 0:
        return _place_segments(state, j, room, units)
    for level in range(len(domain) - 2, max(required, 0) - 1, -1):
        total = np.bincount(domain[level], weights=room).astype(np.int64)
        fitting = np.flatnonzero(total >= units)
        if len(fitting):
            best = int(fitting[np.argmin(total[fitting])])
            return _fill(state, np.where(domain[level] == best, room, 0), units, level + 1)
    return None if required >= 0 else _fill(state, room, units, 0)


def _fill(state: State, room: IntArray, units: int, level: int) -> dict[int, int]:
    """Take units from the domains of a level, those with most room first, the last one as tight as can be."""
    domain = state.problem.node_domain
    if level >= len(domain) - 1:
        return _fill_nodes(state, room, units)
    found: dict[int, int] = {}
    total = np.bincount(domain[level], weights=room).astype(np.int64)
    while units:
        enough = np.flatnonzero(total >= units)
        part = int(enough[np.argmin(total[enough])]) if len(enough) else int(np.argmax(total))
        take = min(units, int(total[part]))
        found |= _fill(state, np.where(domain[level] == part, room, 0), take, level + 1)
        total[part] = 0
        units -= take
    return found


def _fill_nodes(state: State, room: IntArray, units: int) -> dict[int, int]:
    """Nodes that are broken up already first; of equals the ones with least room left over."""
    found: dict[int, int] = {}
    candidates = np.flatnonzero(room)
    whole = (state.problem.whole_weight[candidates] > 0) & (state.placed[candidates] == 0)
    for node in candidates[np.lexsort((candidates, state.free[GPUS, candidates], whole))].tolist():
        take = min(units, int(room[node]))
        found[node] = take
        units -= take
        if not units:
            break
    return found


def _place_segments(state: State, j: int, room: IntArray, units: int) -> dict[int, int] | None:
    """Whole segments from the domains of the segment level with most room, the remainder from one more or the same."""
    offers, domain = state.problem.offers, state.problem.node_domain
    level, size, required = int(offers.segment_level[j]), int(offers.segment_units[j]), int(offers.required[j])
    groups = [np.ones(len(room), dtype=np.bool_)]
    if required >= 0:
        groups = [domain[required] == d for d in np.unique(domain[required][room > 0])]
    for group in groups:
        found = _segments_in(state, np.where(group, room, 0), units, level, size)
        if found is not None:
            return found
    return None


def _segments_in(state: State, room: IntArray, units: int, level: int, size: int) -> dict[int, int] | None:
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
        found |= _fill(state, np.where(domain[level] == part, room, 0), int(wanted[part]), level + 1)
    return found
