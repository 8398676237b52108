"""The results of a replay as tidy tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_type_hints

from allocator.domain import Cluster
from allocator.replay.bounds import BoundRow
from allocator.replay.errors import MissingExtraError
from allocator.replay.lives import Life, RunRow
from allocator.replay.meters import ROOT, WASTE, HourRow
from allocator.replay.places import ClosureRow, PlacementRow
from allocator.replay.simulator import EpochRow, Simulator
from allocator.replay.world import World

if TYPE_CHECKING:
    import pandas as pd

PLACES = ("nodes", "placements", "closures")
"""Tables that results written by earlier versions lack; only pictures need them."""

TABLES = ("jobs", "runs", "hours", "epochs", "allocations", "reservations", *PLACES)
"""Written one by one, as NAME.parquet and NAME.csv."""

LEVEL = "level_"
"""Before the name of a topology level: the column of the table `nodes` that names the domain of that level."""

ADDED = ("share", "owed", "charged", "uncharged", "unfunded", "demand", *WASTE)
"""Columns of the table `hours` that are added up for each allocation."""


class JobRow(NamedTuple):
    """One job that was submitted. Instants in seconds since the epoch, spans in seconds, work of the whole gang in seconds.

    `wait` goes from submission to the first start, `queued` is all time in the queue; of what waits at the end both go up to
    the end. `large`: at least the share of its pool from which gangs get reservations.
    """

    job: str
    job_class: str
    allocation: str
    project: str
    user: str
    pool: str
    gpus: int
    tasks: int
    large: bool
    min_runtime: int
    resumable: bool
    submit: int
    first_start: int | None
    ended: int | None
    outcome: str
    wait: int
    queued: int
    runs: int
    stops: int
    target: int
    worked: int
    lost: int


def frames_of(simulator: Simulator) -> dict[str, pd.DataFrame]:
    """All tables of a replay that has come to its end, by name."""
    pandas = import_pandas()
    world = simulator.world
    rows: Mapping[str, tuple[type, Sequence[Any]]] = {
        "jobs": (JobRow, [_job_row(world, life, simulator.end) for _, life in sorted(world.lives.items())]),
        "runs": (RunRow, world.runs),
        "hours": (HourRow, world.hours),
        "epochs": (EpochRow, simulator.epochs),
        "reservations": (BoundRow, simulator.bounds.rows),
        "placements": (PlacementRow, world.placements),
        "closures": (ClosureRow, world.closures.rows),
    }
    frames = {name: _frame(pandas, kind, values) for name, (kind, values) in rows.items()}
    frames["allocations"] = allocations_of(frames["hours"])
    frames["nodes"] = nodes_of(world.trace.cluster)
    return frames


def nodes_of(cluster: Cluster) -> pd.DataFrame:
    """The nodes by name, with the domains that they lie in, coarse to fine."""
    nodes = sorted(cluster.nodes, key=lambda node: node.name)
    columns: dict[str, list[Any]] = {
        "node": [node.name for node in nodes],
        "pool": [node.pool for node in nodes],
        "gpus": [node.gpus for node in nodes],
    }
    for depth, level in enumerate(cluster.levels[:-1]):
        columns[f"{LEVEL}{level}"] = [node.domains[depth] for node in nodes]
    table: pd.DataFrame = import_pandas().DataFrame(columns)
    return table


def allocations_of(hours: pd.DataFrame) -> pd.DataFrame:
    """What every vertex got over the whole span, by pool; all pools together under an empty pool."""
    pandas = import_pandas()
    columns = list(ADDED)
    by_pool = hours.groupby(["allocation", "pool", "project", "leaf"], as_index=False)[columns].sum()
    total = hours.groupby(["allocation", "project", "leaf"], as_index=False)[columns].sum().assign(pool="")
    table = pandas.concat([by_pool, total[by_pool.columns]], ignore_index=True)
    waste = table[["lost", "restart", "checkpoint", "parked", "dead"]].sum(axis=1)
    table["useful"] = table.charged + table.uncharged - waste
    owed = table.owed.where(table.owed > 0)
    table["delivered_share"] = (table.charged / owed).clip(upper=1)
    table["useful_share"] = table.useful / owed
    ordered: pd.DataFrame = table.sort_values(["allocation", "pool"], ignore_index=True)
    return ordered


def write_frames(frames: Mapping[str, pd.DataFrame], folder: Path) -> None:
    """Write every table twice: Parquet for programs, CSV for eyes."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in TABLES:
        frames[name].to_parquet(folder / f"{name}.parquet", index=False)
        frames[name].to_csv(folder / f"{name}.csv", index=False)


def read_frames(folder: Path) -> dict[str, pd.DataFrame]:
    """The tables of a replay that was written there; without `PLACES` if an earlier version wrote it."""
    pandas = import_pandas()
    paths = {name: folder / f"{name}.parquet" for name in TABLES}
    return {name: pandas.read_parquet(path) for name, path in paths.items() if name not in PLACES or path.exists()}


def import_pandas() -> Any:
    """Pandas, which the extra `replay` brings.

    Raises
    ------
    MissingExtraError
        If it, or what it writes Parquet with, is not installed.
    """
    try:
        import pandas
        import pyarrow  # noqa: F401
    except ImportError as error:
        problem = f"{error.name} is not installed: pip install 'gpu-epoch-allocator[replay]'"
        raise MissingExtraError(f"the results of a replay are tables, and {problem}") from error
    return pandas


_COLUMN_TYPES: Mapping[object, str] = {
    int: "int64",
    bool: "bool",
    str: "object",
    int | None: "Int64",
    float | None: "float64",
}


def _frame(pandas: Any, kind: type, rows: Sequence[Any]) -> pd.DataFrame:
    """A table with the columns of a row type, typed even if it has no rows."""
    types = {name: _COLUMN_TYPES[hint] for name, hint in get_type_hints(kind).items()}
    table: pd.DataFrame = pandas.DataFrame.from_records(rows, columns=list(types))
    return table.astype(types)


def _job_row(world: World, life: Life, end: int) -> JobRow:
    work = life.job.workload
    pool = life.pool or world.key_of(work)[1]
    now = world.roster.works.get(work.id, work)
    last = life.ended if life.ended is not None else end
    waits = life.ended is None and now.run is None
    path = world.books.paths.get(work.allocation, (work.allocation,))
    return JobRow(
        job=work.id,
        job_class=work.job_class or "",
        allocation=work.allocation,
        project=next((vertex for vertex in path if vertex in world.books.projects), ROOT),
        user=work.user or "",
        pool=pool,
        gpus=work.gpus,
        tasks=work.tasks,
        large=work.gpus >= world.trace.policy.reserve_from * world.fleet.installed.get(pool, 0),
        min_runtime=work.min_runtime,
        resumable=work.resumable,
        submit=life.submit,
        first_start=life.first_start,
        ended=life.ended,
        outcome=life.outcome or ("waiting" if waits else "running"),
        wait=(last if life.first_start is None else life.first_start) - life.submit,
        queued=life.queued + (last - life.queued_since if waits else 0),
        runs=life.runs,
        stops=life.stops,
        target=life.target,
        worked=life.worked,
        lost=life.lost,
    )
