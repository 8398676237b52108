"""Variants compared: means over the seeds, and intervals over seeds and days, paired by seed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from allocator.replay.bootstrap import DRAWS, limits
from allocator.replay.evidence import Floats
from allocator.replay.metrics import METRICS, Metric, Value
from allocator.whatif.samples import Name, Sample, pool_metrics, project_metrics, project_pool_metrics

FEWEST_SEEDS = 3
"""From fewer seeds none are drawn: the intervals are of the days alone."""

_NOISE = 1e-9
"""Draws that differ by no more are the same but for the order in which they were added up."""

_STREAM = 1 << 32
"""Of the draws of seeds; far from those of days."""

Samples = Mapping[tuple[str, int], Mapping[Name, Sample]]
"""By variant and seed."""


class Row(NamedTuple):
    """A metric of a variant, and its difference to the baseline; None where it cannot be told."""

    metric: str
    definition: str
    unit: str
    better: str
    variant: str
    allocation: str
    value: Value
    low: Value
    high: Value
    difference: Value
    difference_low: Value
    difference_high: Value
    pool: str = ""

    @property
    def differs(self) -> bool:
        """Whether the interval of the difference leaves 0 out, on the side of the difference itself."""
        middle, low, high = self.difference, self.difference_low, self.difference_high
        if middle is None or low is None or high is None:
            return False
        return min(low, middle) > 0 or max(high, middle) < 0


def compare_cells(samples: Samples, variants: Sequence[str], seeds: Sequence[int]) -> list[Row]:
    """All metrics of the cluster, variant by variant; the first variant is the baseline."""
    return [row for metric in METRICS for row in _rows(metric, ("", ""), samples, variants, seeds)]


def compare_projects(samples: Samples, variants: Sequence[str], seeds: Sequence[int]) -> list[Row]:
    """The same for every project that is in any of the cells."""
    return [
        row
        for project in sorted({project for project, pool in _subjects(samples) if project and not pool})
        for metric in project_metrics(project)
        for row in _rows(metric, (project, ""), samples, variants, seeds)
    ]


def compare_pools(samples: Samples, variants: Sequence[str], seeds: Sequence[int]) -> list[Row]:
    """The same for every pool that is in any of the cells, and after it for every project in it."""
    subjects = sorted((pool, project) for project, pool in _subjects(samples) if pool)
    return [
        row
        for pool, project in subjects
        for metric in (project_pool_metrics(project, pool) if project else pool_metrics(pool))
        for row in _rows(metric, (project, pool), samples, variants, seeds)
    ]


def _subjects(samples: Samples) -> set[tuple[str, str]]:
    """Projects and pools that anything is known of."""
    return {(project, pool) for sample in samples.values() for project, pool, _ in sample}


def _rows(
    metric: Metric, subject: tuple[str, str], samples: Samples, variants: Sequence[str], seeds: Sequence[int]
) -> Iterator[Row]:
    project, pool = subject
    found = {
        variant: [samples[variant, seed].get((project, pool, metric.name), Sample(None, None)) for seed in seeds]
        for variant in variants
    }
    base = found[variants[0]]
    for variant, own in found.items():
        values = (*_means(own), *(_means(_apart(base, own)) if variant != variants[0] else (None, None, None)))
        yield Row(metric.name, metric.definition, metric.unit, metric.better, variant, project, *values, pool)


def _apart(base: Sequence[Sample], own: Sequence[Sample]) -> list[Sample]:
    """Differences seed by seed: both had the same jobs and lose and gain the same days."""
    return [
        Sample(
            None if a.value is None or b.value is None else b.value - a.value,
            None if a.drawn is None or b.drawn is None or len(a.drawn) != len(b.drawn) else b.drawn - a.drawn,
        )
        for a, b in zip(base, own, strict=True)
    ]


def _means(samples: Sequence[Sample]) -> tuple[Value, Value, Value]:
    """The mean over the seeds, and its interval: seeds are drawn, and the days of each.

    Where neither makes a difference there is none: with one seed a metric in blocks of a week comes out the same on whichever
    days of one week are drawn, which says nothing of its chance.
    """
    known = [(sample.value, sample.drawn) for sample in samples if sample.value is not None]
    if not known:
        return None, None, None
    mean = float(np.mean([value for value, _ in known]))
    drawn = _mean_draws([np.full(DRAWS, value) if drawn is None else drawn for value, drawn in known])
    low, high = limits(drawn.tolist())
    varies = low is not None and high is not None and high - low > _NOISE * max(1.0, abs(mean))
    return (mean, low, high) if varies else (mean, None, None)


def _mean_draws(of_seeds: Sequence[Floats]) -> Floats:
    """Means over drawn seeds, shape (DRAWS,): one draw of days for each draw of seeds. Days that say nothing say it as NaN."""
    table = np.stack(of_seeds)
    times = _times(len(table)) * ~np.isnan(table)
    total = times.sum(axis=0)
    means: Floats = np.where(total > 0, (times * np.nan_to_num(table)).sum(axis=0) / np.maximum(total, 1), np.nan)
    return means


def _times(num_seeds: int) -> Floats:
    """How often each seed counts in each draw, shape (num_seeds, DRAWS)."""
    if num_seeds < FEWEST_SEEDS:
        return np.ones((num_seeds, DRAWS))
    chosen = np.random.default_rng(_STREAM).integers(num_seeds, size=(DRAWS, num_seeds))
    return np.stack([(chosen == seed).sum(axis=1) for seed in range(num_seeds)]).astype(np.float64)


def as_documents(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The rows for JSON; allocation and pool stand only where there is one."""
    return [{key: item for key, item in row._asdict().items() if item != "" or key not in _SUBJECT} for row in rows]


_SUBJECT = ("allocation", "pool")
