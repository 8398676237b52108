"""Limits are ratios of two quantities that were measured side by side: no clock and no machine is in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from allocator.bench.catalogue import Catalogue
from allocator.bench.documents import LimitDoc, LimitsDoc, SideDoc
from allocator.bench.engines import engine_names
from allocator.bench.runs import STEPS, Case, Run, best_bounds
from allocator.domain import Issue, SnapshotError

QUANTITIES = ("cpu_seconds", "seconds", "objective", "shortfall", *(f"{step}_seconds" for step in STEPS))
"""What may be compared. `shortfall` is 1 + the gap to the best bound: how much of the cluster's time an answer gives away."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of a limit; `ratio` is None where a side could not be run, and `why` says why."""

    limit: LimitDoc
    ratio: float | None
    why: str = ""

    @property
    def ok(self) -> bool:
        """Whether the limit is kept, or was not looked at."""
        return self.ratio is None or self.ratio <= self.limit.most


def cases_of(limits: LimitsDoc, catalogue: Catalogue) -> list[Case]:
    """The runs that the limits need, but for those of engines that are not there."""
    return [
        Case(instance=catalogue.instance(side.instance, seed), engine=side.engine, budget=limit.budget)
        for limit in limits.limit
        if not _missing(limit)
        for side in (limit.over, limit.under)
        for seed in limit.seeds
    ]


def check(limits: LimitsDoc, runs: Sequence[Run]) -> list[Finding]:
    """Compare every limit with the runs.

    Raises
    ------
    SnapshotError
        If a limit names a quantity that there is not.
    """
    sides = [side for limit in limits.limit for side in (limit.over, limit.under)]
    wrong = sorted({side.quantity for side in sides} - set(QUANTITIES))
    if wrong:
        remedy = f"give one of {', '.join(QUANTITIES)}"
        raise SnapshotError([Issue(path="quantity", problem=f"unknown: {', '.join(wrong)}", remedy=remedy)])
    return [_judge(limit, runs) for limit in limits.limit]


def _missing(limit: LimitDoc) -> str:
    """Engines of a limit that are not known here."""
    return ", ".join(sorted({limit.over.engine, limit.under.engine} - set(engine_names())))


def _judge(limit: LimitDoc, runs: Sequence[Run]) -> Finding:
    if missing := _missing(limit):
        return Finding(limit, None, f"no engine {missing} here; python -m benchmarks knows it")
    over, under = (_median(side, limit, runs) for side in (limit.over, limit.under))
    if over is None or not under:
        return Finding(limit, None, "one side was not measured")
    return Finding(limit, over / under)


def _median(side: SideDoc, limit: LimitDoc, runs: Sequence[Run]) -> float | None:
    """The median of one side over the seeds; None if not every seed was run."""
    bounds = best_bounds(runs)
    own = [run for run in runs if _is_of(run, side, limit)]
    values = [value for run in own if (value := _quantity(run, side, bounds.get(run.key))) is not None]
    return median(values) if values and len(values) >= len(limit.seeds) else None


def _is_of(run: Run, side: SideDoc, limit: LimitDoc) -> bool:
    case = run.case
    same = case.instance.name == side.instance and case.engine == side.engine and case.budget == limit.budget
    return same and (case.instance.seed is None or case.instance.seed in limit.seeds)


def _quantity(run: Run, side: SideDoc, bound: int | None) -> float | None:
    value: float | None
    if side.quantity == "shortfall":
        gap = run.gap_to(bound)
        value = None if gap is None else 1 + gap
    elif side.quantity in ("cpu_seconds", "seconds", "objective"):
        value = getattr(run, side.quantity)
    else:
        value = run.steps.get(side.quantity.removesuffix("_seconds"))
    return value / run.facts.gpus if value is not None and side.per_gpu else value


def broken(findings: Iterable[Finding]) -> list[Finding]:
    """The limits that are not kept."""
    return [finding for finding in findings if not finding.ok]
