"""Words of the tests of the verifier."""

from __future__ import annotations

from allocator.domain import Decision, Snapshot
from allocator.verify import verify


def broken(snap: Snapshot, answer: Decision) -> tuple[str, ...]:
    """Names of the rules that the decision breaks."""
    return verify(snap, answer).broken


def details(snap: Snapshot, answer: Decision) -> str:
    """All violations as text."""
    return "\n".join(map(str, verify(snap, answer).violations))
