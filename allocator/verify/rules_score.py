"""The rule about what a decision says of itself: score."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from types import NoneType

from allocator.domain import SolverReport
from allocator.verify.case import Case
from allocator.verify.verdict import Violation

_GAP_TOLERANCE = Fraction(1, 10**9)
"""The gap is the one float of a decision; nothing is decided by it."""


def score(case: Case) -> Iterator[Violation]:
    """Ensures that objective, terms, bound and gap, and the lost work of every stop, are what snapshot and decision give."""
    for row, stop in case.rows.stops.items():
        lost = int(case.ent.works.lost_gpu_seconds[row])
        if stop.lost_gpu_seconds != lost:
            yield Violation("score", case.id(row), f"loses {lost} GPU-seconds, not {stop.lost_gpu_seconds}")
    report, true = case.decision.solver, case.score
    wrong = _malformed(report)
    if wrong:
        yield Violation("score", "solver", wrong)
        return
    if report.objective != true.total:
        yield Violation("score", "objective", f"is {true.total}, not {report.objective} (1/1000 GPU-second)")
    said, terms = dict(report.terms), true.as_dict()
    for name in sorted(terms.keys() | said.keys(), key=str):
        if said.get(name) != terms.get(name):
            yield Violation("score", f"terms.{name}", f"is {terms.get(name)}, not {said.get(name)}")
    yield from _proof(case, report)


def _malformed(report: object) -> str:
    """What keeps the solver's report from being read; empty if nothing does."""
    if not isinstance(report, SolverReport):
        return f"a report is expected, not {type(report).__name__}"
    kinds = {"objective": (int,), "bound": (int, NoneType), "gap": (float, int, NoneType)}
    wrong = [key for key, kind in kinds.items() if type(getattr(report, key)) not in kind]
    terms: object = report.terms
    wrong += [] if isinstance(terms, Mapping) else ["terms"]
    return f"{', '.join(wrong)} of the report cannot be read" if wrong else ""


def _proof(case: Case, report: SolverReport) -> Iterator[Violation]:
    """Ensures that the bound does not exceed the objective and that the gap follows from both."""
    if report.bound is None:
        if report.gap is not None:
            yield Violation("score", "gap", f"is {report.gap} without a bound")
        return
    if report.bound > report.objective:
        yield Violation("score", "bound", f"{report.bound} exceeds the objective {report.objective}")
    step = case.ent.snapshot.policy.planning_step
    worth = 1000 * step * int(case.ent.market.schedulable.sum())
    gap = Fraction(report.objective - report.bound, worth) if worth else Fraction(0)
    if (
        report.gap is None
        or not math.isfinite(report.gap)
        or abs(Fraction(report.gap) - gap) > _GAP_TOLERANCE * max(Fraction(1), gap)
    ):
        yield Violation("score", "gap", f"is {gap.numerator} / {gap.denominator}, not {report.gap}")
