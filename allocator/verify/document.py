"""Rows that make no sense, and what the decision says of the snapshot it is for."""

from __future__ import annotations

from collections.abc import Iterator

from allocator.verify.case import Case
from allocator.verify.verdict import Violation
from allocator.wire import snapshot_digest


def document(case: Case) -> Iterator[Violation]:
    """Ensures that the decision is for this snapshot and that each of its rows can be read."""
    snapshot, decision = case.ent.snapshot, case.decision
    if decision.now != snapshot.now:
        yield Violation("document", "now", f"is {decision.now}, the snapshot is of {snapshot.now}")
    if decision.snapshot and decision.snapshot != (digest := snapshot_digest(snapshot)):
        yield Violation("document", "snapshot", f"is {decision.snapshot!r:.80}, the digest of the snapshot is {digest}")
    yield from case.rows.violations
    for row, stop in case.rows.stops.items():
        if stop.stop_by < snapshot.now:
            yield Violation("document", case.id(row), f"is to stop by {stop.stop_by}, before {snapshot.now}")
    yield from _waiting_rows(case)


def _waiting_rows(case: Case) -> Iterator[Violation]:
    """Ensures that the rows of `waiting`, where they are given, name what waits, all of it, each once."""
    if not case.rows.waiting:
        return
    said: set[str] = set()
    waits = {case.id(row) for row in range(len(case.after.running)) if not case.after.running[row]}
    waits |= {rejection.workload for rejection in case.ent.snapshot.rejected}
    for row in case.rows.waiting:
        if row.workload not in waits:
            yield Violation("document", row.workload, "stands in waiting, but does not wait")
        if row.workload in said:
            yield Violation("document", row.workload, "stands in waiting more than once")
        said.add(row.workload)
    for name in sorted(waits - said):
        yield Violation("document", name, "waits, but does not stand in waiting")
