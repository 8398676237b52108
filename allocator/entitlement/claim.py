"""Whether what is owed and not yet held covers half of a waiting gang."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from allocator.domain import Policy
from allocator.entitlement.model import Entitlement
from allocator.entitlement.places import NO_POOL
from allocator.entitlement.tree import BudgetTree
from allocator.entitlement.waterfill import MILLI
from allocator.topology import BoolArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Claims:
    """What the question is asked about. Arrays by row have shape (num_workloads,), by vertex (num_vertices, num_pools).

    `leaf` and `home` are vertex and pool of each row; `counted` are the rows that count in the demand without being charged;
    `gang` is True for large gangs of their pool.
    """

    leaf: IntArray
    home: IntArray
    gpus: IntArray
    counted: IntArray
    express: BoolArray
    gang: BoolArray
    usage: IntArray
    held: IntArray
    owed: IntArray


def large_gangs(gpus: IntArray, home: IntArray, installed: IntArray, policy: Policy) -> BoolArray:
    """True for gangs of at least `reserve_from` of the GPUs of their pool, shape (num_workloads,)."""
    share = policy.reserve_from
    of_pool = np.append(installed, 0)[home]  # the last for work that accepts no pool
    large: BoolArray = (home != NO_POOL) & (gpus * share.denominator >= share.numerator * of_pool)
    return large


class Ledger:
    """GPUs owed and held, in 1/1000, while one entitled workload after the other is counted as held."""

    def __init__(self, tree: BudgetTree, claims: Claims) -> None:
        self._tree = tree
        self._num_pools: int = claims.owed.shape[1]
        self._left: list[int] = (claims.owed - MILLI * claims.held).ravel().tolist()
        self._leaf: list[int] = claims.leaf.tolist()
        self._home: list[int] = claims.home.tolist()
        self._gpus: list[int] = claims.gpus.tolist()

    def owes_half_of(self, row: int) -> bool:
        """Whether every vertex that has a say is owed at least half the gang beyond what it holds."""
        return self.first_short(row) is None

    def first_short(self, row: int) -> int | None:
        """The lowest vertex that has a say and is owed too little; None if there is none."""
        half = MILLI * self._gpus[row]
        return next((vertex for vertex in self._judges(row) if 2 * self._left[self._place(row, vertex)] < half), None)

    def take(self, row: int) -> None:
        """Count the workload as held."""
        gpus = MILLI * self._gpus[row]
        for vertex in self._tree.path(self._leaf[row]):
            self._left[self._place(row, vertex)] -= gpus

    def credit(self, row: int) -> tuple[int, int]:
        """The lowest vertex that has a say, and what it is owed beyond what it holds."""
        lowest = self._judges(row)[0]
        return lowest, self._left[self._place(row, lowest)]

    def _judges(self, row: int) -> tuple[int, ...]:
        """The vertices of the path that fund; the leaf if none does."""
        leaf = self._leaf[row]
        return self._tree.funding_path(leaf) or (leaf,)

    def _place(self, row: int, vertex: int) -> int:
        return vertex * self._num_pools + self._home[row]


def ledger_of(ent: Entitlement, rows: IntArray, owed: IntArray) -> Ledger:
    """For some of the workloads, if `owed` is what vertices are owed, shape (num_vertices, num_pools)."""
    works, market = ent.works, ent.market
    gpus, home = works.gpus[rows], works.home[rows]
    claims = Claims(
        leaf=works.leaf[rows],
        home=home,
        gpus=gpus,
        counted=np.arange(len(rows)),
        express=works.express[rows],
        gang=large_gangs(gpus, home, market.installed, ent.snapshot.policy),
        usage=market.usage,
        held=market.held,
        owed=owed,
    )
    return Ledger(ent.tree, claims)
