"""Snapshots and decisions in few words, as domain objects: one rack of H100 nodes, budgets without end, work that fits.

    snap = snapshot(
        nodes(2),
        [budget("a"), budget("b")],
        [running("old", "a", {"n1": 1}, gpus=8, protected_until=NOW), job("new", "b", gpus=8)],
    )
    answer = decision(snap, starts=[start("new", {"n1": 1})], stops=[stop("old", "new")])

Whatever a decision claims (promises, lost work, objective) is filled in as it must be, unless it is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from allocator.domain import (
    Allocation,
    BrokenContract,
    Cluster,
    Decision,
    ExpressLane,
    Lapse,
    LastStop,
    Node,
    NodeState,
    Policy,
    Preemption,
    Promotion,
    Renewal,
    Reservation,
    Run,
    Segment,
    Snapshot,
    SolverReport,
    Start,
    StopReason,
    TopologyWish,
    UsageRecord,
    Weights,
    Workload,
)
from allocator.entitlement import Entitlement, Forced, entitle
from allocator.entitlement.reserve import as_row
from allocator.verify.case import Case
from allocator.verify.rules_stops import REASON_OF_FORCED

NOW = 1_000_000
"""The instant of every snapshot, unless another is given."""

HOUR = 3600

LEVELS = ("cluster", "rack", "node")
"""Levels of every cluster, unless others are given."""


def node(name: str, rack: str = "r1", *, pool: str = "h100", gpus: int = 8, **fields: Any) -> Node:
    """A node of the cluster `c`; `state` and `drain_deadline` make it leave."""
    fields.setdefault("domains", ("c", rack))
    if "state" in fields:
        fields["state"] = NodeState(fields["state"])
    return Node(name=name, pool=pool, gpus=gpus, **fields)


def nodes(count: int, *, per_rack: int = 4, prefix: str = "n", **fields: Any) -> tuple[Node, ...]:
    """Nodes n1, n2, ... in racks r1, r2, ... of `per_rack` each."""
    return tuple(node(f"{prefix}{number + 1}", f"r{number // per_rack + 1}", **fields) for number in range(count))


def budget(name: str, share: float | str | Fraction = 1, parent: str | None = None, **fields: Any) -> Allocation:
    """An allocation that funds; `share_by_pool` takes numbers."""
    by_pool = {pool: Fraction(str(value)) for pool, value in fields.pop("share_by_pool", {}).items()}
    return Allocation(id=name, parent=parent, share=Fraction(str(share)), share_by_pool=by_pool, **fields)


def job(name: str, allocation: str = "a", gpus: int = 8, **fields: Any) -> Workload:
    """A waiting workload, submitted an hour ago: one task of up to 8 GPUs, or as many tasks of 8 as it takes.

    Unless given otherwise it asks for 2 hours, resumes, checkpoints on notice and restarts at once. `required`, `preferred`
    and `segment` (level, tasks) make up its topology; `restart_time` and the like are fields of `Workload`.
    """
    per_task = fields.pop("gpus_per_task", min(gpus, 8))
    tasks = fields.pop("tasks", gpus // per_task)
    segment = fields.pop("segment", None)
    wish = TopologyWish(
        required=fields.pop("required", None),
        preferred=fields.pop("preferred", None),
        segment=None if segment is None else Segment(level=segment[0], tasks=segment[1]),
    )
    usual: dict[str, Any] = {
        "submit_time": NOW - HOUR,
        "min_runtime": 2 * HOUR,
        "resumable": True,
        "checkpoint_on_notice": True,
    }
    usual |= {"restart_time": 60, "topology": wish}
    return Workload(id=name, allocation=allocation, tasks=tasks, gpus_per_task=per_task, **(usual | fields))


_RUN_FIELDS = ("charged_since", "granted_at", "protected_until", "express", "last_checkpoint", "terminating_until")


def running(
    name: str,
    allocation: str,
    placement: Mapping[str, int],
    gpus: int = 8,
    *,
    charged: bool = True,
    since: int | None = NOW - 10 * HOUR,
    **fields: Any,
) -> Workload:
    """A workload that runs since ten hours, its promise long kept, charged unless said otherwise."""
    usual = {key: fields.pop(key) for key in _RUN_FIELDS if key in fields}
    if charged and since is not None:
        usual = {"charged_since": since, "granted_at": since} | usual
    run = Run(placement=dict(placement), charged=charged, start_time=since, **usual)
    return replace(job(name, allocation, gpus, **fields), run=run)


def stopped(work: Workload, at: int = NOW, *, charged: bool = True, pool: str = "h100") -> Workload:
    """The workload after a stop by a decision."""
    return replace(work, preempted=work.preempted + 1, stopped=LastStop(at=at, pool=pool, gpus=work.gpus, charged=charged))


def used(allocation: str, gpu_hours: int, pool: str = "h100", *, ago: int = 2 * HOUR, charged: bool = True) -> UsageRecord:
    """Usage of one hour's length that ended some time ago."""
    end = NOW - ago
    return UsageRecord(allocation=allocation, pool=pool, gpus=gpu_hours, start=end - HOUR, end=end, charged=charged)


def snapshot(
    machines: Iterable[Node], budgets: Iterable[Allocation], works: Iterable[Workload] = (), **fields: Any
) -> Snapshot:
    """A snapshot in canonical order. Fields of the policy (`horizon`, `weights`, ...) may be given as well as `usage`, `now`,
    `levels` and `slowdown`."""
    cluster = Cluster(
        levels=fields.pop("levels", LEVELS),
        nodes=tuple(machines),
        slowdown={level: Fraction(str(value)) for level, value in fields.pop("slowdown", {}).items()},
    )
    own: dict[str, Any] = {"now": NOW} | {
        key: fields.pop(key) for key in ("now", "usage", "reservations", "rejected") if key in fields
    }
    policy = fields.pop("policy", Policy(**fields))
    return Snapshot(cluster=cluster, budgets=tuple(budgets), workloads=tuple(works), policy=policy, **own).canonical()


def lane(**fields: Any) -> ExpressLane:
    """An express lane; unless given otherwise as in the policy."""
    return ExpressLane(**fields)


def weights(**fields: Any) -> Weights:
    """Weights of the objective; unless given otherwise as in the policy."""
    return Weights(**{name: Fraction(str(value)) for name, value in fields.items()})


@dataclass(frozen=True, slots=True)
class Draft:
    """A start or a promotion before its claims are filled in."""

    workload: str
    placement: Mapping[str, int]
    charged: bool | None = None
    express: bool | None = None
    fields: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class StopDraft:
    """A stop before its claims are filled in."""

    workload: str
    beneficiaries: tuple[str, ...]
    fields: Mapping[str, Any]


def start(
    workload: str, placement: Mapping[str, int], *, charged: bool | None = None, express: bool | None = None, **fields: Any
) -> Draft:
    """A start: charged if it has a min runtime, express if it is a candidate of the lane, unless said otherwise."""
    return Draft(workload, placement, charged, express, fields)


def stop(workload: str, *beneficiaries: str, **fields: Any) -> StopDraft:
    """A stop for the sake of some starts, or forced if there are none."""
    return StopDraft(workload, beneficiaries, fields)


def decision(
    snap: Snapshot,
    starts: Sequence[Draft] = (),
    stops: Sequence[StopDraft] = (),
    promotions: Sequence[str | Promotion] = (),
    *,
    renewals: Sequence[Renewal] | None = None,
    reservations: Sequence[Reservation] | None = None,
    lapsing: Sequence[Lapse] | None = None,
    **fields: Any,
) -> Decision:
    """A decision in which everything that it claims is as it must be, but for what is given."""
    known = _Known(entitle(snap))
    answer = Decision(
        now=snap.now,
        snapshot="",
        solver=SolverReport(
            rung="greedy", engine="greedy", status="feasible", objective=0, bound=None, gap=None, terms={}, seed=0
        ),
        starts=tuple(known.start(draft) for draft in starts),
        preemptions=tuple(known.stop(draft, draft.workload in {move.workload for move in starts}) for draft in stops),
        promotions=tuple(known.promotion(row) if isinstance(row, str) else row for row in promotions),
        renewals=tuple(known.renewals() if renewals is None else renewals),
        reservations=tuple(known.reservations(starts) if reservations is None else reservations),
        lapsing=tuple(known.ent.lapsing if lapsing is None else lapsing),
        contract_broken=tuple(known.broken()),
    )
    return replace(with_score(snap, answer, known.ent), **fields)


def with_score(snap: Snapshot, answer: Decision, ent: Entitlement | None = None) -> Decision:
    """The decision with objective and terms as they are, and a bound that proves it optimal."""
    ent = ent or entitle(snap)
    score = Case.of(ent, answer).score
    solver = replace(answer.solver, objective=score.total, bound=score.total, gap=0.0, terms=score.as_dict())
    return replace(answer, solver=solver)


@dataclass(frozen=True, slots=True)
class _Known:
    """Fills in claims from the entitlement."""

    ent: Entitlement

    def row(self, workload: str) -> int:
        return next(row for row, work in enumerate(self.ent.snapshot.workloads) if work.id == workload)

    def start(self, draft: Draft) -> Start:
        row = self.row(draft.workload)
        charged = self.ent.snapshot.workloads[row].min_runtime > 0 if draft.charged is None else draft.charged
        express = bool(self.ent.works.express[row]) if draft.express is None else draft.express
        until = self._until(row) if charged else None
        usual: dict[str, Any] = {"charged": charged, "express": express, "protected_until": until}
        return Start(workload=draft.workload, placement=dict(draft.placement), **(usual | dict(draft.fields or {})))

    def stop(self, draft: StopDraft, moves: bool) -> Preemption:
        row = self.row(draft.workload)
        usual: dict[str, Any] = {
            "reason": self._reason(row, moves),
            "lost_gpu_seconds": int(self.ent.works.lost_gpu_seconds[row]),
            "stop_by": self.ent.snapshot.now,
        }
        return Preemption(workload=draft.workload, beneficiaries=draft.beneficiaries, **(usual | dict(draft.fields)))

    def promotion(self, workload: str) -> Promotion:
        return Promotion(workload=workload, protected_until=self._until(self.row(workload)))

    def renewals(self) -> list[Renewal]:
        works = self.ent.works
        return [
            Renewal(workload=work.id, protected_until=int(works.protected_until[row]))
            for row, work in enumerate(self.ent.snapshot.workloads)
            if works.renewed[row]
        ]

    def reservations(self, starts: Sequence[Draft]) -> list[Reservation]:
        works, started = self.ent.snapshot.workloads, {draft.workload for draft in starts}
        waiting = sorted((one for one in self.ent.reserved if works[one.row].id not in started), key=lambda one: one.row)
        return [as_row(one, works, self.ent.layout.pools) for one in waiting]

    def broken(self) -> list[BrokenContract]:
        works = self.ent.works
        causes = {Forced.NODE_DOWN: "node_down", Forced.DRAIN_DEADLINE: "drain_deadline"}
        return [
            BrokenContract(workload=work.id, promised=int(works.protected_until[row]), cause=causes[Forced(works.forced[row])])
            for row, work in enumerate(self.ent.snapshot.workloads)
            if works.protected[row] and works.forced[row] in causes
        ]

    def _until(self, row: int) -> int:
        return self.ent.snapshot.now + int(self.ent.works.promise[row])

    def _reason(self, row: int, moves: bool) -> StopReason:
        works = self.ent.works
        if works.forced[row]:
            return REASON_OF_FORCED[Forced(int(works.forced[row]))]
        if moves:
            return StopReason.RELOCATE
        return StopReason.SHARE if works.licensed[row] else StopReason.EXPRESS
