"""From a plan to the rows of the decision."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

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
from allocator.entitlement.forced import UNFORCED
from allocator.entitlement.model import Forced
from allocator.entitlement.reserve import as_row
from allocator.verify.after import Placed
from allocator.verify.rules_stops import REASON_OF_FORCED


def decision_of(ent: Entitlement, plan: Plan, digest: str, solver: SolverReport, timing: Mapping[str, float]) -> Decision:
    """The decision without its explanations."""
    forced = sorted(forced_rows(ent), key=lambda row: ent.snapshot.workloads[row].id)
    chosen = _Starts(ent, plan)
    return Decision(
        now=ent.snapshot.now,
        snapshot=digest,
        solver=solver,
        starts=tuple(_start(ent, row, placed) for row, placed in sorted({**plan.starts, **due_starts(ent)}.items())),
        preemptions=tuple(_preemption(ent, chosen, row) for row in sorted({*forced, *plan.stops})),
        promotions=tuple(
            Promotion(workload=ent.snapshot.workloads[row].id, protected_until=_promise_end(ent, row))
            for row in sorted(plan.promotions)
        ),
        renewals=tuple(
            Renewal(workload=ent.snapshot.workloads[row].id, protected_until=int(ent.works.protected_until[row]))
            for row in ent.works.renewed.nonzero()[0].tolist()
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


def _preemption(ent: Entitlement, starts: _Starts, row: int) -> Preemption:
    works, now = ent.works, ent.snapshot.now
    forced = Forced(int(works.forced[row]))
    reason, beneficiaries = _cause(ent, starts, row, forced)
    at_once = forced in (Forced.NODE_DOWN, Forced.DRAIN_DEADLINE, Forced.ORDER_LOST)
    return Preemption(
        workload=ent.snapshot.workloads[row].id,
        reason=reason,
        beneficiaries=beneficiaries,
        lost_gpu_seconds=int(works.lost_gpu_seconds[row]),
        stop_by=now if at_once else now + ent.snapshot.policy.notice,
    )


def _cause(ent: Entitlement, starts: _Starts, row: int, forced: Forced) -> tuple[StopReason, tuple[str, ...]]:
    if forced != UNFORCED:
        gangs = (one for one in ent.reserved if row in one.victims)
        return REASON_OF_FORCED[forced], tuple(ent.snapshot.workloads[one.row].id for one in gangs)
    moves = starts.has(row)
    express = bool(ent.works.charged[row]) and not bool(ent.works.licensed[row]) and not moves
    served = starts.served_by(row, express)
    if moves:
        return StopReason.RELOCATE, served
    return (StopReason.EXPRESS if express else StopReason.SHARE), served


class _Starts:
    """The chosen starts of a plan by node, and by every vertex with a gpu_limit over them."""

    def __init__(self, ent: Entitlement, plan: Plan) -> None:
        self._ent, self._plan = ent, plan
        self._on: dict[int, list[int]] = {}
        self._under: dict[int, list[int]] = {}
        for row, placed in plan.starts.items():
            for node in placed.placement:
                self._on.setdefault(node, []).append(row)
            for vertex in self._limits_over(row):
                self._under.setdefault(vertex, []).append(row)

    def has(self, row: int) -> bool:
        """Whether a workload starts."""
        return row in self._plan.starts

    def served_by(self, row: int, express: bool) -> tuple[str, ...]:
        """Starts on the nodes of a victim that may be the reason of its stop; failing that, those under its gpu_limit."""
        works = self._ent.snapshot.workloads
        run = works[row].run
        assert run is not None
        here = self._fit(row, express, (self._on.get(self._ent.layout.index[name], ()) for name in run.placement))
        served = here or self._fit(row, express, (self._under.get(vertex, ()) for vertex in self._limits_over(row)))
        return tuple(works[other].id for other in served)

    def _fit(self, row: int, express: bool, groups: Iterable[Iterable[int]]) -> list[int]:
        """Those whose claim could stop this victim, in the order of their rows."""
        starts, charged = self._plan.starts, bool(self._ent.works.charged[row])
        found = {other for group in groups for other in group if other != row}
        return sorted(other for other in found if (starts[other].express if express else starts[other].charged or not charged))

    def _limits_over(self, row: int) -> list[int]:
        tree = self._ent.tree
        return [vertex for vertex in tree.path(int(self._ent.works.leaf[row])) if tree.gpu_limit[vertex] >= 0]


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
