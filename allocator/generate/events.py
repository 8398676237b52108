"""What happens to a trace in a scenario: more jobs, dead nodes, maintenance, new budgets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from allocator.domain import Node, TopologyWish, Workload
from allocator.domain.trace import Job, Maintenance, Outage, Revision, Trace
from allocator.generate.classes import CLASSES, JobClass
from allocator.generate.demand import split_tasks
from allocator.generate.files import refuse
from allocator.generate.instant import parse_span
from allocator.generate.organisation import ROOT


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    """Jobs that come on top of the others (see `scenario`)."""

    at: str
    gpus: int
    job_class: str
    project: str
    work: str
    user: int = 1
    count: int = 1
    every: float = 0.0
    fails_after: str | None = None
    chain: bool = False
    required: str | None = None
    pool: str | None = None
    gpus_per_task: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutageEvent:
    """Nodes that are lost."""

    at: str
    lasts: str
    pool: str
    part: float
    domain: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceEvent:
    """Nodes that are wanted empty, batch by batch."""

    at: str
    lasts: str
    notice: str
    pool: str
    domain: str | None = None
    batch: int | None = None
    drain: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionEvent:
    """New shares."""

    at: str
    shares: Mapping[str, float]
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """All that happens in a scenario."""

    jobs: tuple[JobEvent, ...] = ()
    outages: tuple[OutageEvent, ...] = ()
    maintenance: tuple[MaintenanceEvent, ...] = ()
    revisions: tuple[RevisionEvent, ...] = ()


def happen(trace: Trace, events: Events, rng: np.random.Generator) -> Trace:
    """The trace with all events in it.

    Raises
    ------
    SnapshotError
        If an event names what the trace does not have.
    """
    jobs = [job for number, event in enumerate(events.jobs) for job in _jobs(trace, event, number)]
    outages = [outage for event in events.outages for outage in _outages(trace, event, rng)]
    maintenance = [work for event in events.maintenance for work in _maintenance(trace, event)]
    return replace(
        trace,
        jobs=tuple(sorted([*trace.jobs, *jobs], key=lambda job: (job.workload.submit_time, job.workload.id))),
        outages=tuple(sorted([*trace.outages, *outages], key=lambda outage: (outage.start, outage.node))),
        maintenance=(*trace.maintenance, *maintenance),
        revisions=(*trace.revisions, *(_revision(trace, event) for event in events.revisions)),
    )


def _jobs(trace: Trace, event: JobEvent, number: int) -> Iterator[Job]:
    """The jobs of one event, each with its place in time."""
    job_class = _job_class(event.job_class)
    declared = _declared(trace, event, job_class)
    begins, work = trace.start + parse_span(event.at), parse_span(event.work)
    before: str | None = None
    for one in range(event.count):
        key = f"{event.job_class}-event{number}-{one:0{len(str(event.count))}d}"
        yield Job(
            workload=replace(declared, id=key, submit_time=begins + int(one * event.every)),
            work=work,
            checkpoint_cost=job_class.checkpoint_cost,
            fails_after=None if event.fails_after is None else parse_span(event.fails_after),
            after=before if event.chain else None,
        )
        before = key


def _declared(trace: Trace, event: JobEvent, job_class: JobClass) -> Workload:
    """What the jobs of an event declare."""
    leaf = _leaf(trace, event.project, event.user)
    tasks, gpus_per_task = split_tasks(event.gpus, 8)
    if event.gpus_per_task is not None:
        tasks, gpus_per_task = event.gpus // event.gpus_per_task, event.gpus_per_task
    preferred = job_class.preferred if tasks > 1 and event.required is None else None
    resumable = job_class.resumable >= 0.5
    return Workload(
        id="",
        allocation=leaf,
        user=leaf.rsplit("/", 1)[-1],
        job_class=job_class.name,
        submit_time=0,
        tasks=tasks,
        gpus_per_task=gpus_per_task,
        pools=(event.pool,) if event.pool else (),
        topology=TopologyWish(required=event.required, preferred=preferred),
        min_runtime=job_class.min_runtime,
        resumable=resumable,
        checkpoint_interval=job_class.checkpoint_interval if resumable else None,
        checkpoint_on_notice=resumable,
        restart_time=job_class.restart_time,
        priority=job_class.priority,
    )


def _job_class(name: str) -> JobClass:
    known = {job_class.name: job_class for job_class in CLASSES}
    if name not in known:
        raise refuse("class", f"no class is called {name!r}", f"give one of {', '.join(known)}")
    return known[name]


def _leaf(trace: Trace, project: str, user: int) -> str:
    """A researcher of a project, counted from 1."""
    leaves = sorted(vertex.id for vertex in trace.budgets if vertex.parent == project)
    if not leaves:
        inner = sorted({vertex.parent for vertex in trace.budgets if vertex.parent and "/" in vertex.parent})
        raise refuse("project", f"no project is called {project!r}", f"give one of {', '.join(inner)}")
    return leaves[(user - 1) % len(leaves)]


def _nodes(trace: Trace, pool: str, domain: str | None) -> list[Node]:
    """The nodes of a pool, or of one domain of it."""
    found = [node for node in trace.cluster.nodes if node.pool == pool and (domain is None or domain in node.domains)]
    if not found:
        pools = sorted({node.pool for node in trace.cluster.nodes})
        where = f"domain {domain!r} of pool {pool!r}" if domain else f"pool {pool!r}"
        raise refuse("pool", f"there is no {where}", f"the pools are {', '.join(pools)}")
    return found


def _outages(trace: Trace, event: OutageEvent, rng: np.random.Generator) -> Iterator[Outage]:
    nodes = _nodes(trace, event.pool, event.domain)
    count = max(1, round(event.part * len(nodes)))
    begins = trace.start + parse_span(event.at)
    for index in sorted(rng.choice(len(nodes), size=min(count, len(nodes)), replace=False).tolist()):
        yield Outage(node=nodes[index].name, start=begins, end=begins + parse_span(event.lasts), reason="scenario")


def _maintenance(trace: Trace, event: MaintenanceEvent) -> Iterator[Maintenance]:
    nodes, lasts = _nodes(trace, event.pool, event.domain), parse_span(event.lasts)
    begins = trace.start + parse_span(event.at)
    yield from serviced(
        nodes, begins, lasts, parse_span(event.notice), earliest=trace.start, batch=event.batch, drain=event.drain
    )


def serviced(
    nodes: Sequence[Node], at: int, lasts: int, notice: int, *, earliest: int, batch: int | None, drain: bool
) -> Iterator[Maintenance]:
    """Maintenance of nodes, `batch` at a time (None: all), each for `lasts` seconds, the first at `at`; each is announced
    `notice` seconds before, at `earliest` at the earliest."""
    for place, node in enumerate(nodes):
        deadline = at + place // (batch or len(nodes)) * lasts
        announced = max(earliest, deadline - notice)
        yield Maintenance(
            node=node.name, announced=announced, deadline=deadline, end=deadline + lasts, drain=drain, reason="scenario"
        )


def _revision(trace: Trace, event: RevisionEvent) -> Revision:
    """The tree with other shares; vertices are named by id, or by path below the root."""
    ids = {vertex.id for vertex in trace.budgets}
    shares = {name if name in ids else f"{ROOT}/{name}": Fraction(str(share)) for name, share in event.shares.items()}
    if unknown := sorted(set(shares) - ids):
        raise refuse("shares", f"unknown budgets {', '.join(unknown)}", "give ids of the budget tree")
    return Revision(
        at=trace.start + parse_span(event.at),
        budgets=tuple(replace(vertex, share=shares.get(vertex.id, vertex.share)) for vertex in trace.budgets),
        reason=event.reason,
    )
