"""Decisions over the wire.

Inside, the objective is in 1/1000 GPU-second and entitlement in 1/1000 GPU; outside both are in whole units.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from os import PathLike

import msgspec
from msgspec import Raw

from allocator.domain import (
    AllocationRow,
    BrokenContract,
    Decision,
    DrainRow,
    Lapse,
    Preemption,
    Promotion,
    Renewal,
    Reservation,
    Snapshot,
    SnapshotError,
    SolverReport,
    Start,
    WaitingRow,
)
from allocator.wire.decision_doc import (
    AllocationRowDoc,
    BrokenDoc,
    DecisionDoc,
    DrainDoc,
    LapseDoc,
    PreemptionDoc,
    PromiseDoc,
    SolverDoc,
    StartDoc,
    TimingDoc,
    WaitingDoc,
)
from allocator.wire.decode import exact
from allocator.wire.digest import snapshot_digest
from allocator.wire.encode import to_wire
from allocator.wire.shapes import problems
from allocator.wire.snapshot_doc import ReservationDoc
from allocator.wire.source import loads, plain, read_bytes, refuse, refuse_syntax

_MILLI = 1_000
_TOTAL = "total_seconds"
_DECODER = msgspec.json.Decoder(DecisionDoc)

_ROWS: Mapping[str, tuple[type, type, str]] = {
    "starts": (Start, StartDoc, "workload"),
    "preemptions": (Preemption, PreemptionDoc, "workload"),
    "renewals": (Renewal, PromiseDoc, "workload"),
    "promotions": (Promotion, PromiseDoc, "workload"),
    "reservations": (Reservation, ReservationDoc, "workload"),
    "drains": (DrainRow, DrainDoc, "node"),
    "waiting": (WaitingRow, WaitingDoc, "workload"),
    "lapsing": (Lapse, LapseDoc, "workload"),
    "contract_broken": (BrokenContract, BrokenDoc, "workload"),
}
"""By list of the decision: its class inside, its class on the wire, and what it is sorted by."""


def load_decision(source: str | PathLike[str] | bytes) -> Decision:
    """Read a decision from a file, or from its bytes; gzip is recognised by its first bytes."""
    return decode_decision(read_bytes(source))


def decode_decision(data: bytes) -> Decision:
    """Decode a decision, plain or gzip-compressed.

    Raises
    ------
    SnapshotError
        With every issue of the document.
    """
    data = plain(data)
    try:
        return _to_domain(_read(data))
    except (msgspec.DecodeError, RecursionError) as error:
        refuse_syntax(data, error)


def encode_decision(decision: Decision) -> bytes:
    """The decision as one line of canonical JSON: the same bytes for the same decision but for `timing`."""
    rows = {
        name: to_wire(sorted(getattr(decision, name), key=lambda row: getattr(row, key)), list[doc], f"$.{name}")  # type: ignore[valid-type]
        for name, (_, doc, key) in _ROWS.items()
    }
    doc = DecisionDoc(
        version=1,
        now=decision.now,
        snapshot=decision.snapshot,
        **rows,
        allocations=[_row_doc(row) for row in sorted(decision.allocations, key=lambda row: (row.id, row.pool))],
        warnings=decision.warnings,
        solver=_solver_doc(decision.solver),
        timing=_timing_doc(decision.timing),
    )
    return msgspec.json.encode(doc, order="deterministic") + b"\n"


def decision_digest(decision: Decision) -> str:
    """What identifies a decision: the SHA-256 of its canonical bytes without `timing`."""
    return f"sha256:{hashlib.sha256(encode_decision(replace(decision, timing={}))).hexdigest()}"


def is_other_snapshot(snapshot: Snapshot, decision: Decision) -> str | None:
    """What to say if the decision was made for another snapshot; None if it was not. An empty digest fits every snapshot."""
    digest = snapshot_digest(snapshot)
    if decision.snapshot in ("", digest):
        return None
    return f"the decision was made for {decision.snapshot}, this snapshot is {digest}"


def _read(data: bytes) -> DecisionDoc:
    """The document in one typed pass, or all its issues."""
    try:
        return _DECODER.decode(data)
    except msgspec.ValidationError:
        msgspec.json.decode(data, type=Raw)  # raises if it is no JSON at all
        found = loads(data)
        if isinstance(found, dict) and "cluster" in found and "starts" not in found:
            refuse("$", "this is a snapshot, not a decision", "give the decision; on the command line it comes second")
        raise SnapshotError(problems(found, DecisionDoc, "$")) from None


def _to_domain(doc: DecisionDoc) -> Decision:
    for start in doc.starts:
        start.placement = dict(sorted(start.placement.items()))
    rows = {
        name: msgspec.convert(getattr(doc, name), tuple[kind, ...], from_attributes=True)  # type: ignore[valid-type]
        for name, (kind, _, _) in _ROWS.items()
    }
    return Decision(
        now=doc.now,
        snapshot=doc.snapshot,
        **rows,
        allocations=tuple(_row(row) for row in doc.allocations),
        warnings=doc.warnings,
        solver=_solver(doc.solver),
        timing=_timing(doc.timing),
    )


def _row(doc: AllocationRowDoc) -> AllocationRow:
    return AllocationRow(
        id=doc.id,
        pool=doc.pool,
        share=doc.share,
        budget_gpu_seconds=doc.budget_gpu_seconds,
        usage_gpu_seconds=doc.usage_gpu_seconds,
        entitled_milli=_from_units(doc.entitled_gpus),
        gpus_before=doc.gpus_before,
        gpus_after=doc.gpus_after,
    )


def _row_doc(row: AllocationRow) -> AllocationRowDoc:
    return AllocationRowDoc(
        id=row.id,
        pool=row.pool,
        share=row.share,
        budget_gpu_seconds=row.budget_gpu_seconds,
        usage_gpu_seconds=row.usage_gpu_seconds,
        entitled_gpus=row.entitled_milli / _MILLI,
        gpus_before=row.gpus_before,
        gpus_after=row.gpus_after,
    )


def _solver(doc: SolverDoc) -> SolverReport:
    return SolverReport(
        rung=doc.rung,
        engine=doc.engine,
        status=doc.status,
        objective=_from_units(doc.objective),
        bound=None if doc.bound is None else _from_units(doc.bound),
        gap=doc.gap,
        terms={name: _from_units(value) for name, value in doc.terms.items()},
        seed=doc.seed,
        notes=doc.notes,
    )


def _solver_doc(report: SolverReport) -> SolverDoc:
    return SolverDoc(
        rung=report.rung,  # type: ignore[arg-type]
        engine=report.engine,
        status=report.status,
        objective=report.objective / _MILLI,
        bound=None if report.bound is None else report.bound / _MILLI,
        gap=report.gap,
        terms={name: value / _MILLI for name, value in report.terms.items()},
        seed=report.seed,
        notes=report.notes,
    )


def _timing(doc: TimingDoc) -> dict[str, float]:
    """Seconds by step; the total stands beside them unless it is their sum."""
    whole = {} if doc.total_seconds == math.fsum(doc.steps.values()) else {_TOTAL: doc.total_seconds}
    return {**doc.steps, **whole}


def _timing_doc(timing: Mapping[str, float]) -> TimingDoc:
    steps = {name: seconds for name, seconds in timing.items() if name != _TOTAL}
    return TimingDoc(total_seconds=timing.get(_TOTAL, math.fsum(steps.values())), steps=steps)


def _from_units(value: float) -> int:
    """Thousandths of a wire number, by its decimal text: no binary rounding."""
    thousandths: Fraction = exact(value) * _MILLI
    return round(thousandths)
