"""Making room: the cheapest victims whose places let one offer start."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from allocator.models.greedy.constraints import may_stop_for
from allocator.models.greedy.objective import Objective
from allocator.models.greedy.placement import place, units_that_fit
from allocator.models.greedy.variables import State
from allocator.topology.layout import GPUS, BoolArray, IntArray


@dataclass(frozen=True, slots=True)
class Exchange:
    """Start offer `offer` at `placement` and stop `stops`; `gain` is exact, in 1/1000 GPU-second."""

    offer: int
    placement: dict[int, int]
    stops: tuple[int, ...]
    gain: int


def find_exchange(state: State, objective: Objective, j: int) -> Exchange | None:
    """The best exchange that one pass over the nodes finds, or None if there is no room or nothing to gain."""
    allowed = may_stop_for(state, j)
    if not allowed.any():
        return None
    loss = {int(r): objective.loss_of_stop(int(r)) for r in np.flatnonzero(allowed)}
    if _least_loss(state, j, loss) >= objective.gain_of_start(j):
        return None
    best: Exchange | None = None
    for nodes in _domains(state, j):
        found = _exchange_in(state, objective, j, loss, nodes)
        if found is not None and (best is None or found.gain > best.gain):
            best = found
    return best if best is not None and best.gain > 0 else None


def _least_loss(state: State, j: int, loss: dict[int, int]) -> int:
    """A lower bound on what room for the offer costs: its GPUs at the best rate of any victim, free GPUs for nothing."""
    offers, gpus = state.problem.offers, state.problem.victims.gpus
    s = int(offers.shape[j])
    free = int(np.where(state.problem.shapes.open_to[s], state.free[GPUS], 0).sum())
    missing = max(0, int(offers.gpus[j]) - free)
    return min(missing * value // int(gpus[r]) for r, value in loss.items())


def _domains(state: State, j: int) -> list[BoolArray]:
    """Where the gang may lie: the domains of its required level, or everything its shape is open to."""
    problem = state.problem
    s, level = int(problem.offers.shape[j]), int(problem.offers.required[j])
    open_to = problem.shapes.open_to[s]
    if level < 0:
        return [open_to]
    domain = problem.node_domain[level]
    return [open_to & (domain == d) for d in np.unique(domain[open_to])]


def _exchange_in(state: State, objective: Objective, j: int, loss: dict[int, int], nodes: BoolArray) -> Exchange | None:
    chosen = _clear_nodes(state, j, loss, nodes)
    if chosen is None:
        return None
    freed, stops = chosen
    need = state.problem.shapes.need[:, state.problem.offers.shape[j]]
    placement = place(state, j, units_that_fit(freed, need, nodes))
    if placement is None:
        return None
    kept = _without_needless(state, placement, need, freed, stops, loss)
    gain = objective.gain_of_exchange(j, kept) - objective.cost_of_place(j, placement)
    return Exchange(j, placement, tuple(sorted(kept)), gain)


def _clear_nodes(state: State, j: int, loss: dict[int, int], nodes: BoolArray) -> tuple[IntArray, set[int]] | None:
    """Clear the cheapest nodes one after another until all units fit: the free room then, and who has to go."""
    problem = state.problem
    need = problem.shapes.need[:, problem.offers.shape[j]]
    units = int(problem.offers.units[j])
    free, stops = state.free.copy(), set[int]()
    have = int(units_that_fit(free, need, nodes).sum())
    if have >= units:
        return free, stops
    queue = _cheapest_first(state, need, loss, nodes, free)
    for _, node, leaving in queue:
        for r in leaving:
            if r in stops:
                continue
            stops.add(r)
            own = problem.victims.nodes[r]
            before = units_that_fit(free[:, own], need, nodes[own]).sum()
            free[:, own] += problem.victims.need[r]
            have += int(units_that_fit(free[:, own], need, nodes[own]).sum() - before)
        if have >= units:
            return free, stops
    return None


def _cheapest_first(
    state: State, need: IntArray, loss: dict[int, int], nodes: BoolArray, free: IntArray
) -> list[tuple[float, int, list[int]]]:
    """Nodes with the victims whose leaving makes room for one more unit, by cost per unit gained; a gang's cost is spread over its nodes."""
    victims = state.problem.victims
    found = []
    for node in np.flatnonzero(nodes):
        residents = [r for r in state.residents[node] if r in loss]
        if not residents:
            continue
        residents.sort(key=lambda r: (bool(victims.charged[r]), loss[r] / int(victims.gpus[r]), r))
        room, leaving, cost = free[:, node].copy(), [], 0.0
        goal = units_that_fit(room[:, None], need, np.ones(1, dtype=np.bool_))[0] + 1
        for r in residents:
            own = victims.need[r][:, np.searchsorted(victims.nodes[r], node)]
            room += own
            leaving.append(r)
            cost += loss[r] * int(own[GPUS]) / int(victims.gpus[r])
            if np.all(room >= goal * need):
                found.append((cost, int(node), leaving))
                break
    found.sort(key=lambda item: item[:2])
    return found


def _without_needless(
    state: State, placement: dict[int, int], need: IntArray, free: IntArray, stops: set[int], loss: dict[int, int]
) -> set[int]:
    """The stops less those that can be taken back beside the placement, dearest first."""
    victims = state.problem.victims
    left = free.copy()
    for node, units in placement.items():
        left[:, node] -= units * need
    kept = set(stops)
    for r in sorted(stops, key=lambda r: (not victims.charged[r], -loss[r], r)):
        if np.all(left[:, victims.nodes[r]] >= victims.need[r]):
            left[:, victims.nodes[r]] -= victims.need[r]
            kept.discard(r)
    return kept
