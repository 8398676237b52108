"""One row for every workload that waits once the decision has been carried out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import attrgetter

import msgspec
import numpy as np
from msgspec import Struct

from allocator.domain import Decision, Preemption, Reason, WaitingRow, Workload
from allocator.entitlement.alike import number_rows
from allocator.entitlement.claim import large_gangs
from allocator.entitlement.forecast import forecast
from allocator.entitlement.model import Entitlement
from allocator.entitlement.reserved import Reserved
from allocator.explain.after import After
from allocator.explain.reasons import Answer, Case, Reasons
from allocator.explain.words import clock, counted, listed
from allocator.topology import BoolArray, IntArray


def waiting_rows(ent: Entitlement, decision: Decision, after: After, waiting: IntArray) -> tuple[WaitingRow, ...]:
    """The rows of some of the work that waits in the order of the ids, what could not be read included."""
    reasons = Reasons(ent, decision, after)
    eta = forecast(ent, _not_yet_entitled(ent, waiting))
    since = ent.works.entitled_since[waiting].tolist()
    answered = list(map(_row, *_answers(ent, waiting, reasons), map(eta.get, waiting.tolist()), since))
    rows = msgspec.convert(answered, list[WaitingRow], from_attributes=True)  # one by one they take half of all explanations
    for row, detail in _special(ent, decision, waiting, rows):
        rows[row] = replace(rows[row], detail=detail)
    rows += [_rejected(item.workload, item.reason, item.detail) for item in ent.snapshot.rejected]
    rows.sort(key=attrgetter("workload"))
    return tuple(rows)


class _Row(Struct, gc=False):
    """The columns of a waiting row."""

    workload: str
    reason: Reason
    not_before: int | None
    never: bool
    detail: str
    blockers: tuple[str, ...]
    eta: int | None
    entitled_since: int | None


def _row(work: Workload, answer: Answer, eta: int | None, since: int) -> _Row:
    return _Row(
        work.id, answer.reason, answer.not_before, answer.never, answer.detail, answer.blockers, eta, since or None
    )  # fmt: skip


def _special(ent: Entitlement, decision: Decision, waiting: IntArray, rows: Sequence[WaitingRow]) -> Iterator[tuple[int, str]]:
    """Position and detail of those that this decision stops or that a reservation is made for."""
    stops = {stop.workload: stop for stop in decision.preemptions}
    reserved = {one.row: one for one in ent.reserved}
    for position in (ent.works.running[waiting] | np.isin(waiting, sorted(reserved))).nonzero()[0].tolist():
        row = rows[position]
        yield position, _detail(ent, reserved.get(int(waiting[position])), stops.get(row.workload), row.detail)


def _not_yet_entitled(ent: Entitlement, waiting: IntArray) -> list[int]:
    """Large gangs among these that count in the demand and are not entitled."""
    works = ent.works
    large = large_gangs(works.gpus, works.home, ent.market.installed, ent.snapshot.policy)
    rows: list[int] = waiting[(large & works.funded & ~works.entitled & (works.leaf >= 0))[waiting]].tolist()
    return rows


def _answers(ent: Entitlement, waiting: IntArray, reasons: Reasons) -> tuple[list[Workload], list[Answer]]:
    """The workloads that wait and the explanation of each; workloads of one case are explained once."""
    works = [ent.snapshot.workloads[row] for row in waiting.tolist()]
    columns = [column[waiting] for column in _facts(ent)]
    impossible = np.isin(waiting, list(ent.works.impossible))
    number, first = number_rows([np.where(impossible, waiting, -1), *columns])
    cases = map(Case, *(column[first].tolist() for column in columns))
    answers: list[Answer] = []
    for position, case in zip(first.tolist(), cases, strict=True):
        if (never := ent.works.impossible.get(int(waiting[position]))) is not None:
            answers.append(Answer(Reason(never[0]), never[1], never=True))
        else:
            answers.append(reasons.answer(case, works[position]))
    return works, [answers[case] for case in number.tolist()]


def _facts(ent: Entitlement) -> list[IntArray | BoolArray]:
    """All that a `Case` holds, of all rows, in its order."""
    works, now = ent.works, ent.snapshot.now
    reservation = np.full(len(works.leaf), -1, dtype=np.int64)
    for index, one in enumerate(ent.reserved):
        reservation[one.row] = index
    stopped = ent.columns.taken_off_at == now
    return [
        works.request, works.leaf, works.home, works.promise, works.promise_cost, works.express, works.funded,
        ~works.held_before, works.entitled, stopped & ~works.candidate, works.patient, reservation,
        ~ent.columns.runs_unfunded,
    ]  # fmt: skip


def _rejected(workload: str, reason: str, detail: str) -> WaitingRow:
    return WaitingRow(workload=workload, reason=Reason(reason), not_before=None, never=True, detail=detail)


def _detail(ent: Entitlement, one: Reserved | None, stop: Preemption | None, reason: str) -> str:
    """The reason in words, after what this decision did to it, and before what is kept for it."""
    parts = [] if stop is None else [_stopped(stop)]
    parts.append(reason)
    if one is not None:
        where = "/".join(one.domain) or ent.layout.pools[one.pool]
        span = f"from {clock(one.start)} on, by {clock(one.bound)} at the latest"
        parts.append(f"{counted(one.nodes, 'node')} of {where} are kept for it {span}")
        if one.remade:
            parts.append(f"its reservation was made anew: {one.remade}")
    return "; ".join(parts)


def _stopped(stop: Preemption) -> str:
    """What this decision did to it."""
    whom = f" for {listed(stop.beneficiaries)}" if stop.beneficiaries else ""
    return f"stopped now ({stop.reason.value}){whom}"
