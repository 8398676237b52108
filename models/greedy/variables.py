"""The state that greedy changes step by step: what is free, what runs, what each vertex holds."""

from __future__ import annotations

from typing import Any

import numpy as np

from allocator.epoch.problem import EpochProblem
from allocator.epoch.solution import EpochSolution, Placement
from allocator.topology.layout import IntArray


class State:
    """A partial decision. Every method keeps `free`, `held`, `promised` and `starts` in step.

    `free` has shape (3, num_nodes); `held[t]` is the change of charged GPUs of share term t; `promised[i]` the GPU-seconds
    promised at funding row i; `limit_used[i]` the GPUs under limit row i. `residents[n]` maps the holders on node n that could
    leave to the GPUs, CPUs and GiB they use there: victims by their row, starts by `num_victims` plus theirs. Offers in `settled` are not taken back for others for the time being.
    """

    def __init__(self, problem: EpochProblem) -> None:
        self.problem = problem
        self.free: IntArray = problem.free.copy()
        self.starts: dict[int, Placement] = {}
        self.stopped = np.zeros(len(problem.victims.work), dtype=np.bool_)
        self.promoted = np.zeros(len(problem.promotions.work), dtype=np.bool_)
        self.started_work = np.zeros(len(problem.names), dtype=np.bool_)
        self.held = [0] * len(problem.shares)
        self.promised = [0] * len(problem.funding)
        self.express_used = np.zeros_like(problem.express_room)
        self.placed: IntArray = problem.whole_placed.copy()
        self.terms_of_offer = _invert([term.offers for term in problem.shares], len(problem.offers.work))
        self.terms_of_victim = _invert([term.victims for term in problem.shares], len(problem.victims.work))
        self.terms_of_promotion = _invert([term.promotions for term in problem.shares], len(problem.promotions.work))
        self.funding_of_offer = _invert([row.offers for row in problem.funding], len(problem.offers.work))
        self.funding_of_promotion = _invert([row.promotions for row in problem.funding], len(problem.promotions.work))
        self.limits_of_offer = _invert([row.offers for row in problem.limits], len(problem.offers.work))
        self.limits_of_victim = _invert([row.victims for row in problem.limits], len(problem.victims.work))
        self.limit_used = [row.kept + int(problem.victims.gpus[row.victims].sum()) for row in problem.limits]
        self.charged_twin = _charged_twins(problem)
        self.promotion_of = {int(r): u for u, r in enumerate(problem.promotions.victim) if r >= 0}
        self.demoted: set[int] = set()
        self.num_victims = len(problem.victims.work)
        self.settled: set[int] = set()
        self.residents: list[dict[int, tuple[int, int, int]]] = [{} for _ in range(problem.free.shape[1])]
        for r, (nodes, need) in enumerate(zip(problem.victims.nodes, problem.victims.need, strict=True)):
            for node, (gpus, cpus, memory) in zip(nodes.tolist(), need.T.tolist(), strict=True):
                self.residents[node][r] = (gpus, cpus, memory)

    def start(self, j: int, placement: Placement) -> None:
        """Start offer j on the given nodes (units by node)."""
        offers = self.problem.offers
        self._occupy(j, placement, 1)
        self.starts[j] = placement
        self.started_work[offers.work[j]] = True
        self._account(j, 1)

    def take_back(self, j: int) -> Placement:
        """Undo a start of this decision."""
        placement = self.starts.pop(j)
        self._occupy(j, placement, -1)
        self.started_work[self.problem.offers.work[j]] = False
        self._account(j, -1)
        return placement

    def _occupy(self, j: int, placement: Placement, sign: int) -> None:
        need = self.problem.shapes.need[:, self.problem.offers.shape[j]]
        gpus, cpus, memory = need.tolist()
        holder = self.num_victims + j
        for node, units in placement.items():
            self.free[:, node] -= sign * units * need
            self.placed[node] += sign * units * gpus
            if sign > 0:
                self.residents[node][holder] = (units * gpus, units * cpus, units * memory)
            else:
                del self.residents[node][holder]

    def _account(self, j: int, sign: int) -> None:
        offers = self.problem.offers
        gpus = sign * int(offers.gpus[j])
        for t in self.terms_of_offer[j]:
            self.held[t] += gpus
        for i in self.limits_of_offer[j]:
            self.limit_used[i] += gpus
        for i in self.funding_of_offer[j]:
            self.promised[i] += sign * int(offers.promise_cost[j])
        if offers.express[j]:
            self.express_used[offers.pool[j]] += gpus

    def stop(self, r: int) -> None:
        """Stop victim r; if it was to be promoted, it is not."""
        self._change_victim(r, 1)
        if self.is_promoted(r):
            self._change_promotion(self.promotion_of[r], -1)
            self.demoted.add(r)

    def keep(self, r: int) -> None:
        """Undo a stop of this decision."""
        self._change_victim(r, -1)
        if r in self.demoted:
            self._change_promotion(self.promotion_of[r], 1)
            self.demoted.discard(r)

    def _change_victim(self, r: int, sign: int) -> None:
        victims = self.problem.victims
        self.stopped[r] = sign > 0
        self.free[:, victims.nodes[r]] += sign * victims.need[r]
        for node, (gpus, cpus, memory) in zip(victims.nodes[r].tolist(), victims.need[r].T.tolist(), strict=True):
            if sign > 0:
                del self.residents[node][r]
            else:
                self.residents[node][r] = (gpus, cpus, memory)
        for t in self.terms_of_victim[r]:
            self.held[t] -= sign * int(victims.gpus[r])
        for i in self.limits_of_victim[r]:
            self.limit_used[i] -= sign * int(victims.gpus[r])

    def gpus_of(self, holder: int) -> int:
        """GPUs that a holder (a victim, or a start behind all victims) has."""
        if holder < self.num_victims:
            return int(self.problem.victims.gpus[holder])
        return int(self.problem.offers.gpus[holder - self.num_victims])

    def is_charged(self, holder: int) -> bool:
        """Whether a holder is charged work."""
        if holder < self.num_victims:
            return bool(self.problem.victims.charged[holder])
        return bool(self.problem.offers.charged[holder - self.num_victims])

    def use_on(self, holder: int, node: int) -> tuple[int, int, int]:
        """GPUs, CPUs and GiB of a holder on one of its nodes."""
        return self.residents[node][holder]

    def use_of(self, holder: int) -> tuple[IntArray, IntArray]:
        """Nodes of a holder, and what it uses on them, shape (3, number of those nodes)."""
        if holder < self.num_victims:
            return self.problem.victims.nodes[holder], self.problem.victims.need[holder]
        placement = self.starts[holder - self.num_victims]
        need = self.problem.shapes.need[:, self.problem.offers.shape[holder - self.num_victims]]
        nodes = np.fromiter(placement.keys(), np.int64, len(placement))
        return nodes, need[:, None] * np.fromiter(placement.values(), np.int64, len(placement))

    def is_promoted(self, r: int) -> bool:
        """Whether a victim is promoted if it stays."""
        return r in self.promotion_of and bool(self.promoted[self.promotion_of[r]])

    def promote(self, u: int) -> None:
        """Charge and protect an uncharged run in place."""
        self._change_promotion(u, 1)

    def _change_promotion(self, u: int, sign: int) -> None:
        promotions = self.problem.promotions
        self.promoted[u] = sign > 0
        for t in self.terms_of_promotion[u]:
            self.held[t] += sign * int(promotions.gpus[u])
        for i in self.funding_of_promotion[u]:
            self.promised[i] += sign * int(promotions.promise_cost[u])

    def save(self) -> tuple[Any, ...]:
        """What `restore` needs to come back to this state."""
        return (
            self.free.copy(), dict(self.starts), self.stopped.copy(), self.started_work.copy(), list(self.held),
            list(self.promised), self.express_used.copy(), self.placed.copy(), list(self.limit_used),
            [dict(holders) for holders in self.residents], self.promoted.copy(), set(self.demoted),
        )  # fmt: skip

    def restore(self, saved: tuple[Any, ...]) -> None:
        """Come back to a saved state; it may be restored once."""
        (
            self.free, self.starts, self.stopped, self.started_work, self.held, self.promised, self.express_used, self.placed,
            self.limit_used, self.residents, self.promoted, self.demoted,
        ) = saved  # fmt: skip

    def solution(self) -> EpochSolution:
        """What has been decided."""
        return EpochSolution(
            starts={j: dict(self.starts[j]) for j in sorted(self.starts)},
            stops=frozenset(np.flatnonzero(self.stopped).tolist()),
            promotions=frozenset(np.flatnonzero(self.promoted).tolist()),
        )


def _invert(groups: list[IntArray], size: int) -> list[list[int]]:
    """For each member, the indices of the groups that hold it."""
    found: list[list[int]] = [[] for _ in range(size)]
    for index, members in enumerate(groups):
        for member in members.tolist():
            found[member].append(index)
    return found


def _charged_twins(problem: EpochProblem) -> dict[int, int]:
    """For each uncharged offer of fundable work, the charged offer of the same workload in the same pool."""
    offers = problem.offers
    charged = {(int(offers.work[j]), int(offers.pool[j])): int(j) for j in np.flatnonzero(offers.charged & ~offers.express)}
    pairs = ((int(j), charged.get((int(offers.work[j]), int(offers.pool[j])))) for j in np.flatnonzero(offers.must_be_unfunded))
    return {j: twin for j, twin in pairs if twin is not None}
