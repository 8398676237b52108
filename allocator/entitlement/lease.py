"""Leases: interactive sessions whose promise is renewed when it lapses, as long as their allocation may have it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from allocator.domain import Lapse, Snapshot
from allocator.entitlement.contract import Contract, ordinary_promise
from allocator.entitlement.demand import queue_order
from allocator.entitlement.facts import Facts
from allocator.entitlement.forced import UNFORCED
from allocator.entitlement.places import NO_LEAF, Places
from allocator.entitlement.reserve import Planner
from allocator.entitlement.tree import BudgetTree
from allocator.entitlement.waterfill import MILLI, hand_out
from allocator.topology import IntArray, Layout


@dataclass(slots=True, eq=False)
class LeaseBook:
    """What renewals draw on, while one after the other is granted.

    `available` are the GPU-seconds that may still be promised, by vertex and pool, and `over` the GPUs that each vertex is
    owed beyond what it holds, in 1/1000; `over_then` the same were no lease under a promise. `limit` is the interactive limit
    by vertex (absent: none), `renewed` the GPUs held by leases beyond their first min runtime.
    """

    snapshot: Snapshot
    layout: Layout
    tree: BudgetTree
    contract: Contract
    places: Places
    available: IntArray
    over: IntArray
    over_then: IntArray
    planner: Planner
    limit: dict[int, int]
    renewed: IntArray

    def renew(self) -> dict[int, int]:
        """Renew the leases that lapse now, in the order of the queue: until when, by row."""
        found = {}
        for row in self._lapsed():
            until = self.snapshot.now + self.promise(row)
            if self.may_renew(row, self.over) and self._leaves_reservations(row, until):
                found[row] = until
                self._draw(row)
        return found

    def _lapsed(self) -> Sequence[int]:
        contract = self.contract
        leases = contract.columns.renew & (contract.min_runtime > 0) & contract.running
        stays = contract.charged & ~contract.protected & ~contract.fresh & ~contract.terminating & (contract.forced == UNFORCED)
        order: list[int] = queue_order(contract, self.places.leaf, leases & stays & (self.places.leaf != NO_LEAF)).tolist()
        return order

    def promise(self, row: int) -> int:
        """Seconds of another promise."""
        return int(ordinary_promise(self.contract.min_runtime[row : row + 1], self.snapshot.policy)[0])

    def may_renew(self, row: int, over: IntArray) -> bool:
        """Whether its allocation has funds, holds no more than it is owed, and has leases to give; and its nodes stay long
        enough."""
        leaf, pool, gpus = int(self.places.leaf[row]), int(self.contract.run_pool[row]), int(self.contract.gpus[row])
        cost, promise = gpus * self.promise(row), self.promise(row)
        funded = all(cost <= self.available[vertex, pool] for vertex in self.tree.funding_path(leaf))
        full = any(self.renewed[v] + gpus > self.limit[v] for v in self.tree.path(leaf) if v in self.limit)
        layout, until = self.layout, self.snapshot.now + promise
        stay = all(layout.accepting[node] and layout.deadline[node] >= until for node in self._nodes(row))
        return funded and not full and stay and int(over[leaf, pool]) >= 0

    def _nodes(self, row: int) -> list[int]:
        run = self.snapshot.workloads[row].run
        return [] if run is None else [self.layout.index[name] for name in run.placement]

    def _leaves_reservations(self, row: int, until: int) -> bool:
        """Make the promise, if every reservation still gets its nodes in time."""
        saved = self.planner.releases.promise(row, self._nodes(row), until)
        if self.planner.all_stand():
            return True
        self.planner.releases.restore(saved)
        return False

    def _draw(self, row: int) -> None:
        leaf, pool, gpus = int(self.places.leaf[row]), int(self.contract.run_pool[row]), int(self.contract.gpus[row])
        for vertex in self.tree.funding_path(leaf):
            self.available[vertex, pool] -= gpus * self.promise(row)
        self.renewed[list(self.tree.path(leaf))] += gpus

    def lapsing(self, renewed: dict[int, int]) -> tuple[Lapse, ...]:
        """All leases that are protected after the renewals: when they lapse, and whether they would be renewed now."""
        contract, found = self.contract, []
        for row in (contract.columns.renew & contract.running).nonzero()[0].tolist():
            work = self.snapshot.workloads[row]
            held = contract.charged[row] and not contract.terminating[row] and contract.forced[row] == UNFORCED
            protected = contract.protected[row] and not (contract.fresh[row] and contract.start[row] > self.snapshot.now)
            if work.min_runtime > 0 and held and (row in renewed or protected) and self.places.leaf[row] != NO_LEAF:
                at = renewed.get(row, int(contract.protected_until[row]))
                found.append(Lapse(workload=work.id, at=at, renewable=self._would_renew(row, renewed)))
        return tuple(found)

    def _would_renew(self, row: int, renewed: dict[int, int]) -> bool:
        """Whether it would be renewed if it lapsed now: what it holds as a renewed lease is its own, and no promise entitles it
        to what it holds."""
        own = int(self.contract.gpus[row]) if row in renewed or is_renewed(self.snapshot, self.contract, row) else 0
        path = list(self.tree.path(int(self.places.leaf[row])))
        self.renewed[path] -= own
        answer = self.may_renew(row, self.over if row in renewed else self.over_then)
        self.renewed[path] += own
        return answer


def is_renewed(snapshot: Snapshot, contract: Contract, row: int) -> bool:
    """Whether a lease runs beyond its first min runtime, under a promise."""
    run = snapshot.workloads[row].run
    if run is None or not snapshot.workloads[row].renew or not contract.protected[row] or run.granted_at is None:
        return False
    since = run.charged_since if run.charged_since is not None else run.start_time
    return since is not None and run.granted_at > since


def open_book(facts: Facts, available: IntArray, planner: Planner) -> LeaseBook:
    """The book before any renewal. `available` is changed by renewals."""
    snapshot, layout, tree, contract, places = facts.snapshot, facts.layout, facts.tree, facts.contract, facts.places
    held = MILLI * facts.market.held
    limits = {vertex.id: vertex.interactive_limit for vertex in snapshot.budgets if vertex.interactive_limit is not None}
    renewed = np.zeros(len(tree), dtype=np.int64)
    for row in (contract.columns.renew & contract.running).nonzero()[0].tolist():
        if is_renewed(snapshot, contract, row) and places.leaf[row] != NO_LEAF:
            renewed[list(tree.path(int(places.leaf[row])))] += contract.gpus[row]
    return LeaseBook(
        snapshot, layout, tree, contract, places, available, facts.market.entitled - held, _owed_then(facts) - held, planner,
        {vertex: limits[name] for vertex, name in enumerate(tree.ids) if name in limits}, renewed,
    )  # fmt: skip


def _owed_then(facts: Facts) -> IntArray:
    """What every vertex would be entitled to if no lease were under a promise, in 1/1000 GPU."""
    contract, places, market, tree = facts.contract, facts.places, facts.market, facts.tree
    leases = (contract.columns.renew & contract.protected_before).nonzero()[0]
    if not len(leases):
        return market.entitled
    held = np.zeros_like(market.floor)
    np.add.at(held, (places.leaf[leases], places.home[leases]), contract.held_gpus[leases])
    return hand_out(
        tree, tree.weight, MILLI * market.schedulable, market.usage, market.floor - tree.sum_up(held), market.demand,
        facts.snapshot.policy.horizon, facts.first_submit,
    )  # fmt: skip
