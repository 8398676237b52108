"""Where an offer fits: the tightest domain, then the tightest nodes; in segments where these are asked for."""

from __future__ import annotations

import numpy as np

from allocator.models.greedy.variables import State, units_that_fit
from allocator.topology.layout import CPUS, GPUS, MEMORY, UNLIMITED, BoolArray, IntArray


def place(state: State, j: int) -> dict[int, int] | None:
    """Nodes for all units of offer j among what is free, None if they do not fit."""
    shapes, s = state.problem.shapes, state.tables.shape[j]
    if state.tables.units[j] == 1:
        return _one_unit(state, shapes.need[:, s], shapes.open_to[s])
    room = units_that_fit(state.free, shapes.need[:, s], shapes.open_to[s])
    units = state.tables.units[j]
    if int(room.sum()) < units:
        return None
    if state.problem.offers.segment_level[j] >= 0:
        return _place_segments(state, j, room, units)
    return _tightest_domain(state, j, room, units)


def _one_unit(state: State, need: IntArray, open_to: BoolArray) -> dict[int, int] | None:
    fits = open_to & (state.free[GPUS] >= need[GPUS])
    for resource in (CPUS, MEMORY):
        if need[resource]:
            fits &= state.free[resource] >= need[resource]
    slack = np.where(fits, state.slack, UNLIMITED)
    node = int(slack.argmin())
    return {node: 1} if slack[node] < UNLIMITED else None


def _tightest_domain(state: State, j: int, room: IntArray, units: int) -> dict[int, int] | None:
    """The finest level of which one domain holds the gang, and its tightest such domain."""
    domain, required = state.problem.node_domain, int(state.problem.offers.required[j])
    for level in range(len(domain) - 2, max(required, 0) - 1, -1):
        total = np.bincount(domain[level], weights=room)
        fitting = np.flatnonzero(total >= units)
        if len(fitting):
            best = fitting[np.argmin(total[fitting])]
            return _fill(state, np.where(domain[level] == best, room, 0), units, level + 1)
    return _fill(state, room, units, 0) if required < 0 else None


def _fill(state: State, room: IntArray, units: int, level: int) -> dict[int, int]:
    """Take units from the domains of a level: the tightest that holds all, else the one with most room, then the rest."""
    domain = state.problem.node_domain
    if level >= len(domain) - 1:
        return _fill_nodes(state, room, units)
    found: dict[int, int] = {}
    total = np.bincount(domain[level], weights=room).astype(np.int64)
    while units:
        enough = np.flatnonzero(total >= units)
        part = enough[np.argmin(total[enough])] if len(enough) else np.argmax(total)
        take = min(units, int(total[part]))
        found |= _fill(state, np.where(domain[level] == part, room, 0), take, level + 1)
        total[part] = 0
        units -= take
    return found


def _fill_nodes(state: State, room: IntArray, units: int) -> dict[int, int]:
    candidates = np.flatnonzero(room)
    order = candidates[np.argsort(state.slack[candidates], kind="stable")]
    last = int(np.searchsorted(np.cumsum(room[order]), units))
    found = dict(zip(order[: last + 1].tolist(), room[order[: last + 1]].tolist(), strict=True))
    found[int(order[last])] -= sum(found.values()) - units
    return found


def _place_segments(state: State, j: int, room: IntArray, units: int) -> dict[int, int] | None:
    """Whole segments from as few domains of every level as can be, the remainder from one of them or one more."""
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
    blocks, (whole, rest) = total // size, divmod(units, size)
    if int(blocks.sum()) < whole:
        return None
    above = np.zeros((level + 1, len(total)), dtype=np.int64)
    above[:, domain[level]] = domain[: level + 1]
    wanted = size * _choose_blocks(above, blocks, total, whole)
    spare = np.flatnonzero(total - wanted >= rest)
    if rest and not len(spare):
        return None
    if rest:
        used = spare[np.lexsort((spare, total[spare] - wanted[spare], wanted[spare] == 0))]
        wanted[used[0]] += rest
    found: dict[int, int] = {}
    for part in np.flatnonzero(wanted).tolist():
        found |= _fill(state, np.where(domain[level] == part, room, 0), int(wanted[part]), level + 1)
    return found


def _choose_blocks(above: IntArray, blocks: IntArray, room: IntArray, number: int) -> IntArray:
    """Blocks to take from each domain: in the finest level of which one domain holds all of them, from the tightest such.

    Parameters
    ----------
    above
        The domains of the levels down to this one that each domain lies in, shape (num_levels, num_domains).
    blocks, room
        Blocks that each domain holds, and units, which tell those with equally many apart.
    """
    for level in range(len(above) - 1, -1, -1):
        part = _tightest(above[level], blocks, room, number)
        if part is not None:
            inside = np.where(above[level] == part, blocks, 0)
            return _take_blocks(above[level + 1 :], inside, room, number)
    return _take_blocks(above, blocks, room, number)


def _take_blocks(above: IntArray, blocks: IntArray, room: IntArray, number: int) -> IntArray:
    """From the domains of a level the tightest that holds all, else the one with most, then the rest; `above` from there on."""
    if not len(above):
        return np.minimum(blocks, number)  # one domain is left
    taken, blocks = np.zeros_like(blocks), blocks.copy()
    while number:
        part = _tightest(above[0], blocks, room, number)
        if part is None:
            part = int(np.argmax(np.bincount(above[0], weights=blocks)))
        inside = np.where(above[0] == part, blocks, 0)
        some = _take_blocks(above[1:], inside, room, min(number, int(inside.sum())))
        taken, blocks, number = taken + some, blocks - inside, number - int(some.sum())
    return taken


def _tightest(domain: IntArray, blocks: IntArray, room: IntArray, number: int) -> int | None:
    """The domain with the fewest blocks, and of these the fewest units, that holds so many; None if none does."""
    total = np.bincount(domain, weights=blocks)
    enough = np.flatnonzero(total >= number)
    if not len(enough):
        return None
    units = np.bincount(domain, weights=room)[enough]
    return int(enough[np.lexsort((units, total[enough]))[0]])
