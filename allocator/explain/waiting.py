"""One row for every workload that waits once the decision has been carried out."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from allocator.domain import Decision, Preemption, Reason, Unfunded, WaitingRow, Workload
from allocator.entitlement.entitled import large_gangs
from allocator.entitlement.forecast import forecast
from allocator.entitlement.model import Entitlement
from allocator.entitlement.reserved import Reserved
from allocator.explain.after import After
from allocator.explain.reasons import Answer, Case, Reasons
from allocator.explain.words import clock, counted, listed
from allocator.topology import IntArray


def waiting_rows(ent: Entitlement, decision: Decision, after: After, waiting: IntArray) -> tuple[WaitingRow, ...]:
    """The rows of some of the work that waits in the order of the ids, what could not be read included."""
    stops = {stop.workload: stop for stop in decision.preemptions}
    rows = [_rejected(item.workload, item.reason, item.detail) for item in ent.snapshot.rejected]
    reasons = Reasons(ent, decision, after)
    eta = forecast(ent, _not_yet_entitled(ent, waiting))
    reserved = {one.row: one for one in ent.reserved}
    for row, work, answer in _answers(ent, waiting, reasons):
        stop = stops.get(work.id)
        rows.append(
            WaitingRow(
                workload=work.id,
                reason=answer.reason,
                not_before=answer.not_before,
                never=answer.never,
                detail=_detail(ent, reserved.get(row), stop, answer),
                blockers=answer.blockers,
                eta=eta.get(row),
                entitled_since=int(ent.works.entitled_since[row]) or None,
            )
        )
    rows.sort(key=lambda row: row.workload)
    return tuple(rows)


def _not_yet_entitled(ent: Entitlement, waiting: IntArray) -> list[int]:
    """Large gangs among these that count in the demand and are not entitled."""
    works = ent.works
    large = large_gangs(works.gpus, works.home, ent.market.installed, ent.snapshot.policy)
    rows: list[int] = waiting[(large & works.funded & ~works.entitled & (works.leaf >= 0))[waiting]].tolist()
    return rows


def _answers(ent: Entitlement, waiting: IntArray, reasons: Reasons) -> Iterator[tuple[int, Workload, Answer]]:
    """Row, workload and explanation of what waits; workloads of one case are explained once."""
    known: dict[Case, Answer] = {}
    works = ent.snapshot.workloads
    for row, facts in zip(waiting.tolist(), _facts(ent, waiting), strict=True):
        work = works[row]
        if row in ent.works.impossible:
            reason, detail = ent.works.impossible[row]
            yield row, work, Answer(Reason(reason), detail, never=True)
            continue
        case = Case(*facts, work.unfunded is Unfunded.WAIT)
        if case not in known:
            known[case] = reasons.answer(case, work)
        yield row, work, known[case]


def _facts(
    ent: Entitlement, rows: np.typing.NDArray[np.int64]
) -> Iterator[tuple[int, int, int, int, bool, bool, bool, bool, bool, bool, int]]:
    """Request, leaf, home, promise, express, funded, counted, entitled, cooling, patient and reservation of these rows."""
    works, now = ent.works, ent.snapshot.now
    reservation = np.full(len(works.leaf), -1, dtype=np.int64)
    for index, one in enumerate(ent.reserved):
        reservation[one.row] = index
    stopped = np.fromiter((work.stopped is not None and work.stopped.at == now for work in ent.snapshot.workloads), np.bool_)
    columns = (
        works.request, works.leaf, works.home, works.promise, works.express, works.funded, ~works.held_before, works.entitled,
        stopped & ~works.candidate, works.patient, reservation,
    )  # fmt: skip
    return zip(*(column[rows].tolist() for column in columns), strict=True)


def _rejected(workload: str, reason: str, detail: str) -> WaitingRow:
    return WaitingRow(workload=workload, reason=Reason(reason), not_before=None, never=True, detail=detail)


def _detail(ent: Entitlement, one: Reserved | None, stop: Preemption | None, answer: Answer) -> str:
    """The reason in words, after what this decision did to it, and before what is kept for it."""
    parts = [] if stop is None else [_stopped(stop)]
    parts.append(answer.detail)
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
