"""How work of each class arrives and how long it takes: rates, run times, early failures, and the rhythm of the week.

The figures are those of the workload model, per day of an organisation with 1,792 GPUs. Sizes, bursts and declarations are
those of `classes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from allocator.generate.classes import ABLATION, DEBUG, EVAL, EXPERIMENT, FLAGSHIP, MINUTE, POST_TRAINING, RL, JobClass
from allocator.generate.params import HOUR

REFERENCE_GPUS = 1_792
REFERENCE_LOAD = 1.06
"""What the rates come to in the end, campaigns included."""

WEEK = (1.05, 1.18, 1.22, 1.22, 1.08, 0.60, 0.65)
"""Monday to Sunday, relative to the mean day."""

DIURNAL = (
    0.45, 0.38, 0.33, 0.30, 0.32, 0.36, 0.45, 0.65, 0.95, 1.35, 1.70, 1.70,
    1.60, 1.65, 1.70, 1.70, 1.65, 1.45, 1.15, 0.95, 0.85, 0.80, 0.70, 0.56,
)  # fmt: skip
"""By hour, local time: most from 10 to 16, least at 3, 5.7 to 1."""

EARLY_MEDIAN, EARLY_SIGMA, EARLY_CAP = 4 * MINUTE, 1.2, 30 * MINUTE
"""Run time of what dies early."""

SAME_SECOND = 0.38
"""Part of the gaps inside a burst that are nothing; the others are one second and an exponential."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTime:
    """One mode of a log-normal mixture: probability, median in seconds, sigma."""

    part: float
    median: int
    sigma: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """How a class arrives.

    Attributes
    ----------
    per_day
        Jobs a day at 1,792 GPUs.
    run_times
        By the smallest size from which on it holds, the modes of the run time of what works.
    early
        Part of the jobs that die early.
    even
        Part of the arrivals without regard to the hour.
    gap
        Mean seconds between the jobs of a burst.
    surges
        Whether a deadline brings more of it.
    """

    job_class: JobClass
    per_day: float
    run_times: Mapping[int, Sequence[RunTime]]
    early: float
    even: float = 0.0
    gap: int = 20
    surges: bool = False

    def draw_work(self, rng: np.random.Generator, gpus: int) -> int:
        """Seconds that a job takes if it works."""
        modes = self.run_times[max(size for size in self.run_times if size <= gpus)]
        chance = rng.random()
        mode = next((mode for mode in modes if (chance := chance - mode.part) < 0), modes[-1])
        return max(1, int(min(self.job_class.cap, mode.median * np.exp(rng.normal(0.0, mode.sigma)))))


def _one(median: float, sigma: float) -> tuple[RunTime, ...]:
    return (RunTime(part=1.0, median=int(median), sigma=sigma),)


FLOWS = (
    Flow(
        job_class=DEBUG,
        per_day=237,
        run_times={
            1: (RunTime(part=0.6, median=5 * MINUTE, sigma=1.3), RunTime(part=0.4, median=90 * MINUTE, sigma=0.9)),
        },
        early=0.0,
    ),
    Flow(
        job_class=EVAL,
        per_day=2_176,
        run_times={1: (RunTime(part=0.8, median=150, sigma=1.5), RunTime(part=0.2, median=HOUR, sigma=0.9))},
        early=0.10,
        even=0.5,
        gap=9,
        surges=True,
    ),
    Flow(
        job_class=EXPERIMENT,
        per_day=205,
        run_times={
            1: _one(2.5 * HOUR, 1.1),
            2: _one(1.5 * HOUR, 1.7),
            8: _one(5 * HOUR, 1.5),
            16: _one(8 * HOUR, 1.3),
        },
        early=0.25,
        surges=True,
    ),
    Flow(job_class=POST_TRAINING, per_day=40, run_times={1: _one(4 * HOUR, 1.0)}, early=0.30, surges=True),
    Flow(job_class=RL, per_day=10, run_times={1: _one(14 * HOUR, 1.0)}, early=0.35),
    Flow(job_class=ABLATION, per_day=9.4, run_times={1: _one(16 * HOUR, 1.1)}, early=0.45),
)

SEGMENT = Flow(job_class=FLAGSHIP, per_day=0.0, run_times={1: _one(20 * HOUR, 1.1)}, early=0.0)
"""Segments of campaigns; when they come, the campaigns say."""


def draw_early(rng: np.random.Generator) -> int:
    """Work after which a job dies that dies early."""
    return max(1, int(min(EARLY_CAP, EARLY_MEDIAN * np.exp(rng.normal(0.0, EARLY_SIGMA)))))


def hourly_rates(flow: Flow, days: int, per_day: float, surge: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Expected arrivals of each hour, shape (24 * days,), for `per_day` on a mean day; day 0 is a Monday.

    `surge` is a factor by day, shape (days,), for classes that feel deadlines.
    """
    by_hour = np.array(DIURNAL) / np.mean(DIURNAL)
    by_hour = (flow.even + (1 - flow.even) * by_hour) / 24
    by_day = np.resize(np.array(WEEK) / np.mean(WEEK), days) * (surge if flow.surges else 1.0)
    rates: npt.NDArray[np.float64] = per_day * np.outer(by_day, by_hour).ravel()
    return rates


def surge_by_day(days: int, deadline: int | None) -> npt.NDArray[np.float64]:
    """Factor of each day, shape (days,): more in the ten days before a deadline, less in the five after."""
    factor = np.ones(days)
    if deadline is not None:
        factor[max(0, deadline - 10) : max(0, deadline)] = 1.8
        factor[max(0, deadline) : max(0, deadline + 5)] = 0.6
    return factor


def draw_burst_times(rng: np.random.Generator, flow: Flow, start: float, count: int) -> list[int]:
    """When the jobs of a burst are submitted, from `start` on."""
    gaps = np.where(rng.random(count) < SAME_SECOND, 0.0, 1.0 + rng.exponential(flow.gap, count))
    gaps[0] = 0.0
    times: list[int] = (start + np.cumsum(gaps)).astype(np.int64).tolist()
    return times
