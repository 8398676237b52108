"""Rows that make no sense, and what the decision says of the snapshot it is for."""

from __future__ import annotations

from collections.abc import Iterator

from allocator.entitlement.digest import digest_of
from allocator.verify.case import Case
from allocator.verify.explained import explained
from allocator.verify.verdict import Violation


def document(case: Case) -> Iterator[Violation]:
    """Ensures that the decision is for this snapshot and that each of its rows can be read."""
    snapshot, decision = case.ent.snapshot, case.decision
    if decision.now != snapshot.now:
        yield Violation("document", "now", f"is {decision.now}, the snapshot is of {snapshot.now}")
    if decision.snapshot and decision.snapshot != (digest := digest_of(case.ent)):
        yield Violation("document", "snapshot", f"is {decision.snapshot!r:.80}, the digest of the snapshot is {digest}")
    yield from case.rows.violations
    for row, stop in case.rows.stops.items():
        latest = snapshot.now + snapshot.policy.notice
        if not snapshot.now <= stop.stop_by <= latest:
            detail = f"is to stop by {stop.stop_by}, which is not between {snapshot.now} and {latest}"
            yield Violation("document", case.id(row), detail)
    yield from explained(case)
