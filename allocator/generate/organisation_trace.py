"""Four weeks of a research organisation, or as many days of one as are asked for: a trace from a seed.

Clusters of jobs arrive by the hour and the day of the week, each for one researcher; flagship campaigns run through; nodes
fail. Where users keep sessions open, `Job.idle` says how long they would, and the policy says whether they may.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from allocator.domain import Cluster, TopologyWish, Workload
from allocator.domain.trace import Job, Trace
from allocator.generate.campaigns import draw_campaigns
from allocator.generate.classes import DEBUG, EVAL, EXPERIMENT, JobClass, sizes_in_pool, time_limit
from allocator.generate.demand import Crowd, build_crowd, burst_size, split_tasks
from allocator.generate.files import refuse
from allocator.generate.fleet import build_cluster, split_nodes
from allocator.generate.flow import (
    FLOWS,
    REFERENCE_GPUS,
    REFERENCE_LOAD,
    Flow,
    draw_burst_times,
    draw_early,
    hourly_rates,
    surge_by_day,
)
from allocator.generate.offered import offered_load, scale_load
from allocator.generate.organisation import PLANS, Organisation, build_organisation
from allocator.generate.outages import FAILURES_PER_GPU_DAY, draw_outages
from allocator.generate.params import DAY, HOUR, TRACE_START
from allocator.wire.memory import collector_paused

RESEARCHERS, FEW_RESEARCHERS, FEW_BELOW = 13, 4, 512
"""Researchers of a project; of one in an organisation with fewer GPUs than `FEW_BELOW`."""

POOL_CHOICE = (0.6, 0.2, 0.2)
"""How often work of more than 16 GPUs names the first, second and third pool."""

ANY_POOL_UP_TO = 16
CANCELLED = 0.07
"""Part of the jobs that end because their owner has seen enough."""

FAILING_RESUME = 0.05
SESSION = 30 * 60
"""Debug work longer than this is a session that its user may keep."""

IDLE_MEDIAN, IDLE_SIGMA, IDLE_CAP = 6 * HOUR, 0.8, 24 * HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceParams:
    """What a synthetic trace is asked to look like.

    Attributes
    ----------
    pools
        1 (h100) or 3 (h100, b200, b300).
    load
        Offered load; it is met by thinning or repeating jobs.
    failures
        Node failures per GPU and day.
    squatters
        Part of the researchers who keep sessions after their work.
    deadline
        Day of a conference deadline: more work before, less after.
    """

    gpus: int = REFERENCE_GPUS
    pools: int = 3
    days: int = 28
    load: float = REFERENCE_LOAD
    seed: int = 0
    failures: float = FAILURES_PER_GPU_DAY
    squatters: float = 0.25
    deadline: int | None = None

    @property
    def in_words(self) -> str:
        """All parameters, for people."""
        parts = [
            f"{self.gpus:,} GPUs, {self.pools} pool{'s' * (self.pools > 1)}, {self.days} day{'s' * (self.days > 1)}",
            f"load {self.load:g}, seed {self.seed}, {self.failures:g} failures per GPU and day",
            f"{self.squatters:.0%} of users keep idle sessions",
        ]
        if self.deadline is not None:
            parts.append(f"a deadline on day {self.deadline}")
        return f"generated: {', '.join(parts)}"

    def __post_init__(self) -> None:
        """Refuse what cannot be generated."""
        checks = (
            ("days", 1 <= self.days <= 366, self.days, "1 to 366"),
            ("load", 0 < self.load <= 20, self.load, "more than 0, at most 20"),
            ("seed", self.seed >= 0, self.seed, "0 or more"),
            ("pools", self.pools in (1, 3), self.pools, "1 (h100) or 3 (h100, b200, b300)"),
            ("gpus", 64 <= self.gpus <= 200_000, self.gpus, "64 to 200000"),
            ("squatters", 0 <= self.squatters <= 1, self.squatters, "0 to 1"),
            ("failures", 0 <= self.failures <= 1, self.failures, "0 to 1"),
        )
        for name, good, value, valid in checks:
            if not good:
                raise refuse(name, f"{value} is out of range", f"give {valid}")


def generate_trace(params: TraceParams) -> Trace:
    """The trace of these parameters; the same ones give the same trace.

    Raises
    ------
    SnapshotError
        If the parameters make no sense together.
    """
    with collector_paused():
        return _generate(params)


def _generate(params: TraceParams) -> Trace:
    # One stream for each part, so that a change in one leaves the others as they are.
    tree, arrivals, campaigns, failures, idling = np.random.SeedSequence(params.seed).spawn(5)
    cluster = build_cluster(split_nodes(params.gpus, params.pools))
    pools = pool_sizes(cluster)
    organisation = build_organisation(_rng(tree), len(PLANS) * _researchers(params.gpus), list(pools))
    start, end = TRACE_START, TRACE_START + params.days * DAY
    leaves = {project.id: project.researchers[0] for project in organisation.projects}
    runs = list(draw_campaigns(_rng(campaigns), pools, leaves, start, end))
    jobs = list(_Arrivals(_rng(arrivals), params, pools, build_crowd(organisation)).draw(start))
    jobs = [job for job in jobs if job.workload.submit_time < end]
    jobs = _park(_rng(idling), params.squatters, organisation, jobs)
    trace = Trace(
        name=f"research organisation, {params.gpus} GPUs",
        start=start,
        end=end,
        cluster=cluster,
        budgets=organisation.budgets,
        jobs=_numbered([*runs, *jobs]),
        outages=draw_outages(cluster, start, end, _rng(failures), params.failures),
    )
    trace = scale_load(trace, params.load, params.seed)
    return replace(trace, notes=(params.in_words, f"{len(trace.jobs)} jobs, offered load {offered_load(trace):.3f}"))


def pool_sizes(cluster: Cluster) -> dict[str, int]:
    """GPUs of each pool, in the order of the nodes."""
    pools: dict[str, int] = {}
    for node in cluster.nodes:
        pools[node.pool] = pools.get(node.pool, 0) + node.gpus
    return pools


def _rng(seed: np.random.SeedSequence) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def _researchers(gpus: int) -> int:
    return RESEARCHERS if gpus >= FEW_BELOW else FEW_RESEARCHERS


class _Arrivals:
    """Draws bursts of jobs, class by class and hour by hour. More than are needed: the load is met afterwards."""

    def __init__(self, rng: np.random.Generator, params: TraceParams, pools: dict[str, int], crowd: Crowd) -> None:
        self._rng = rng
        self._days = params.days
        self._crowd = crowd
        self._pools = list(pools)
        self._largest = max(pools.values())
        self._sizes_of = pools
        self._surge = surge_by_day(params.days, params.deadline)
        self._factor = 1.1 * max(1.0, params.load / REFERENCE_LOAD * 1.2 - 0.2) * params.gpus / REFERENCE_GPUS

    def draw(self, start: int) -> Iterator[Job]:
        """Every burst of every class."""
        for flow in FLOWS:
            per_day = flow.per_day * self._factor / _mean_burst(flow.job_class)
            counts = self._rng.poisson(hourly_rates(flow, self._days, per_day, self._surge))
            for hour in np.flatnonzero(counts).tolist():
                for offset in self._rng.uniform(0, HOUR, counts[hour]).tolist():
                    yield from self._draw_burst(flow, start + hour * HOUR + offset)

    def _draw_burst(self, flow: Flow, begins: float) -> Iterator[Job]:
        """Jobs that one researcher submits together. Those of a sweep have one size and one pool."""
        leaf = self._crowd.pick(self._rng, flow.job_class)
        shared = self._draw_size(flow.job_class)
        times = draw_burst_times(self._rng, flow, begins, burst_size(self._rng, flow.job_class))
        for at in times:
            gpus, pool = shared if flow.job_class is EXPERIMENT else self._draw_size(flow.job_class)
            yield self._draw_job(flow, leaf, gpus, pool, at)

    def _draw_size(self, job_class: JobClass) -> tuple[int, tuple[str, ...]]:
        """GPUs, and the pool that is named: small work takes any."""
        sizes, parts = sizes_in_pool(job_class, self._largest, 0.5)
        gpus = int(self._rng.choice(sizes, p=parts))
        if gpus <= ANY_POOL_UP_TO or len(self._pools) == 1:
            return gpus, ()
        pool = self._pools[int(self._rng.choice(len(self._pools), p=POOL_CHOICE))]
        return gpus, (pool if gpus <= self._sizes_of[pool] else self._pools[0],)

    def _draw_job(self, flow: Flow, leaf: str, gpus: int, pools: tuple[str, ...], at: int) -> Job:
        rng, job_class = self._rng, flow.job_class
        dies = draw_early(rng) if rng.random() < flow.early else None
        work = max(flow.draw_work(rng, gpus), dies or 0)
        limit = time_limit(work, float(rng.uniform(1.1, 4.0)))
        resumable = rng.random() < job_class.resumable
        if dies is None and rng.random() < CANCELLED:
            dies = work
        tasks, gpus_per_task = split_tasks(gpus, 8)
        return Job(
            workload=Workload(
                id="",
                allocation=leaf,
                user=leaf.rsplit("/", 1)[-1],
                job_class=job_class.name,
                submit_time=at,
                tasks=tasks,
                gpus_per_task=gpus_per_task,
                pools=pools,
                topology=TopologyWish(preferred=job_class.preferred if tasks > 1 else None),
                min_runtime=job_class.min_runtime,
                resumable=resumable,
                checkpoint_interval=job_class.checkpoint_interval if resumable else None,
                checkpoint_on_notice=resumable,
                restart_time=job_class.restart_time,
                priority=job_class.priority,
                max_runtime=limit if work < limit else None,
            ),
            work=work,
            checkpoint_cost=job_class.checkpoint_cost if resumable else 0,
            fails_after=dies,
            failing_resumes=int(resumable and rng.random() < FAILING_RESUME),
        )


def _mean_burst(job_class: JobClass) -> float:
    return 12.0 * float(np.exp(1.1**2 / 2)) if job_class is EVAL else job_class.burst


def _numbered(jobs: Sequence[Job]) -> tuple[Job, ...]:
    """Ids in the order of submission; campaigns have theirs."""
    ordered = sorted(jobs, key=lambda job: job.workload.submit_time)
    width = max(5, len(str(len(ordered))))
    return tuple(
        job if job.workload.id else replace(job, workload=replace(job.workload, id=f"j{number:0{width}d}"))
        for number, job in enumerate(ordered, start=1)
    )


def _park(rng: np.random.Generator, part: float, organisation: Organisation, jobs: Sequence[Job]) -> list[Job]:
    """Let some researchers keep their sessions after the work."""
    leaves = [leaf for project in organisation.projects for leaf in project.researchers]
    squatters = {leaf for leaf, chance in zip(leaves, rng.random(len(leaves)), strict=True) if chance < part}
    found = []
    for job in jobs:
        session = job.workload.job_class == DEBUG.name and job.work >= SESSION
        if session and job.workload.allocation in squatters:
            idle = int(min(IDLE_CAP, IDLE_MEDIAN * np.exp(rng.normal(0.0, IDLE_SIGMA))))
            found.append(replace(job, idle=idle))
        else:
            found.append(job)
    return found
