"""Traces that play a plan: a fleet of so many nodes, and jobs that ask for so many GPUs on average.

Jobs are drawn from templates. Were every job started when it is submitted, the GPUs of a project in a pool that are asked for
at an instant would have the wanted average, from the first instant on: jobs that began before the start of the trace are there
at its start with what is left of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from allocator.domain import Allocation, Cluster, Node, Policy, TopologyWish, UsageRecord
from allocator.domain.trace import Job, Trace
from allocator.generate.demand import split_tasks
from allocator.generate.fleet import HGX_LEVELS, SLOWDOWN
from allocator.generate.outages import draw_outages
from allocator.generate.params import TRACE_START
from allocator.planning.templates import Templates

NODES_PER_LEAF = 32
LARGEST_PART = 8
"""A gang asks for at most one part in so many of its pool: one of more would be all that its project asks for in a day."""

SPREAD = 0.02
"""How far the average of what is drawn may be from what is wanted."""

ATTEMPTS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPlan:
    """The nodes of a pool that is played."""

    name: str
    gpus_per_node: int
    num_nodes: int

    @property
    def gpus(self) -> int:
        """GPUs of the pool."""
        return self.gpus_per_node * self.num_nodes


def play_trace(
    name: str,
    pools: Sequence[PoolPlan],
    shares: Mapping[tuple[str, str], Fraction],
    wanted: Mapping[tuple[str, str], float],
    templates: Templates,
    got: Mapping[tuple[str, str], float],
    span: int,
    seed: int,
) -> Trace:
    """A trace in which projects ask for `wanted` GPUs on average, by project and pool.

    Parameters
    ----------
    shares
        Share of the pool by project and pool.
    templates
        Jobs to draw from, by project and pool.
    got
        GPUs that were charged on average in the window before the start, by project and pool.
    span
        Length in seconds.
    """
    sizes = {pool.name: pool for pool in pools}
    jobs: list[Job] = []
    for number, key in enumerate(sorted(wanted)):
        pool = sizes.get(key[1])
        if pool is not None and pool.num_nodes and wanted[key] > 0:
            jobs += _draw_jobs(_rng(seed, number), key, pool, templates.of(key), wanted[key], span)
    jobs.sort(key=lambda job: (job.workload.submit_time, job.workload.id))
    return Trace(
        name=name,
        start=TRACE_START,
        end=TRACE_START + span,
        cluster=Cluster(levels=HGX_LEVELS, nodes=tuple(_nodes(pools)), slowdown=SLOWDOWN),
        budgets=tuple(_budgets(shares)),
        jobs=tuple(jobs),
        usage=tuple(_history(got)),
    )


def with_failures(trace: Trace, rate: float, seed: int) -> Trace:
    """The trace with failures of nodes, so many per GPU and day, each repaired as in a synthetic trace."""
    rng = _rng(seed, 2**32 - 1)  # apart from those of projects
    return replace(trace, outages=draw_outages(trace.cluster, trace.start, trace.end, rng, rate))


def _rng(seed: int, stream: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(stream,))))


def asked_of(jobs: Iterable[Job], end: int) -> int:
    """GPU-seconds up to `end` that jobs would take if each began when it is submitted."""
    return sum(job.workload.gpus * min(job.work, end - job.workload.submit_time) for job in jobs)


def _history(got: Mapping[tuple[str, str], float]) -> Iterator[UsageRecord]:
    """One record for the whole window before the start, where it comes to a GPU."""
    for (project, pool), gpus in sorted(got.items()):
        if round(gpus):
            begin = TRACE_START - Policy().window
            yield UsageRecord(
                id=f"{project}/{pool}", allocation=project, pool=pool, gpus=round(gpus), start=begin, end=TRACE_START
            )


def _nodes(pools: Iterable[PoolPlan]) -> Iterator[Node]:
    for pool in pools:
        for number in range(pool.num_nodes):
            leaf = f"{pool.name}-leaf{number // NODES_PER_LEAF + 1}"
            yield Node(
                name=f"{pool.name}-{number + 1:05d}", pool=pool.name, gpus=pool.gpus_per_node, domains=("plan", leaf, leaf)
            )


def _budgets(shares: Mapping[tuple[str, str], Fraction]) -> Iterator[Allocation]:
    for project in sorted({project for project, _ in shares}):
        by_pool = {pool: share for (owner, pool), share in shares.items() if owner == project}
        yield Allocation(id=project, parent=None, share=max(by_pool.values()), share_by_pool=by_pool)


def _draw_jobs(
    rng: np.random.Generator, key: tuple[str, str], pool: PoolPlan, templates: Sequence[Job], wanted: float, span: int
) -> list[Job]:
    """Jobs of one project in one pool: of some draws the one that comes closest to the wanted average."""
    fitting = [job for job in templates if LARGEST_PART * job.workload.gpus <= pool.gpus]
    smallest = min(templates, key=lambda job: job.workload.gpus)
    best: tuple[float, list[Job]] = (np.inf, [])
    for _ in range(ATTEMPTS):
        jobs = list(_draw(rng, fitting or [smallest], wanted, span))
        off = abs(asked_of(jobs, TRACE_START + span) / span / wanted - 1)
        if off < best[0]:
            best = off, jobs
        if off <= SPREAD:
            break
    return [_named(job, key, number, pool) for number, job in enumerate(best[1], start=1)]


def _draw(rng: np.random.Generator, templates: Sequence[Job], wanted: float, span: int) -> Iterator[Job]:
    """Jobs that begin at random moments, some of them before the start: of those there is what is left."""
    mean = sum(job.workload.gpus * job.work for job in templates) / len(templates)
    longest = max(job.work for job in templates)
    count = int(rng.poisson(wanted / mean * (span + longest)))
    begins = rng.integers(-longest, span, count).tolist()
    for begin, which in zip(begins, rng.integers(0, len(templates), count).tolist(), strict=True):
        job = templates[which]
        left = job.work + min(0, begin)
        if left > 0:
            yield replace(job, work=left, workload=replace(job.workload, submit_time=TRACE_START + max(0, begin)))


def _named(job: Job, key: tuple[str, str], number: int, pool: PoolPlan) -> Job:
    work = job.workload
    tasks, gpus_per_task = split_tasks(work.gpus, pool.gpus_per_node)
    wish = TopologyWish(preferred="leaf" if tasks > 1 else None)
    project, name = key
    work = replace(
        work, id=f"{project}/{name}/{number:05d}", allocation=project, pools=(name,), tasks=tasks, gpus_per_task=gpus_per_task,
        topology=wish, node_labels={}, exclude_nodes=(), max_runtime=None,
    )  # fmt: skip
    return replace(job, workload=work, fails_after=None, failing_resumes=0, after=None, idle=0)
