"""The independent verifier: every hard rule by its name, and the score, from snapshot and decision alone."""

from __future__ import annotations

from allocator.domain import Decision, Snapshot
from allocator.entitlement import Entitlement, Score, entitle
from allocator.verify.after import AfterState, Placed, build_after
from allocator.verify.case import Case
from allocator.verify.physical import physical_violations, verify_physical
from allocator.verify.room import Mode, Opening, Refusal, Room, could_start, could_start_over_unallocated, free_after
from allocator.verify.rules import RULES, broken_rules
from allocator.verify.score import score_of
from allocator.verify.verdict import Verdict, Violation

__all__ = [
    "RULES",
    "AfterState",
    "Mode",
    "Opening",
    "Placed",
    "Refusal",
    "Room",
    "Score",
    "Verdict",
    "Violation",
    "build_after",
    "could_start",
    "could_start_over_unallocated",
    "free_after",
    "physical_violations",
    "score_of",
    "verify",
    "verify_physical",
]


def verify(snapshot: Snapshot, decision: Decision, entitlement: Entitlement | None = None) -> Verdict:
    """Check every rule and recompute the score.

    Parameters
    ----------
    snapshot
        The snapshot that the decision is for, its lists in any order.
    decision
        May be anything of that type, wrong or hostile: what is wrong comes back as violations.
    entitlement
        What `entitle` gives for the snapshot, where the caller has it already.
    """
    case = Case.of(entitle(snapshot.canonical()) if entitlement is None else entitlement, decision)
    return Verdict(tuple(broken_rules(case)), case.score)
