"""Making room: the cheapest victims, and starts of this very decision, whose places let one offer start."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from allocator.models.greedy.constraints import may_stop_for
from allocator.models.greedy.objective import Objective
from allocator.models.greedy.placement import place, units_that_fit
from allocator.models.greedy.variables import State
from allocator.topology.layout import GPUS, BoolArray, IntArray

ALL = np.ones(1, dtype=np.bool_)


@dataclass(frozen=True, slots=True)
class Proposal:
    """Start offer `offer` at `placement` once `stops` have stopped and `returns` have been taken back."""

    offer: int
    placement: dict[int, int]
    stops: tuple[int, ...]
    returns: tuple[int, ...]


class Market:
    """What each holder of GPUs would cost to remove, as seen by one offer. Holders are victims, then starts."""

    def __init__(self, state: State, objective: Objective, j: int) -> None:
        self.state = state
        victims = np.flatnonzero(may_stop_for(state, j)).tolist()
        pool = int(state.problem.offers.pool[j])
        self.loss: dict[int, int] = {r: objective.loss_of_stop(r) for r in victims}
        offset = state.num_victims
        for i in state.starts:
            if state.problem.offers.pool[i] == pool and i not in state.settled:
                self.loss[offset + i] = objective.loss_of_return(i)
        self.rate = {holder: value / state.gpus_of(holder) for holder, value in self.loss.items()}


def find_proposals(state: State, objective: Objective, j: int) -> list[Proposal]:
    """One proposal for each set of nodes in which the offer may lie, if removing what is cheapest there makes room."""
    market = Market(state, objective, j)
    if not market.loss or _least_loss(state, j, market) >= objective.gain_of_start(j):
        return []
    found = [_propose(state, j, market, nodes) for nodes in _areas(state, j)]
    return [proposal for proposal in found if proposal is not None]


def _least_loss(state: State, j: int, market: Market) -> float:
    """A lower bound on what room for the offer costs: its GPUs at the best rate of any holder, free GPUs for nothing."""
    s = int(state.problem.offers.shape[j])
    free = int(np.where(state.problem.shapes.open_to[s], state.free[GPUS], 0).sum())
    missing = max(0, int(state.problem.offers.gpus[j]) - free)
    return missing * min(market.rate.values())


def _areas(state: State, j: int) -> list[BoolArray]:
    """Where the gang may lie: the domains of its required level, or everything its shape is open to."""
    problem = state.problem
    s, level = int(problem.offers.shape[j]), int(problem.offers.required[j])
    open_to = problem.shapes.open_to[s]
    if level < 0:
        return [open_to]
    domain = problem.node_domain[level]
    return [open_to & (domain == d) for d in np.unique(domain[open_to])]


def _propose(state: State, j: int, market: Market, nodes: BoolArray) -> Proposal | None:
    removed = _clear_nodes(state, j, market, nodes)
    if removed is None:
        return None
    free, leaving = removed
    need = state.problem.shapes.need[:, state.problem.offers.shape[j]]
    placement = place(state, j, units_that_fit(free, need, nodes))
    if placement is None:
        return None
    leaving = _without_needless(state, placement, need, free, leaving, market)
    offset = state.num_victims
    return Proposal(
        offer=j,
        placement=placement,
        stops=tuple(sorted(holder for holder in leaving if holder < offset)),
        returns=tuple(sorted(holder - offset for holder in leaving if holder >= offset)),
    )


def _clear_nodes(state: State, j: int, market: Market, nodes: BoolArray) -> tuple[IntArray, set[int]] | None:
    """Clear the cheapest nodes one after another until all units fit: the free room then, and who has to go."""
    problem = state.problem
    need = problem.shapes.need[:, problem.offers.shape[j]]
    units = int(problem.offers.units[j])
    free, leaving = state.free.copy(), set[int]()
    have = int(units_that_fit(free, need, nodes).sum())
    if have >= units:
        return free, leaving
    for _, _, holders in _cheapest_first(state, need, market, nodes):
        for holder in holders:
            if holder in leaving:
                continue
            leaving.add(holder)
            own, freed = state.use_of(holder)
            before = int(units_that_fit(free[:, own], need, nodes[own]).sum())
            free[:, own] += freed
            have += int(units_that_fit(free[:, own], need, nodes[own]).sum()) - before
        if have >= units:
            return free, leaving
    return None


def _cheapest_first(state: State, need: IntArray, market: Market, nodes: BoolArray) -> list[tuple[float, int, list[int]]]:
    """Nodes with the holders whose leaving makes room for one more unit, by cost; a gang's cost is spread over its GPUs."""
    wanted = [int(amount) for amount in need]
    found = []
    for node in np.flatnonzero(nodes).tolist():
        holders = [holder for holder in state.residents[node] if holder in market.loss]
        if not holders:
            continue
        holders.sort(key=lambda holder: (state.is_charged(holder), market.rate[holder], holder))
        room = state.free[:, node].tolist()
        units = min(room[i] // wanted[i] for i in range(3) if wanted[i]) + 1
        goal = [units * amount for amount in wanted]
        leaving, cost = [], 0.0
        for holder in holders:
            use = state.use_on(holder, node)
            room = [have + more for have, more in zip(room, use, strict=True)]
            leaving.append(holder)
            cost += market.rate[holder] * use[GPUS]
            if all(have >= least for have, least in zip(room, goal, strict=True)):
                found.append((cost, node, leaving))
                break
    found.sort(key=lambda item: item[:2])
    return found


def _without_needless(
    state: State, placement: dict[int, int], need: IntArray, free: IntArray, leaving: set[int], market: Market
) -> set[int]:
    """Those that have to leave for this placement: the others stay after all, charged and dear ones first."""
    left = free.copy()
    for node, units in placement.items():
        left[:, node] -= units * need
    kept = set(leaving)
    for holder in sorted(leaving, key=lambda holder: (not state.is_charged(holder), -market.loss[holder], holder)):
        own, use = state.use_of(holder)
        if np.all(left[:, own] >= use):
            left[:, own] -= use
            kept.discard(holder)
    return kept
