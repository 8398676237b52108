"""Every coefficient of the objective but the curves, in 1/1000 GPU-second, for engines and verifier alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from allocator.domain import Policy
from allocator.entitlement.columns import NONE
from allocator.entitlement.contract import Contract
from allocator.entitlement.curve import round_ratio
from allocator.entitlement.entitled import level_ranks
from allocator.entitlement.model import Entitlement
from allocator.entitlement.places import Places
from allocator.entitlement.requests import request_of
from allocator.entitlement.spreads import SpreadCosts
from allocator.entitlement.tree import BudgetTree, frozen
from allocator.topology import MOST_ANSWERS, BoolArray, IntArray, Layout, fewest_domains, once

UNIT = 1000
"""Units of the objective in a GPU-second."""

LEAST_LOST = 60
"""A stop costs at least so many GPU-seconds per GPU."""

MOST_LOST_STEPS = 4
"""A stop costs at most so many planning steps per GPU, but on the last try."""

UNCHARGED_PART = 1, 10
"""Lost work of unallocated work counts so much: numerator and denominator."""

PREFERRED_FACTOR = 2
"""Spread costs so many times as much at a preferred level and above it."""

PREFERRED_SLOWDOWN = Fraction(1, 50)
"""Slowdown at a preferred level that states none."""

_SAFE = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The terms of the objective, in 1/1000 GPU-second."""

    unfairness: int = 0
    express: int = 0
    idle: int = 0
    lost_work: int = 0
    spread: int = 0
    fragmentation: int = 0
    order: int = 0

    @property
    def total(self) -> int:
        """The objective."""
        return self.unfairness + self.express + self.idle + self.lost_work + self.spread + self.fragmentation + self.order

    def as_dict(self) -> dict[str, int]:
        """The terms by name."""
        return {name: getattr(self, name) for name in self.__slots__}


def round_half_up(value: Fraction) -> int:
    """The nearest integer, halves upwards."""
    return round_ratio(value.numerator, value.denominator)


def step_cost(weight: Fraction, policy: Policy) -> Fraction:
    """What one GPU for one planning step is worth under a weight, unrounded."""
    return weight * policy.planning_step * UNIT


def _rounded_cost(weight: Fraction, policy: Policy, gpus: int = 1) -> int:
    """The same for so many GPUs, rounded once."""
    return round_ratio(weight.numerator * policy.planning_step * UNIT * gpus, weight.denominator)


def idle_cost(policy: Policy) -> int:
    """Cost per GPU of an accepting node that no task uses."""
    return _rounded_cost(policy.weights.idle, policy)


def express_cost(policy: Policy, gpus: int) -> int:
    """Cost of a lane candidate of so many GPUs that waits."""
    return _rounded_cost(policy.weights.express, policy, gpus)


def fragmentation_cost(policy: Policy) -> int:
    """Cost per GPU of min(placed, left free) where something that was wholly free is broken up."""
    return _rounded_cost(policy.weights.fragmentation, policy)


def lost_costs(contract: Contract, policy: Policy, now: int) -> tuple[IntArray, IntArray]:
    """GPU-seconds that a stop of each run throws away, and its cost; 0 for waiting work. Shape (num_workloads,) each."""
    columns = contract.columns
    lost, cost = np.zeros_like(columns.gpus), np.zeros_like(columns.gpus)
    rows = columns.running.nonzero()[0]
    lost[rows] = _lost(contract, now)[rows]
    cost[rows] = _stop_costs(contract, lost, policy)[rows]
    return lost, cost


def _lost(contract: Contract, now: int) -> IntArray:
    """As `lost_gpu_seconds`, for all at once."""
    columns, start = contract.columns, np.minimum(contract.start, now)
    since = (now - start) % np.maximum(columns.interval, 1)
    since = np.where(columns.interval > 0, since, now - start)
    known = columns.resumable & (columns.checkpoint != NONE)
    since = np.where(known, np.maximum(now - np.maximum(start, columns.checkpoint), 0), since)
    return np.where(columns.saves, 0, columns.gpus * since)


def _stop_costs(contract: Contract, lost: IntArray, policy: Policy) -> IntArray:
    """Cost of a stop that throws away `lost` GPU-seconds, for runs."""
    columns = contract.columns
    gpus, weight, (part, parts) = columns.gpus, policy.weights.lost_work, UNCHARGED_PART
    times = 1 + columns.preempted
    again = lost + columns.restart_time * gpus
    largest = int(again.max(initial=0)) * int(times.max(initial=0)) + LEAST_LOST * int(gpus.max(initial=0))
    kind: type = np.int64 if 4 * largest * UNIT * weight.numerator * parts < _SAFE else object
    amount = np.maximum(again.astype(kind) * times, LEAST_LOST * gpus)
    most = np.minimum(amount, MOST_LOST_STEPS * policy.planning_step * gpus)
    amount = np.where(contract.last_try, amount, most) * np.where(columns.charged, parts, part)
    unit = weight.denominator * parts
    return np.asarray((2 * weight.numerator * UNIT * amount + unit) // (2 * unit), dtype=np.int64)


def order_costs(
    contract: Contract, places: Places, ranked: BoolArray, tree: BudgetTree, used: IntArray, policy: Policy
) -> IntArray:
    """Cost of waiting for each workload, shape (num_workloads,): the first of its order costs most, the last least.

    Work with a min runtime is ranked in its leaf by priority, submit time and id; unallocated work over the whole snapshot
    by what its leaf has used per share, then size, submit time and id. `used` is all GPU-seconds by vertex, charged or not,
    over all pools, shape (num_vertices,). Work that is not `ranked` costs nothing.
    """
    leaf = places.leaf
    rank = np.zeros(len(leaf), dtype=np.int64)
    count = np.ones(len(leaf), dtype=np.int64)
    rows = (ranked & ~contract.unallocated).nonzero()[0]
    order = rows[np.lexsort((rows, contract.submit[rows], -contract.priority[rows], leaf[rows]))]
    in_leaf = leaf[order]
    first, stop = in_leaf.searchsorted(in_leaf), in_leaf.searchsorted(in_leaf, side="right")
    rank[order] = np.arange(len(order)) - first
    count[order] = stop - first
    rows = (ranked & contract.unallocated).nonzero()[0]
    amount = np.broadcast_to(used[:, np.newaxis], tree.share.shape)
    level = level_ranks(leaf[rows], places.home[rows], amount, tree.share)
    order = rows[np.lexsort((rows, contract.submit[rows], contract.gpus[rows], level))]
    rank[order] = np.arange(len(order))
    count[order] = len(order)
    unit = step_cost(policy.weights.order, policy)
    gpus = np.where(ranked, contract.gpus, 0)
    return _scaled(unit, gpus * (count - rank), count)


def _scaled(unit: Fraction, factor: IntArray, divisor: IntArray) -> IntArray:
    """Times `factor` / `divisor`, rounded half up; exact, in Python integers where 64 bits would not do."""
    largest = 2 * unit.numerator * int(factor.max(initial=0)) + unit.denominator * int(divisor.max(initial=0))
    above, below = (factor, divisor) if largest < _SAFE else (factor.astype(object), divisor.astype(object))
    numerator, denominator = above * unit.numerator, below * unit.denominator
    return np.asarray((2 * numerator + denominator) // (2 * denominator), dtype=np.int64)


def spread_costs(entitlement: Entitlement, row: int, pool: int) -> SpreadCosts:
    """What the gang pays for each domain that it touches beyond the fewest possible in an empty pool."""
    work, known = entitlement.snapshot.workloads[row], entitlement.spreads
    key = request_of(work), pool
    found = known.get(key)
    if found is None:
        if len(known) >= MOST_ANSWERS:
            known.clear()
        costs = _costs_per_domain(entitlement, work.gpus, work.topology.preferred)
        found = known[key] = SpreadCosts(costs, fewest_domains(entitlement.layout, work, pool))
    return found


@once
def spread_of_runs(entitlement: Entitlement) -> IntArray:
    """What the domains that each gang touches where it runs cost beyond the fewest, shape (num_workloads,), read-only."""
    places, works = entitlement.placements, entitlement.works
    spread = np.zeros(len(works.gpus), dtype=np.int64)
    row, node = places.row[places.present], places.node[places.present]
    several = np.bincount(row, minlength=len(spread)) > 1
    gangs = several.nonzero()[0]
    if not len(gangs):
        return frozen(spread)
    code = works.request[gangs] * len(entitlement.layout.pools) + works.run_pool[gangs]
    _, first, kind = np.unique(code, return_index=True, return_inverse=True)
    prices = [spread_costs(entitlement, one, int(works.run_pool[one])) for one in gangs[first].tolist()]
    levels = entitlement.layout.domain
    costs, fewest = np.array(prices, dtype=np.int64).reshape(-1, 2, len(levels))[kind].transpose(1, 2, 0)
    of_gang = several[row]
    gang, node = gangs.searchsorted(row[of_gang]), node[of_gang]
    for price, least, domain in zip(costs, fewest, levels, strict=True):
        if not price.any():
            continue
        size = int(domain.max(initial=0)) + 1
        touched = np.sort(gang * size + domain[node])
        number = np.bincount(touched[np.diff(touched, prepend=-1) > 0] // size, minlength=len(gangs))
        spread[gangs] += price * np.maximum(number - least, 0)
    return frozen(spread)


def _touched(layout: Layout, nodes: IntArray) -> IntArray:
    """How many domains of each level these nodes lie in, shape (num_levels,)."""
    return np.array([len(set(domain)) for domain in layout.domain[:, nodes].tolist()], dtype=np.int64)


def _costs_per_domain(entitlement: Entitlement, gpus: int, preferred: str | None) -> IntArray:
    layout, policy, slowdown = entitlement.layout, entitlement.snapshot.policy, entitlement.snapshot.cluster.slowdown
    unit, rates = step_cost(policy.weights.spread, policy) * gpus, tuple(_slowdowns(slowdown, layout.levels, preferred))
    key = ("spread", unit, rates)
    return layout.remembered(key, lambda: np.array([round_half_up(unit * rate) for rate in rates], dtype=np.int64))


def _slowdowns(slowdown: Mapping[str, Fraction], levels: Sequence[str], preferred: str | None) -> list[Fraction]:
    """Slowdown by level, with the factor of the preferred one."""
    rates = [slowdown.get(level, Fraction(0)) for level in levels]
    if preferred is None or preferred not in levels:
        return rates
    at = levels.index(preferred)
    if preferred not in slowdown:
        rates[at] = PREFERRED_SLOWDOWN
    return [rate * PREFERRED_FACTOR if level <= at else rate for level, rate in enumerate(rates)]


def spread_cost(entitlement: Entitlement, row: int, nodes: IntArray) -> int:
    """Spread of one gang that lies on these nodes of one pool."""
    layout = entitlement.layout
    costs, fewest = spread_costs(entitlement, row, int(layout.pool[nodes[0]]))
    return int((costs * np.maximum(_touched(layout, nodes) - fewest, 0)).sum())


@once
def whole_before(entitlement: Entitlement) -> tuple[BoolArray, ...]:
    """Which domains were wholly free just before `now`: one array of shape (num_domains, num_pools) for each level.

    Nodes, and domains of the levels strictly between the coarsest and the node, each within one pool: all of its nodes
    accept work, and none had a task. The coarsest level has none.
    """
    layout, places = entitlement.layout, entitlement.placements
    busy = ~layout.accepting
    busy[places.node[places.before]] = True
    free = []
    for level, paths in enumerate(layout.domain_paths):
        whole = np.zeros((len(paths), len(layout.pools)), dtype=bool)
        if level > 0 or len(layout.levels) == 1:
            whole[layout.domain[level], layout.pool] = True
            whole[layout.domain[level][busy], layout.pool[busy]] = False
        free.append(frozen(whole))
    return tuple(free)
