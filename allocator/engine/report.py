"""From a plan to the rows of the decision."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from allocator.domain import (
    BrokenContract,
    Decision,
    Preemption,
    Promotion,
    Renewal,
    Reservation,
    SolverReport,
    Start,
    StopReason,
)
from allocator.engine.plan import Plan, due_starts, forced_rows
from allocator.entitlement import Entitlement
from allocator.entitlement.model import Forced
from allocator.entitlement.reserve import as_row
from allocator.verify.after import Placed
from allocator.verify.rules_stops import REASON_OF_FORCED


def decision_of(ent: Entitlement, plan: Plan, digest: str, solver: SolverReport, timing: Mapping[str, float]) -> Decision:
    """The decision without its explanations."""
    forced = sorted(forced_rows(ent), key=lambda row: ent.snapshot.workloads[row].id)
    return Decision(
        now=ent.snapshot.now,
        snapshot=digest,
        solver=solver,
        starts=tuple(_start(ent, row, placed) for row, placed in sorted({**plan.starts, **due_starts(ent)}.items())),
        preemptions=tuple(_preemption(ent, plan, row) for row in sorted({*forced, *plan.stops})),
        promotions=tuple(
            Promotion(workload=ent.snapshot.workloads[row].id, protected_until=_promise_end(ent, row))
            for row in sorted(plan.promotions)
        ),
        renewals=tuple(
            Renewal(workload=ent.snapshot.workloads[row].id, protected_until=int(ent.works.protected_until[row]))
            for row in np.flatnonzero(ent.works.renewed).tolist()
        ),
        reservations=reservation_rows(ent, plan.starts.keys()),
        lapsing=ent.lapsing,
        contract_broken=tuple(_broken(ent, row) for row in forced if _breaks(ent, row)),
        timing=timing,
    )


def reservation_rows(ent: Entitlement, started: Collection[int]) -> tuple[Reservation, ...]:
    """The reservations of gangs that do not start, in the order of their ids."""
    waiting = sorted((one for one in ent.reserved if not one.due and one.row not in started), key=lambda one: one.row)
    return tuple(as_row(one, ent.snapshot.workloads, ent.layout.pools) for one in waiting)


def _promise_end(ent: Entitlement, row: int) -> int:
    return ent.snapshot.now + int(ent.works.promise[row])


def _start(ent: Entitlement, row: int, placed: Placed) -> Start:
    names = ent.layout.names
    return Start(
        workload=ent.snapshot.workloads[row].id,
        placement={names[node]: tasks for node, tasks in sorted(placed.placement.items())},
        charged=placed.charged,
        protected_until=_promise_end(ent, row) if placed.charged else None,
        express=placed.express,
    )


def _preemption(ent: Entitlement, plan: Plan, row: int) -> Preemption:
    works, now = ent.works, ent.snapshot.now
    forced = Forced(int(works.forced[row]))
    reason, beneficiaries = _cause(ent, plan, row, forced)
    at_once = forced in (Forced.NODE_DOWN, Forced.DRAIN_DEADLINE, Forced.ORDER_LOST)
    return Preemption(
        workload=ent.snapshot.workloads[row].id,
        reason=reason,
        beneficiaries=beneficiaries,
        lost_gpu_seconds=int(works.lost_gpu_seconds[row]),
        stop_by=now if at_once else now + ent.snapshot.policy.notice,
    )


def _cause(ent: Entitlement, plan: Plan, row: int, forced: Forced) -> tuple[StopReason, tuple[str, ...]]:
    if forced is not Forced.NONE:
        gangs = (one for one in ent.reserved if row in one.victims)
        return REASON_OF_FORCED[forced], tuple(ent.snapshot.workloads[one.row].id for one in gangs)
    moves = row in plan.starts
    express = bool(ent.works.charged[row]) and not bool(ent.works.licensed[row]) and not moves
    served = _beneficiaries(ent, plan, row, express)
    if moves:
        return StopReason.RELOCATE, served
    return (StopReason.EXPRESS if express else StopReason.SHARE), served


def _beneficiaries(ent: Entitlement, plan: Plan, row: int, express: bool) -> tuple[str, ...]:
    """Starts on the nodes of a victim that may be the reason of its stop; failing that, those under its gpu_limit."""
    works, tree = ent.snapshot.workloads, ent.tree
    run = works[row].run
    assert run is not None
    nodes = {ent.layout.index[name] for name in run.placement}
    charged = bool(ent.works.charged[row])
    fit = [
        other
        for other, placed in sorted(plan.starts.items())
        if other != row and (placed.express if express else placed.charged or not charged)
    ]
    here = [other for other in fit if not nodes.isdisjoint(plan.starts[other].placement)]
    limits = {vertex for vertex in tree.path(int(ent.works.leaf[row])) if tree.gpu_limit[vertex] >= 0}
    below = [other for other in fit if not limits.isdisjoint(tree.path(int(ent.works.leaf[other])))]
    return tuple(works[other].id for other in here or below)


def _breaks(ent: Entitlement, row: int) -> bool:
    """An ordered start that is planned anew had not begun: no promise is broken."""
    return bool(ent.works.protected[row] and ent.works.forced[row] != Forced.ORDER_LOST)


def _broken(ent: Entitlement, row: int) -> BrokenContract:
    down = Forced(int(ent.works.forced[row])) is Forced.NODE_DOWN
    return BrokenContract(
        workload=ent.snapshot.workloads[row].id,
        promised=int(ent.works.protected_until[row]),
        cause="node_down" if down else "drain_deadline",
    )
