"""What is drawn from the results of one cell: every metric over all days, and over days drawn at random."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from allocator.replay import read_played
from allocator.replay.bootstrap import FEWEST_DAYS, draws, value
from allocator.replay.evidence import Delivery, Evidence, Floats, in_pool
from allocator.replay.metrics import METRICS, Metric, Value, of_project, wait_at

Name = tuple[str, str, str]
"""Project, pool and metric; project or pool are empty where all are meant."""


_LEAST = 3600
"""GPU-seconds owed, of less than which no share is told."""


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """A metric of one cell. `drawn`: over days drawn at random, shape (DRAWS,), NaN where there is nothing to go by; None
    where nothing can be drawn."""

    value: Value
    drawn: Floats | None


def sample_cell(folder: Path, stream: int) -> Mapping[Name, Sample]:
    """All metrics of a cell.

    Parameters
    ----------
    stream
        Cells with the same number draw the same days: those that share a seed.
    """
    evidence = read_played(folder).evidence
    counts = draws(evidence.num_days, stream) if evidence.num_days >= FEWEST_DAYS else None
    return {(project, pool, metric.name): _sample(metric, evidence, counts) for project, pool, metric in _named(evidence)}


def _named(evidence: Evidence) -> Iterator[tuple[str, str, Metric]]:
    """Every metric with the project and the pool that it is of."""
    yield from (("", "", metric) for metric in METRICS)
    for project in evidence.projects.names:
        yield from ((project, "", metric) for metric in project_metrics(project))
    for pool in evidence.by_pool:
        yield from (("", pool, metric) for metric in pool_metrics(pool))
        for project in evidence.projects.names:
            if in_pool(project, pool) in evidence.project_pools.names:
                yield from ((project, pool, metric) for metric in project_pool_metrics(project, pool))


def _sample(metric: Metric, evidence: Evidence, counts: Floats | None) -> Sample:
    drawn = None
    if counts is not None and metric.by_day:
        drawn = np.array([metric.of(evidence, row) for row in counts], dtype=np.float64)  # None becomes NaN
    return Sample(value(metric, evidence), drawn)


def project_metrics(project: str) -> Sequence[Metric]:
    """What is told of each project: what it got, what it was owed, and how long it waited."""
    return (
        Metric("delivered", "", "higher", "charged / owed GPU-hours over the whole span, cut at 1",
               partial(_delivered, "projects", project)),
        Metric("useful_per_day", "GPU-h/d", "higher", "GPU-hours a day of any kind less what was lost, restarted or idle",
               partial(_per_day, project, "useful")),
        Metric("charged_per_day", "GPU-h/d", "", "charged GPU-hours a day", partial(_per_day, project, "charged")),
        Metric("owed_per_day", "GPU-h/d", "", "owed GPU-hours a day: the smaller of its share and its demand, hour by hour",
               partial(_per_day, project, "owed")),
        Metric("wait_p50", "s", "lower", "median wait of its jobs", wait_at(0.5, of_project(project))),
        Metric("wait_p90", "s", "lower", "90th percentile of the wait of its jobs", wait_at(0.9, of_project(project))),
    )  # fmt: skip


def pool_metrics(pool: str) -> Sequence[Metric]:
    """What is told of each pool: how full it was, and how much of what was owed in it was delivered."""
    return (
        Metric("occupancy", "", "higher", "assigned / schedulable GPU-hours of the pool", partial(_occupancy, pool)),
        Metric("delivered", "", "higher", "charged / owed GPU-hours in the pool over the whole span, cut at 1 for each project",
               partial(_delivered_in, pool)),
    )  # fmt: skip


def project_pool_metrics(project: str, pool: str) -> Sequence[Metric]:
    """What is told of each project in each pool."""
    name = in_pool(project, pool)
    return (
        Metric("delivered", "", "higher", "charged / owed GPU-hours in the pool over the whole span, cut at 1",
               partial(_delivered, "project_pools", name)),
        Metric("useful_per_day", "GPU-h/d", "higher", "GPU-hours a day in the pool less what was lost, restarted or idle",
               partial(_per_day, name, "useful", of="project_pools")),
    )  # fmt: skip


def _per_day(name: str, column: str, evidence: Evidence, counts: Floats, *, of: str = "projects") -> Value:
    table: Delivery = getattr(evidence, of)
    if name not in table.names:
        return None
    of_days: Floats = getattr(table, column)[:, table.names.index(name)]
    return float(counts @ of_days) / 3600 / float(counts.sum())


def _delivered(of: str, name: str, evidence: Evidence, counts: Floats) -> Value:
    """Nothing can be said of whom less than a GPU-hour was owed."""
    table: Delivery = getattr(evidence, of)
    if name not in table.names:
        return None
    at = table.names.index(name)
    owed = float(counts @ table.owed[:, at])
    return min(1.0, float(counts @ table.charged[:, at]) / owed) if owed >= _LEAST else None


def _delivered_in(pool: str, evidence: Evidence, counts: Floats) -> Value:
    table = evidence.project_pools
    mask = [name in {in_pool(project, pool) for project in evidence.projects.names} for name in table.names]
    owed, charged = counts @ table.owed[:, mask], counts @ table.charged[:, mask]
    total = float(owed.sum())
    return float(np.minimum(owed, charged).sum()) / total if total >= _LEAST else None


def _occupancy(pool: str, evidence: Evidence, counts: Floats) -> Value:
    columns = evidence.by_pool.get(pool)
    if columns is None:
        return None
    share = float(counts @ columns["share"])
    return float(counts @ (columns["charged"] + columns["uncharged"])) / share if share > 0 else None
