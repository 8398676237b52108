"""Four weeks of a research organisation, or as many days of one as are asked for: a trace from a seed.

Clusters of jobs arrive by the hour and the day of the week, each for one researcher; flagship campaigns run through; nodes
fail. Where users keep sessions open, `Job.idle` says how long they would, and the policy says whether they may.
"""

from __future__ import annotations

from bisect import bisect_right
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
    drawn = [job for job in _Arrivals(_rng(arrivals), params, pools, build_crowd(organisation)).draw(start) if job.at < end]
    _park(_rng(idling), params.squatters, organisation, drawn)
    trace = Trace(
        name=f"research organisation, {params.gpus} GPUs",
        start=start,
        end=end,
        cluster=cluster,
        budgets=organisation.budgets,
        jobs=_numbered(runs, drawn),
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


@dataclass(slots=True, kw_only=True)
class _Drawn:
    """A job before it has its number. `dies`: seconds after which it fails; `idle`: how long its session is kept afterwards."""

    job_class: JobClass
    at: int
    leaf: str
    gpus: int
    pools: tuple[str, ...]
    work: int
    limit: int
    dies: int | None
    resumable: bool
    failing_resumes: int
    idle: int = 0

    def job(self, name: str) -> Job:
        """It, under this name."""
        job_class, resumable = self.job_class, self.resumable
        tasks, gpus_per_task = split_tasks(self.gpus, 8)
        return Job(
            workload=Workload(
                id=name,
                allocation=self.leaf,
                user=self.leaf.rsplit("/", 1)[-1],
                job_class=job_class.name,
                submit_time=self.at,
                tasks=tasks,
                gpus_per_task=gpus_per_task,
                pools=self.pools,
                topology=TopologyWish(preferred=job_class.preferred if tasks > 1 else None),
                min_runtime=job_class.min_runtime,
                resumable=resumable,
                checkpoint_interval=job_class.checkpoint_interval if resumable else None,
                checkpoint_on_notice=resumable,
                restart_time=job_class.restart_time,
                priority=job_class.priority,
                max_runtime=self.limit if self.work < self.limit else None,
            ),
            work=self.work,
            checkpoint_cost=job_class.checkpoint_cost if resumable else 0,
            fails_after=self.dies,
            failing_resumes=self.failing_resumes,
            idle=self.idle,
        )


class _Menu:
    """What is drawn again and again with the same chances: what `Generator.choice` draws, and as it draws it."""

    def __init__(self, chances: Sequence[float]) -> None:
        cumulative = np.cumsum(chances)
        self._cumulative: list[float] = (cumulative / cumulative[-1]).tolist()

    def draw(self, rng: np.random.Generator) -> int:
        """The place of one."""
        return bisect_right(self._cumulative, rng.random())


class _Arrivals:
    """Draws bursts of jobs, class by class and hour by hour. More than are needed: the load is met afterwards."""

    def __init__(self, rng: np.random.Generator, params: TraceParams, pools: dict[str, int], crowd: Crowd) -> None:
        self._rng = rng
        self._days = params.days
        self._crowd = crowd
        self._pools = list(pools)
        self._sizes_of = pools
        sizes = {flow.job_class.name: sizes_in_pool(flow.job_class, max(pools.values()), 0.5) for flow in FLOWS}
        self._sizes = {name: (found, _Menu(parts)) for name, (found, parts) in sizes.items()}
        self._pool = _Menu(POOL_CHOICE)
        self._surge = surge_by_day(params.days, params.deadline)
        self._factor = 1.1 * max(1.0, params.load / REFERENCE_LOAD * 1.2 - 0.2) * params.gpus / REFERENCE_GPUS

    def draw(self, start: int) -> Iterator[_Drawn]:
        """Every burst of every class."""
        for flow in FLOWS:
            per_day = flow.per_day * self._factor / _mean_burst(flow.job_class)
            counts = self._rng.poisson(hourly_rates(flow, self._days, per_day, self._surge))
            for hour in np.flatnonzero(counts).tolist():
                for offset in self._rng.uniform(0, HOUR, counts[hour]).tolist():
                    yield from self._draw_burst(flow, start + hour * HOUR + offset)

    def _draw_burst(self, flow: Flow, begins: float) -> Iterator[_Drawn]:
        """Jobs that one researcher submits together. Those of a sweep have one size and one pool."""
        leaf = self._crowd.pick(self._rng, flow.job_class)
        shared = self._draw_size(flow.job_class)
        times = draw_burst_times(self._rng, flow, begins, burst_size(self._rng, flow.job_class))
        for at in times:
            gpus, pool = shared if flow.job_class is EXPERIMENT else self._draw_size(flow.job_class)
            yield self._draw_job(flow, leaf, gpus, pool, at)

    def _draw_size(self, job_class: JobClass) -> tuple[int, tuple[str, ...]]:
        """GPUs, and the pool that is named: small work takes any."""
        sizes, menu = self._sizes[job_class.name]
        gpus = sizes[menu.draw(self._rng)]
        if gpus <= ANY_POOL_UP_TO or len(self._pools) == 1:
            return gpus, ()
        pool = self._pools[self._pool.draw(self._rng)]
        return gpus, (pool if gpus <= self._sizes_of[pool] else self._pools[0],)

    def _draw_job(self, flow: Flow, leaf: str, gpus: int, pools: tuple[str, ...], at: int) -> _Drawn:
        rng, job_class = self._rng, flow.job_class
        dies = draw_early(rng) if rng.random() < flow.early else None
        work = max(flow.draw_work(rng, gpus), dies or 0)
        limit = time_limit(work, float(rng.uniform(1.1, 4.0)))
        resumable = rng.random() < job_class.resumable
        if dies is None and rng.random() < CANCELLED:
            dies = work
        failing = int(resumable and rng.random() < FAILING_RESUME)
        return _Drawn(
            job_class=job_class, at=at, leaf=leaf, gpus=gpus, pools=pools,
            work=work, limit=limit, dies=dies, resumable=resumable, failing_resumes=failing,
        )  # fmt: skip


def _mean_burst(job_class: JobClass) -> float:
    return 12.0 * float(np.exp(1.1**2 / 2)) if job_class is EVAL else job_class.burst


def _numbered(runs: Sequence[Job], drawn: Sequence[_Drawn]) -> tuple[Job, ...]:
    """Ids in the order of submission; the runs of campaigns have theirs."""
    entries: list[Job | _Drawn] = [*runs, *drawn]
    ordered = sorted(entries, key=_submitted)
    width = max(5, len(str(len(ordered))))
    return tuple(
        one.job(f"j{number:0{width}d}") if isinstance(one, _Drawn) else one for number, one in enumerate(ordered, start=1)
    )


def _submitted(one: Job | _Drawn) -> int:
    return one.at if isinstance(one, _Drawn) else one.workload.submit_time


def _park(rng: np.random.Generator, part: float, organisation: Organisation, drawn: Sequence[_Drawn]) -> None:
    """Let some researchers keep their sessions after the work."""
    leaves = [leaf for project in organisation.projects for leaf in project.researchers]
    squatters = {leaf for leaf, chance in zip(leaves, rng.random(len(leaves)), strict=True) if chance < part}
    for job in drawn:
        if job.job_class is DEBUG and job.work >= SESSION and job.leaf in squatters:
            job.idle = int(min(IDLE_CAP, IDLE_MEDIAN * np.exp(rng.normal(0.0, IDLE_SIGMA))))
