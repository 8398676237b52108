"""The state that greedy changes step by step: what is free, what runs, what each vertex holds."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from itertools import pairwise

import numpy as np

from allocator.epoch.problem import EpochProblem, charged_twins, restarts_of
from allocator.epoch.solution import EpochSolution, Placement, spread_value
from allocator.topology.layout import GPUS, BoolArray, IntArray


class Tables:
    """Facts of one problem that every state looks up: columns as lists, and for each member the rows that hold it."""

    def __init__(self, problem: EpochProblem) -> None:
        offers, victims, promotions = problem.offers, problem.victims, problem.promotions
        self.work, self.shape, self.pool = (_list(column) for column in (offers.work, offers.shape, offers.pool))
        self.gpus, self.units, self.promise_cost, self.gain = (
            _list(column) for column in (offers.gpus, offers.units, offers.promise_cost, offers.gain)
        )
        self.victim, self.restarts = _list(offers.victim), restarts_of(offers)
        self.charged: list[bool] = offers.charged.tolist()
        self.express: list[bool] = offers.express.tolist()
        self.victim_gpus, self.victim_cost = _list(victims.gpus), _list(victims.cost)
        self.licensed: list[bool] = victims.licensed.tolist()
        self.victim_charged: list[bool] = victims.charged.tolist()
        self.terms_of_offer = _invert([term.offers for term in problem.shares], len(offers.work))
        self.terms_of_victim = _invert([term.victims for term in problem.shares], len(victims.work))
        self.terms_of_promotion = _invert([term.promotions for term in problem.shares], len(promotions.work))
        self.funding_of_offer = _invert([row.offers for row in problem.funding], len(offers.work))
        self.funding_of_promotion = _invert([row.promotions for row in problem.funding], len(promotions.work))
        self.limits_of_offer = _invert([row.offers for row in problem.limits], len(offers.work))
        self.limits_of_victim = _invert([row.victims for row in problem.limits], len(victims.work))
        self.promotion_of = {int(r): u for u, r in enumerate(problem.promotions.victim) if r >= 0}
        self.charged_twin = charged_twins(offers)


class State:
    """A partial decision. Every method keeps all fields in step.

    `free` has shape (3, num_nodes); `held[t]` is the change of charged GPUs of share term t; `promised[i]` the GPU-seconds
    promised at funding row i; `limit_used[i]` the GPUs under limit row i; `placed` the GPUs that start on each node; `cost` is
    what starts and stops cost but for the shares and what they break up; `slack` is what to fill first: little free, and of
    equals what is broken up already or never was wholly free.
    """

    def __init__(self, problem: EpochProblem, tables: Tables) -> None:
        self.problem, self.tables = problem, tables
        self.free: IntArray = problem.free.copy()
        self.placed: IntArray = problem.whole_placed.copy()
        self.slack: IntArray = 2 * self.free[GPUS] + ((problem.whole_weight > 0) & (self.placed == 0))
        self.starts: dict[int, Placement] = {}
        self.cost = 0
        self._spread: dict[int, int] = {}
        self.stopped: set[int] = set()
        self.promoted: set[int] = set()
        self.started_work: set[int] = set()
        self.held = [0] * len(problem.shares)
        self.promised = [0] * len(problem.funding)
        self.express_used = [0] * len(problem.express_room)
        self.limit_used = [row.kept + int(problem.victims.gpus[row.victims].sum()) for row in problem.limits]

    def copy(self) -> State:
        """The same decision, to try something."""
        other = copy(self)
        for name in ("free", "placed", "slack", "starts", "stopped", "promoted", "started_work", "held", "promised"):
            setattr(other, name, getattr(self, name).copy())
        other.express_used, other.limit_used = self.express_used.copy(), self.limit_used.copy()
        other._spread = self._spread.copy()
        return other

    def start(self, j: int, placement: Placement) -> None:
        """Start offer j on the given nodes (units by node)."""
        self._occupy(j, placement, 1)
        self.starts[j] = placement
        self._spread[j] = spread_value(self.problem, j, placement) if len(placement) > 1 else 0
        self.cost += self._spread[j] - self.tables.gain[j]
        self.started_work.add(self.tables.work[j])
        self._account(j, 1)

    def take_back(self, j: int) -> Placement:
        """Undo a start of this decision."""
        placement = self.starts.pop(j)
        self.cost += self.tables.gain[j] - self._spread.pop(j)
        self._occupy(j, placement, -1)
        self.started_work.discard(self.tables.work[j])
        self._account(j, -1)
        return placement

    def _occupy(self, j: int, placement: Placement, sign: int) -> None:
        need = self.problem.shapes.need[:, self.tables.shape[j]]
        if len(placement) == 1:
            ((node, units),) = placement.items()
            self.free[:, node] -= sign * units * need
            self.placed[node] += sign * units * need[GPUS]
            self._rank(node)
            return
        nodes, count = list(placement), np.fromiter(placement.values(), np.int64, len(placement))
        self.free[:, nodes] -= sign * need[:, None] * count
        self.placed[nodes] += sign * need[GPUS] * count
        self._rank(nodes)

    def _rank(self, nodes: IntArray | list[int] | int) -> None:
        intact = (self.problem.whole_weight[nodes] > 0) & (self.placed[nodes] == 0)
        self.slack[nodes] = 2 * self.free[GPUS, nodes] + intact

    def _account(self, j: int, sign: int) -> None:
        tables = self.tables
        gpus = sign * tables.gpus[j]
        for t in tables.terms_of_offer[j]:
            self.held[t] += gpus
        for i in tables.limits_of_offer[j]:
            self.limit_used[i] += gpus
        for i in tables.funding_of_offer[j]:
            self.promised[i] += sign * tables.promise_cost[j]
        if tables.express[j]:
            self.express_used[tables.pool[j]] += gpus

    def stop(self, r: int) -> None:
        """Stop victim r; it is not promoted then."""
        if (u := self.tables.promotion_of.get(r)) in self.promoted and u is not None:
            self.demote(u)
        self.stopped.add(r)
        self._change_victim(r, 1)

    def keep(self, r: int) -> None:
        """Undo a stop of this decision, and the restart with it."""
        if (j := self.restart(r)) is not None:
            self.take_back(j)
        self.stopped.discard(r)
        self._change_victim(r, -1)

    def _change_victim(self, r: int, sign: int) -> None:
        victims, gpus = self.problem.victims, sign * self.tables.victim_gpus[r]
        self.cost += sign * self.tables.victim_cost[r]
        self.free[:, victims.nodes[r]] += sign * victims.need[r]
        self.slack[victims.nodes[r]] += 2 * sign * victims.need[r][GPUS]
        for t in self.tables.terms_of_victim[r]:
            self.held[t] -= gpus
        for i in self.tables.limits_of_victim[r]:
            self.limit_used[i] -= gpus

    def promote(self, u: int) -> None:
        """Charge and protect an uncharged run in place."""
        self.promoted.add(u)
        self._change_promotion(u, 1)

    def demote(self, u: int) -> None:
        """Undo a promotion."""
        self.promoted.discard(u)
        self._change_promotion(u, -1)

    def _change_promotion(self, u: int, sign: int) -> None:
        promotions = self.problem.promotions
        for t in self.tables.terms_of_promotion[u]:
            self.held[t] += sign * int(promotions.gpus[u])
        for i in self.tables.funding_of_promotion[u]:
            self.promised[i] += sign * int(promotions.promise_cost[u])

    def fits(self, r: int) -> bool:
        """Whether a stopped victim has room where it was, without its restart."""
        victims, j = self.problem.victims, self.restart(r)
        room = self.free[:, victims.nodes[r]]
        if j is not None:
            units = [self.starts[j].get(node, 0) for node in victims.nodes[r].tolist()]
            room = room + self.problem.shapes.need[:, self.tables.shape[j], None] * units
        return bool((room >= victims.need[r]).all())

    def restart(self, r: int) -> int | None:
        """The offer by which a stopped victim starts elsewhere, if it does."""
        return next((j for j in self.tables.restarts.get(r, ()) if j in self.starts), None)

    def takes(self, j: int, node: int) -> bool:
        """Whether one unit of offer j fits a node."""
        s = self.tables.shape[j]
        return bool(self.problem.shapes.open_to[s, node] and (self.free[:, node] >= self.problem.shapes.need[:, s]).all())

    def is_charged(self, r: int) -> bool:
        """Whether a victim that stays is charged work from now on."""
        return self.tables.victim_charged[r] or self.tables.promotion_of.get(r) in self.promoted

    def solution(self) -> EpochSolution:
        """What has been decided."""
        return EpochSolution(
            starts={j: dict(self.starts[j]) for j in sorted(self.starts)},
            stops=frozenset(self.stopped),
            promotions=frozenset(self.promoted),
        )


def units_that_fit(free: IntArray, need: IntArray, open_to: BoolArray) -> IntArray:
    """Units with this need that fit each open node, shape (num_nodes,)."""
    room = np.maximum(free[GPUS], 0) // need[GPUS]
    for resource in (1, 2):
        if need[resource]:
            room = np.minimum(room, np.maximum(free[resource], 0) // need[resource])
    return np.asarray(room * open_to)


def _list(column: IntArray) -> list[int]:
    return list(column.tolist())


def _invert(groups: Sequence[IntArray], size: int) -> list[tuple[int, ...]]:
    """For each member, the indices of the groups that hold it; members of the same groups share one tuple."""
    if not any(map(len, groups)):
        return [()] * size
    member = np.concatenate(groups)
    group = np.repeat(np.arange(len(groups)), [len(own) for own in groups])[np.argsort(member, kind="stable")].tolist()
    ends = [0, *np.cumsum(np.bincount(member, minlength=size)).tolist()]
    shared: dict[tuple[int, ...], tuple[int, ...]] = {}
    return [shared.setdefault(own, own) for own in (tuple(group[start:stop]) for start, stop in pairwise(ends))]
