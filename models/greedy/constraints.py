"""The hard rules as questions about the state, under the names they have in the reference model."""

from __future__ import annotations

import numpy as np

from allocator.models.greedy.variables import State
from allocator.topology.layout import BoolArray


def may_start(state: State, j: int) -> bool:
    """Ensures funding, funded_is_charged, gpu_limit and express for one more start."""
    return (
        not state.started_work[state.problem.offers.work[j]]
        and funding(state, j)
        and funded_is_charged(state, j)
        and gpu_limit(state, j)
        and express(state, j)
    )


def funding(state: State, j: int) -> bool:
    """Ensures that every funding row can pay the promise."""
    cost = int(state.problem.offers.promise_cost[j])
    return all(state.promised[i] + cost <= state.problem.funding[i].available for i in state.funding_of_offer[j])


def funded_is_charged(state: State, j: int) -> bool:
    """Ensures that an uncharged offer of fundable work stands only while funds are short."""
    if not state.problem.offers.must_be_unfunded[j]:
        return True
    twin = state.charged_twin.get(j)
    return twin is not None and not funding(state, twin)


def gpu_limit(state: State, j: int) -> bool:
    """Ensures that no vertex on the path holds more than its limit afterwards."""
    gpus = int(state.problem.offers.gpus[j])
    return all(state.limit_used[i] + gpus <= state.problem.limits[i].limit for i in state.limits_of_offer[j])


def express(state: State, j: int) -> bool:
    """Ensures that the lane of the pool has room."""
    offers = state.problem.offers
    pool = offers.pool[j]
    return not offers.express[j] or int(state.express_used[pool] + offers.gpus[j]) <= int(state.problem.express_room[pool])


def may_stop_for(state: State, j: int) -> BoolArray:
    """Ensures licence, charged_first and max_preemptions: the victims that offer j may displace, shape (num_victims,)."""
    problem = state.problem
    victims, offers = problem.victims, problem.offers
    allowed = ~state.stopped & (victims.pool == offers.pool[j])
    if not offers.express[j]:
        allowed &= victims.licensed
    if not offers.charged[j] or _stops_left(state) <= 0:
        allowed &= ~victims.charged
    return np.asarray(allowed)


def _stops_left(state: State) -> int:
    limit = state.problem.max_stops
    return 1 << 30 if limit is None else limit - int(np.sum(state.stopped & state.problem.victims.charged))
