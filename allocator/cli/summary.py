"""A decision in a few lines for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from allocator.domain import Decision, Snapshot

_MOST_NAMES = 4
_MOST_REJECTIONS = 5


def summary_lines(decision: Decision) -> Iterator[str]:
    """Who answered, what it proved, and what happens; lists that are empty are left out."""
    yield _solver_line(decision)
    yield _value_line(decision)
    yield from _action_lines(decision)
    waiting = Counter(row.reason.value for row in decision.waiting)
    if waiting:
        yield f"waiting       {len(decision.waiting)}: " + ", ".join(
            f"{count} {reason}" for reason, count in waiting.most_common()
        )
    for note in decision.solver.notes:
        yield f"note          {note}"


def rejection_lines(snapshot: Snapshot) -> Iterator[str]:
    """What is wrong with the workloads that are rejected by name; the rest is decided, so nothing else would tell."""
    for item in snapshot.rejected[:_MOST_REJECTIONS]:
        yield f"rejected: {item.detail}"
    if (more := len(snapshot.rejected) - _MOST_REJECTIONS) > 0:
        yield f"rejected: {more} more; the `waiting` rows of the decision name them"


def _solver_line(decision: Decision) -> str:
    solver = decision.solver
    gap = "not proven" if solver.gap is None else f"gap {solver.gap:.4%}"
    seconds = decision.timing.get("total_seconds", sum(decision.timing.values()))
    return f"answer        {solver.rung} by {solver.engine}, {solver.status}, {gap}, {seconds:.2f} s"


def _value_line(decision: Decision) -> str:
    terms = ", ".join(f"{name} {value / 1000:,.0f}" for name, value in decision.solver.terms.items() if value)
    return f"objective     {decision.solver.objective / 1000:,.0f} GPU-seconds" + (f": {terms}" if terms else "")


def _action_lines(decision: Decision) -> Iterator[str]:
    charged = sum(row.charged for row in decision.starts)
    starts = f" ({charged} charged, {len(decision.starts) - charged} free of charge)" if decision.starts else ""
    yield _line("starts", [row.workload for row in decision.starts], starts)
    stops = Counter(row.reason.value for row in decision.preemptions)
    reasons = f" ({', '.join(f'{count} {reason}' for reason, count in sorted(stops.items()))})" if stops else ""
    yield _line("preemptions", [row.workload for row in decision.preemptions], reasons)
    lists: dict[str, Iterable[str]] = {
        "promotions": (row.workload for row in decision.promotions),
        "renewals": (row.workload for row in decision.renewals),
        "reservations": (row.workload for row in decision.reservations),
        "draining": (row.node for row in decision.drains),
        "lapsing": (row.workload for row in decision.lapsing),
        "broken": (row.workload for row in decision.contract_broken),
    }
    for name, ids in lists.items():
        if known := list(ids):
            yield _line(name, known)


def _line(name: str, ids: list[str], more: str = "") -> str:
    listed = ": " + ", ".join(ids[:_MOST_NAMES]) + (", ..." if len(ids) > _MOST_NAMES else "") if ids else ""
    return f"{name:13} {len(ids)}{more}{listed}"
