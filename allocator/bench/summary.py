"""Many runs in few numbers: median and worst by instance and engine, and by engine over all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from allocator.bench.runs import Run, best_bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Runs of one engine with one budget on one instance (all its seeds), or on all (`instance` is empty).

    Gaps are to the best bound that any engine has proven or that was known; `unbounded` counts the runs without one, which
    are in no gap.
    """

    instance: str
    engine: str
    budget: float
    runs: int
    gpus: int
    seconds: tuple[float, float]
    cpu_seconds: tuple[float, float]
    gap: tuple[float, float] | None
    optimal: int
    unbounded: int
    overran: int
    refused: int


def summarise(runs: Sequence[Run]) -> list[Summary]:
    """A summary for each instance, engine and budget in the order of the runs; then one for each engine and budget."""
    bounds = best_bounds(runs)
    groups: dict[tuple[str, str, float], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.case.instance.name, run.case.engine, run.case.budget), []).append(run)
    instances = dict.fromkeys(run.case.instance.name for run in runs)
    if len(instances) > 1:
        for run in sorted(runs, key=lambda run: (run.case.engine, run.case.budget)):
            groups.setdefault(("", run.case.engine, run.case.budget), []).append(run)
    return [_summary(key, own, bounds) for key, own in groups.items()]


def _summary(key: tuple[str, str, float], runs: Sequence[Run], bounds: dict[tuple[str, int], int]) -> Summary:
    gaps = [gap for run in runs if (gap := run.gap_to(bounds.get(run.key))) is not None]
    return Summary(
        instance=key[0],
        engine=key[1],
        budget=key[2],
        runs=len(runs),
        gpus=max(run.facts.gpus for run in runs),
        seconds=_median_and_worst(run.seconds for run in runs),
        cpu_seconds=_median_and_worst(run.cpu_seconds for run in runs),
        gap=_median_and_worst(gaps) if gaps else None,
        optimal=sum(_is_optimal(run, bounds.get(run.key)) for run in runs),
        unbounded=len(runs) - len(gaps),
        overran=sum(run.seconds > run.case.budget for run in runs),
        refused=sum(bool(run.violations) for run in runs),
    )


def _is_optimal(run: Run, bound: int | None) -> bool:
    return bound is not None and run.objective <= bound


def _median_and_worst(values: Iterable[float]) -> tuple[float, float]:
    known = list(values)
    return median(known), max(known)
