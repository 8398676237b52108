"""What is drawn from the results of one cell: every metric over all days, and over days drawn at random."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from allocator.replay import read_played
from allocator.replay.bootstrap import FEWEST_DAYS, draws, value
from allocator.replay.evidence import Evidence, Floats
from allocator.replay.metrics import METRICS, Metric, Value, of_project, wait_at

Name = tuple[str, str]
"""Project and metric; the project is empty where all are meant."""


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
    named = [("", metric) for metric in METRICS]
    named += [(project, metric) for project in evidence.projects.names for metric in project_metrics(project)]
    return {(project, metric.name): _sample(metric, evidence, counts) for project, metric in named}


def _sample(metric: Metric, evidence: Evidence, counts: Floats | None) -> Sample:
    drawn = None
    if counts is not None and metric.by_day:
        drawn = np.array([metric.of(evidence, row) for row in counts], dtype=np.float64)  # None becomes NaN
    return Sample(value(metric, evidence), drawn)


def project_metrics(project: str) -> Sequence[Metric]:
    """What is told of each project: what it got, what it was owed, and how long it waited."""
    return (
        Metric("useful_per_day", "GPU-h/d", "higher", "GPU-hours a day of any kind less what was lost, restarted or idle",
               partial(_per_day, project, "useful")),
        Metric("charged_per_day", "GPU-h/d", "", "charged GPU-hours a day", partial(_per_day, project, "charged")),
        Metric("owed_per_day", "GPU-h/d", "", "owed GPU-hours a day: the smaller of its share and its demand, hour by hour",
               partial(_per_day, project, "owed")),
        Metric("wait_p50", "s", "lower", "median wait of its jobs", wait_at(0.5, of_project(project))),
        Metric("wait_p90", "s", "lower", "90th percentile of the wait of its jobs", wait_at(0.9, of_project(project))),
    )  # fmt: skip


def _per_day(project: str, column: str, evidence: Evidence, counts: Floats) -> Value:
    table = evidence.projects
    if project not in table.names:
        return None
    of_days: Floats = getattr(table, column)[:, table.names.index(project)]
    return float(counts @ of_days) / 3600 / float(counts.sum())
