"""A solver report for decisions that no engine made."""

from __future__ import annotations

from allocator.domain import SolverReport
from allocator.entitlement.costs import Score


def plain_report(score: Score) -> SolverReport:
    """Claims the score and proves nothing."""
    return SolverReport(
        rung="greedy",
        engine="greedy",
        status="feasible",
        objective=score.total,
        bound=None,
        gap=None,
        terms=score.as_dict(),
        seed=0,
    )
