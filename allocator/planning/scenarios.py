"""Demand in every scenario: given, drawn by growth from what is asked for now, or from what a trace asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from allocator.domain.trace import Job, Trace
from allocator.generate.offered import asked
from allocator.planning.document import DemandDoc, GrowthDoc, MoveDoc
from allocator.planning.question import Floats
from allocator.planning.steps import by_quarter
from allocator.replay.meters import Books

Key = tuple[str, str]
"""Project and pool."""

EXPECTED = "expected"


def work_of(trace: Trace) -> dict[Key, list[Job]]:
    """The jobs of a trace with a min runtime, by project and pool.

    Work that accepts several pools counts in the first that it names; without a name in the largest, as entitlement has it.
    """
    sizes = _pool_sizes(trace)
    books = Books(trace.budgets, tuple(sizes))
    largest = max(sizes, key=lambda pool: (sizes[pool], pool))
    found: dict[Key, list[Job]] = {}
    for job in trace.jobs:
        work = job.workload
        path = books.paths.get(work.allocation, ())
        project = next((vertex for vertex in path if vertex in books.projects), work.allocation)
        if work.min_runtime > 0:
            found.setdefault((project, work.pools[0] if work.pools else largest), []).append(job)
    return found


def measure_demand(trace: Trace) -> dict[Key, float]:
    """GPUs that these jobs need on average, without restarts."""
    return {key: sum(map(asked, jobs)) / (trace.end - trace.start) for key, jobs in work_of(trace).items()}


def measure_shares(trace: Trace) -> dict[Key, float]:
    """The share of each project in each pool."""
    books = Books(trace.budgets, tuple(_pool_sizes(trace)))
    return {key: float(share) for key, share in books.shares.items() if key[0] in books.projects}


def _pool_sizes(trace: Trace) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for node in trace.cluster.nodes:
        sizes[node.pool] = sizes.get(node.pool, 0) + node.gpus
    return sizes


def given_demand(
    rows: Sequence[DemandDoc], names: Sequence[str], projects: Sequence[str], pools: Sequence[str], first: int, quarters: int
) -> Floats:
    """Demand as the rows say it, shape (S, T, V, P). Rows of a scenario take the place of those of all scenarios."""
    series: dict[tuple[str | None, str, str], list[tuple[DemandDoc, float]]] = {}
    for row in rows:
        series.setdefault((row.scenario, row.project, row.pool), []).append((row, row.gpus))
    demand = np.zeros((len(names), quarters, len(projects), len(pools)))
    for s, name in enumerate(names):
        for v, project in enumerate(projects):
            for p, pool in enumerate(pools):
                own = series.get((name, project, pool)) or series.get((None, project, pool)) or []
                demand[s, :, v, p] = by_quarter(own, first, quarters, 0.0)
    return demand


def grow(base: Floats, growth: GrowthDoc, projects: Sequence[str], pools: Sequence[str]) -> Floats:
    """Draw scenarios, shape (S, T, V, P), from demand of shape (1, T, V, P).

    The logarithm of a year's growth is normal in each scenario: around what is said of the project or pool, with a deviation
    common to all projects and one of each. The expected growth is the one that was asked for.
    """
    rng = np.random.Generator(np.random.PCG64(growth.seed))
    count, years = growth.scenarios, np.arange(base.shape[1]) / 4
    mean = np.log1p([[_yearly(growth, project, pool) for pool in pools] for project in projects])
    common = rng.normal(0.0, 1.0, count)[:, None, None] * growth.uncertainty
    own = rng.normal(0.0, 1.0, (count, len(projects)))[:, :, None] * growth.own
    variance = growth.uncertainty**2 + growth.own**2
    rates = (mean[None] + common + own)[:, None] * years[None, :, None, None]
    # So that uncertainty alone adds no demand: the mean of a lognormal lies above its median.
    return base * np.exp(rates - variance / 2 * years[None, :, None, None] ** 2)


def _yearly(growth: GrowthDoc, project: str, pool: str) -> float:
    """The growth of a project, else of a pool, else of all."""
    return growth.projects.get(project, growth.pools.get(pool, growth.yearly))


def move(demand: Floats, moves: Sequence[MoveDoc], pools: Sequence[str], first: int, quarters: int) -> Floats:
    """Demand of shape (S, T, V, P) once parts of pools have moved on to others."""
    at: Mapping[str, int] = {pool: p for p, pool in enumerate(pools)}
    series: dict[Key, list[tuple[MoveDoc, tuple[float, float]]]] = {}
    for row in moves:
        if row.pool is not None and row.to is not None:
            series.setdefault((row.pool, row.to), []).append((row, (row.part, row.speed)))
    moved = demand.copy()
    for (source, target), rows in series.items():
        steps = np.array(by_quarter(rows, first, quarters, (0.0, 1.0)))
        part, speed = steps[None, :, 0, None], steps[None, :, 1, None]
        leaves = part * demand[..., at[source]]
        moved[..., at[source]] -= leaves
        moved[..., at[target]] += leaves / speed
    return moved
