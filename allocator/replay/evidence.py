"""The tables of a replay as arrays by day, from which metrics are computed, on all days or on days drawn at random."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from allocator.replay.ladder import Ladder
from allocator.replay.meters import ROOT

if TYPE_CHECKING:
    import pandas as pd

DAY = 86_400
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_SPENT = ("share", "charged", "uncharged", "unfunded", "demand", "waiting", "idle")
SUMMED = (*_SPENT, "lost", "restart", "checkpoint", "slow", "parked", "dead")
"""Columns of the table `hours` that are added up over the pools."""

NET = ("lost", "restart", "checkpoint", "parked", "dead")
"""What does not count as useful."""


@dataclass(frozen=True, slots=True, eq=False)
class Delivery:
    """Owed and got GPU-seconds of vertices by day, shape (num_days, num_vertices); `names` are those of the vertices.

    `met_charged` is the charged part up to what was owed, cut hour by hour.
    """

    names: tuple[str, ...]
    owed: Floats
    charged: Floats
    useful: Floats
    met_charged: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Waits:
    """The jobs, sorted by their wait: seconds, and the day of submission; masks by what is asked about.

    `ladders` keeps what has been asked about already.
    """

    wait: Ints
    queued: Ints
    day: Ints
    classes: npt.NDArray[np.object_]
    projects: npt.NDArray[np.object_]
    gpus: Ints
    promised: Bools
    large: Bools
    ladders: dict[object, Ladder] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """What metrics are made from.

    Attributes
    ----------
    num_days
        Days since the start, the last one perhaps not whole.
    pools
        GPU-seconds of all pools together by column and day, shape (num_days,) each.
    by_pool
        The same of each pool.
    projects, project_pools
        What was owed to and got by each project, and by each project in each pool: called as `in_pool` says.
    waits
        The jobs.
    stops
        Stops by decision that happened on each day, shape (num_days,).
    stops_of_jobs
        How often each job was stopped, shape (num_jobs,).
    broken
        Promises broken on each day.
    spread, gangs
        Domains beyond the fewest possible of the runs on several nodes that started on each day, and how many of these runs.
    by_hand
        Nodes that a person had to clear, by day.
    late
        By how many seconds reservations missed their bound, shape (num_reservations,).
    """

    num_days: int
    pools: Mapping[str, Floats]
    by_pool: Mapping[str, Mapping[str, Floats]]
    projects: Delivery
    project_pools: Delivery
    waits: Waits
    stops: Floats
    stops_of_jobs: Ints
    broken: Floats
    spread: Floats
    gangs: Floats
    by_hand: Floats
    late: Ints


def evidence_of(frames: Mapping[str, pd.DataFrame], start: int, end: int) -> Evidence:
    """Read the tables of a replay from `start` to `end`."""
    num_days = max(1, -(-(end - start) // DAY))
    hours, runs, jobs, epochs = (frames[name] for name in ("hours", "runs", "jobs", "epochs"))
    hours = hours.assign(day=(hours.start - start) // DAY)
    root = hours[hours.allocation == ROOT]
    gangs = runs[runs.nodes > 1]
    stopped = stopped_runs(runs)
    return Evidence(
        num_days=num_days,
        pools=_summed(root, num_days),
        by_pool={str(pool): _summed(rows, num_days) for pool, rows in root.groupby("pool") if pool},
        projects=_delivery(hours[hours.project], ["allocation"], num_days),
        project_pools=_delivery(hours[hours.project], ["allocation", "pool"], num_days),
        waits=_waits(jobs, start),
        stops=_by_day((stopped.end - start) // DAY, None, num_days),
        stops_of_jobs=jobs.stops.to_numpy(dtype=np.int64),
        broken=_by_day((runs.end[runs.broken] - start) // DAY, None, num_days),
        spread=_by_day((gangs.start - start) // DAY, gangs.excess_domains, num_days),
        gangs=_by_day((gangs.start - start) // DAY, None, num_days),
        by_hand=_by_day((epochs.now - start) // DAY, epochs.drains_by_hand, num_days),
        late=frames["reservations"].late.to_numpy(dtype=np.int64),
    )


def in_pool(project: str, pool: str) -> str:
    """What a project in a pool is called among `project_pools`."""
    return f"{project}|{pool}"


def _summed(rows: pd.DataFrame, num_days: int) -> dict[str, Floats]:
    return {name: _by_day(rows.day, rows[name], num_days) for name in SUMMED}


def stopped_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs that a decision or a person ended."""
    stopped: pd.DataFrame = runs[~runs.ended_by.isin(["completed", "failed", "resume_failed", "crashed", "cut"])]
    return stopped


def _by_day(day: pd.Series, values: pd.Series | None, num_days: int) -> Floats:
    """Sums by day, or counts where no values are given."""
    index = np.minimum(day.to_numpy(dtype=np.int64), num_days - 1)
    weights = None if values is None else values.to_numpy(dtype=np.float64)
    return np.bincount(index, weights=weights, minlength=num_days).astype(np.float64)


def _delivery(hours: pd.DataFrame, keys: list[str], num_days: int) -> Delivery:
    table = hours.assign(
        useful=hours.charged + hours.uncharged - hours[list(NET)].sum(axis=1),
        met=hours[["charged", "owed"]].min(axis=1),
        key=hours[keys].agg("|".join, axis=1) if len(hours) else hours.allocation,
    )
    names = tuple(sorted(table.key.unique()))
    column = {name: index for index, name in enumerate(names)}
    place = table.day.to_numpy(dtype=np.int64) * len(names) + table.key.map(column).to_numpy(dtype=np.int64)

    def spread_out(name: str) -> Floats:
        weights = table[name].to_numpy(dtype=np.float64)
        flat = np.bincount(place, weights=weights, minlength=num_days * len(names)).astype(np.float64)
        return flat.reshape(num_days, len(names))

    return Delivery(names, spread_out("owed"), spread_out("charged"), spread_out("useful"), spread_out("met"))


def _waits(jobs: pd.DataFrame, start: int) -> Waits:
    table = jobs.sort_values(["wait", "job"])
    return Waits(
        wait=table.wait.to_numpy(dtype=np.int64),
        queued=table.queued.to_numpy(dtype=np.int64),
        day=np.maximum((table.submit.to_numpy(dtype=np.int64) - start) // DAY, 0),
        classes=table.job_class.to_numpy(dtype=object),
        projects=table.project.to_numpy(dtype=object),
        gpus=table.gpus.to_numpy(dtype=np.int64),
        promised=table.min_runtime.to_numpy(dtype=np.int64) > 0,
        large=table.large.to_numpy(dtype=np.bool_),
    )
