"""The hard rules as questions about the state, under the names they have in the reference model."""

from __future__ import annotations

from allocator.epoch.problem import lack_room
from allocator.epoch.solution import use_of_starts
from allocator.models.greedy.variables import State


def may_start(state: State, j: int) -> bool:
    """Ensures one_offer_per_workload, relocation, funding, funded_is_charged, gpu_limit and express for one more start."""
    return (
        state.tables.work[j] not in state.started_work
        and relocation(state, j)
        and funding(state, j)
        and funded_is_charged(state, j)
        and gpu_limit(state, j)
        and express(state, j)
    )


def relocation(state: State, j: int) -> bool:
    """Ensures that running work starts elsewhere only if it is stopped."""
    return state.tables.victim[j] < 0 or state.tables.victim[j] in state.stopped


def funding(state: State, j: int) -> bool:
    """Ensures that every funding row can pay the promise."""
    cost = state.tables.promise_cost[j]
    return all(state.promised[i] + cost <= state.problem.funding[i].available for i in state.tables.funding_of_offer[j])


def may_promote(state: State, u: int) -> bool:
    """Ensures funding for one more promotion."""
    cost = int(state.problem.promotions.promise_cost[u])
    return all(state.promised[i] + cost <= state.problem.funding[i].available for i in state.tables.funding_of_promotion[u])


def funded_is_charged(state: State, j: int) -> bool:
    """Ensures that an uncharged offer of fundable work stands only while funds are short."""
    if not state.problem.offers.must_be_unfunded[j]:
        return True
    twin = state.tables.charged_twin.get(j)
    return twin is not None and not funding(state, twin)


def gpu_limit(state: State, j: int) -> bool:
    """Ensures that no vertex on the path holds more than its limit afterwards."""
    gpus = state.tables.gpus[j]
    return all(state.limit_used[i] + gpus <= state.problem.limits[i].limit for i in state.tables.limits_of_offer[j])


def express(state: State, j: int) -> bool:
    """Ensures that the lane of the pool has room."""
    if not state.tables.express[j]:
        return True
    pool = state.tables.pool[j]
    return state.express_used[pool] + state.tables.gpus[j] <= int(state.problem.express_room[pool])


def unlicensed(state: State) -> list[int]:
    """Stops that break `licence`: who has none, does not move, and would fit beside what is kept and express starts."""
    victims, tables = state.problem.victims, state.tables
    stopped = [r for r in sorted(state.stopped) if not victims.licensed[r] and state.restart(r) is None]
    if not stopped:
        return []
    ordinary = {j: placement for j, placement in state.starts.items() if not tables.express[j]}
    short = lack_room(victims, state.free + state.problem.late + use_of_starts(state.problem, ordinary))
    return [r for r in stopped if not short[r]]
