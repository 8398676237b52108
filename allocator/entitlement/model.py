"""What is known before anything is decided: the one result of `entitle`, read by models, verifier and explanations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from allocator.domain import Lapse, Snapshot
from allocator.entitlement.columns import Columns
from allocator.entitlement.curve import Curve
from allocator.entitlement.forced import Forced
from allocator.entitlement.healthy import HealthCheck
from allocator.entitlement.placements import Placements
from allocator.entitlement.reserved import Reserved
from allocator.entitlement.spreads import Spreads
from allocator.entitlement.tree import BudgetTree
from allocator.topology.fit import eligible
from allocator.topology.layout import BoolArray, IntArray, Layout
from allocator.wire.digest import Texts

__all__ = ["NO_BUDGET", "Entitlement", "Forced", "Market", "WorkTable"]

NO_BUDGET = -1
"""Budget of a vertex that does not fund."""


@dataclass(frozen=True, slots=True, eq=False)
class Market:
    """Budgets and entitlement by vertex and pool; every array has shape (num_vertices, num_pools).

    `budget` is NO_BUDGET where a vertex does not fund; `available` and `available_before` are 0 there and not to be used.
    GPU-seconds: budget, usage, uncharged_usage, outstanding, available, available_before. GPUs: held, floor, demand.
    1/1000 GPU: entitled (with floors), owed (without). `level[v, p]` is the level of the sibling set of v (object array of
    Fraction or None where nobody has demand).
    """

    installed: IntArray
    schedulable: IntArray
    budget: IntArray
    usage: IntArray
    uncharged_usage: IntArray
    outstanding: IntArray
    available: IntArray
    available_before: IntArray
    held: IntArray
    floor: IntArray
    demand: IntArray
    entitled: IntArray
    owed: IntArray
    level: npt.NDArray[np.object_]
    curves: Mapping[tuple[int, int], Curve]


@dataclass(frozen=True, slots=True, eq=False)
class WorkTable:
    """One row per workload of the canonical snapshot; every array has shape (num_workloads,).

    Attributes
    ----------
    request
        Equal numbers where the same is asked of the nodes.
    leaf
        Vertex index, -1 for workloads that cannot be decided (see `impossible`).
    gpus, promise, promise_cost
        GPUs of the gang; seconds promised if it were started or promoted now (0: unallocated work); GPU-seconds that this
        draws on budgets.
    assured, unallocated
        Was stopped so often that its promise asks for no funds; has no min runtime and is not assured, so that it is never
        charged.
    home
        Pool in which it counts (index), -1 where no accepted pool exists.
    running, run_pool, charged, protected, protected_until
        The actual run (terminating ones included): pool index or -1, whether charged, whether protected now, and until
        when (0: none).
    fresh
        True for runs that start at now or later: they still counted as waiting just before now.
    terminating, ordered
        Stopped by an earlier decision and still there; started by an earlier decision and not begun. A node holds the rest
        with either of the two, not with both.
    held_before, held_pool
        True where it held GPUs just before now, and in which pool (-1).
    forced
        A `Forced` code for running work that must stop.
    candidate
        May start in this decision: waits, can be placed on a healthy cluster, is not cooling down; or is forced to stop.
    renewed
        A lease that lapsed and is renewed in this decision: protected again, until `protected_until`.
    due
        A gang whose reservation has come: it starts in this decision, where its reservation says, and is no candidate.
    prepaid
        The pool in which a reserved gang holds its funds, so that its promise costs nothing more; -1 for all others.
    patient
        Waits for victims of earlier decisions to leave, whose place it fits: no candidate.
    promotable
        Runs uncharged, is not unallocated, and stays.
    stoppable
        Runs unprotected since before `now`, not forced, not terminating.
    licensed
        Stoppable for the sake of shares.
    movable
        Stoppable, and free to start elsewhere in its pool in the same decision (`relocation`).
    express, funded, entitled
        Lane candidate; counted in the demand (funded cumulatively); entitled.
    entitled_since
        Seconds; 0 where the mark is not set (gangs that latch only).
    lost_gpu_seconds, lost_cost, order_cost
        GPU-seconds a stop throws away without restart; weighted cost of the stop; weighted cost of waiting. The costs are
        in 1/1000 GPU-second.
    impossible
        Row -> (reason, detail) for workloads that can never start as they are, running ones included.
    """

    request: IntArray
    leaf: IntArray
    gpus: IntArray
    promise: IntArray
    promise_cost: IntArray
    assured: BoolArray
    unallocated: BoolArray
    home: IntArray
    running: BoolArray
    run_pool: IntArray
    charged: BoolArray
    protected: BoolArray
    protected_until: IntArray
    fresh: BoolArray
    terminating: BoolArray
    ordered: BoolArray
    held_before: BoolArray
    held_pool: IntArray
    forced: IntArray
    candidate: BoolArray
    renewed: BoolArray
    due: BoolArray
    prepaid: IntArray
    patient: BoolArray
    promotable: BoolArray
    stoppable: BoolArray
    licensed: BoolArray
    movable: BoolArray
    express: BoolArray
    funded: BoolArray
    entitled: BoolArray
    entitled_since: IntArray
    lost_gpu_seconds: IntArray
    lost_cost: IntArray
    order_cost: IntArray
    impossible: Mapping[int, tuple[str, str]]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Entitlement:
    """Everything that holds before the decision.

    `express_room` are the GPUs that the express lane of each pool had left just before now, shape (num_pools,): what starts
    at now still has to be taken off. `warnings` are for people. `reserved` are the reservations that stand, in the order of
    their claim; `own_limit` says by row until when their gangs may be promised each node, shape (num_nodes,), in place of
    `layout.promise_by`. `lapsing` are the leases that are protected after this decision.
    `columns` are what the workloads say of themselves, `placements` where they lie,
    `health` what the empty cluster says to them, `spreads` what gangs pay for each domain beyond the fewest;
    `texts` is what is known of the parts of the snapshot as text, for its digest.
    """

    snapshot: Snapshot
    layout: Layout
    tree: BudgetTree
    market: Market
    works: WorkTable
    columns: Columns
    placements: Placements
    health: HealthCheck
    spreads: Spreads
    express_room: IntArray
    warnings: tuple[str, ...]
    reserved: tuple[Reserved, ...] = ()
    own_limit: Mapping[int, IntArray] = field(default_factory=dict)
    lapsing: tuple[Lapse, ...] = ()
    texts: Texts = field(default_factory=Texts)

    def path_share(self, vertex: int, pool: int) -> Fraction:
        """Product of the normalised shares from the root down to the vertex."""
        return self.tree.path_share(vertex, pool)

    def may_start_on(self, row: int, until: int | None) -> BoolArray:
        """Nodes on which a workload may start now; with `until`, be promised until then. Shape (num_nodes,)."""
        own = self.own_limit.get(row)
        by = None if own is None else np.minimum(own, self.layout.deadline)
        return eligible(self.layout, self.snapshot.workloads[row], until, by)

    def cost(self, row: int, pool: int) -> int:
        """GPU-seconds that a promise to a workload draws on budgets in a pool: nothing where a reservation holds its funds."""
        if self.works.prepaid[row] == pool:
            return 0
        return int(self.works.promise_cost[row])
