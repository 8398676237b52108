"""A snapshot of one moment of a public job trace.

Mapping
-------
cluster
    One pool `h100` of 8-GPU nodes in units of 32, by default of the size that the trace is known to fill (1,024 GPUs for
    ElasticFlow, 512 for Philly, 2,416 for Kalos).
budgets
    `org` above one leaf per tenant. A tenant's share is its part of the GPU time of the whole trace, in thousandths, at
    least one: what a manager would give who looks back. The weeks deviate from it by themselves.
work
    Starts are simulated first come, first served (see `first_come`) with the recorded run time. What runs is placed, what
    waits is queued, what ended in the week before becomes usage records. Submission is `submit_time`; the moment is `now`.
declarations
    Traces have none. Each job gets those of a class of the workload model, by size: up to 8 GPUs experiment, up to 64
    post-training, below 256 ablation, from 256 flagship; with Kalos' job types, Pretrain is ablation or flagship, and what
    is SFT or other is post-training. Which jobs of a class are resumable follows from their number in the file. The time
    limit is twice the recorded run time, rounded up to the menu, or none for what is longer than the menu.
charged or not
    Nor do traces know budgets. Records are charged in order of their start while the tenant's budget lasts; then running
    work, in the same order, if the budget carries its usage and its open promise. The rest ran and runs free of charge.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from allocator.domain import Allocation, Policy, Run, Snapshot, TopologyWish, UsageRecord, Workload
from allocator.generate.classes import ABLATION, EXPERIMENT, FLAGSHIP, POST_TRAINING, JobClass, time_limit
from allocator.generate.demand import split_tasks
from allocator.generate.files import refuse
from allocator.generate.first_come import Moment, Started, simulate_until
from allocator.generate.fleet import build_cluster, split_nodes
from allocator.generate.ledger import Ledger
from allocator.generate.organisation import ROOT
from allocator.generate.packing import Packer
from allocator.generate.trace_rows import GPUS_PER_NODE, Trace, TraceRow, read_trace

GOLDEN = 0.618_033_988_749_895
"""Multiples of it modulo 1 are spread evenly: a draw without a seed."""


def snapshot_from_trace(
    path: Path, at: int, *, gpus: int | None = None, history: bool = True
) -> tuple[Snapshot, tuple[str, ...]]:
    """The snapshot of a trace `at` seconds after its start, and notes on the rows that were not used.

    Raises
    ------
    SnapshotError
        Where the file is no known trace, or nothing runs or waits at that moment.
    """
    if gpus is not None and gpus < GPUS_PER_NODE:
        raise refuse("gpus", f"{gpus} GPUs", f"give at least {GPUS_PER_NODE}")
    nodes = split_nodes(gpus, 1) if gpus is not None else None
    trace = read_trace(path, gpus)
    cluster = build_cluster(nodes or split_nodes(trace.form.gpus, 1))
    pool = cluster.nodes[0].pool
    moment = simulate_until(trace.rows, Packer(cluster.nodes), GPUS_PER_NODE, at)
    if not moment.running and not moment.waiting:
        busy = next((row.submit for row in trace.rows if row.submit >= at), trace.rows[-1].submit) + 1
        raise refuse("at", f"nothing runs or waits {at} s after the start of the trace", f"give another moment, as {busy}")
    budgets = _budgets(trace)
    now = trace.form.origin + at
    policy = Policy()
    ledger = Ledger(budgets, {pool: sum(node.gpus for node in cluster.nodes)}, policy)
    usage = _usage(moment, trace, now, pool, ledger, policy) if history else []
    workloads = [_running(started, trace, now, pool, ledger, policy) for started in moment.running]
    workloads.extend(_workload(row, trace) for row in moment.waiting)
    snapshot = Snapshot(
        now=now, cluster=cluster, budgets=budgets, workloads=tuple(workloads), usage=tuple(usage), policy=policy
    )
    return snapshot.canonical(), _notes(trace, moment)


def _budgets(trace: Trace) -> tuple[Allocation, ...]:
    """The organisation above its tenants."""
    work: dict[str, int] = {}
    for row in trace.rows:
        work[row.tenant] = work.get(row.tenant, 0) + row.gpus * row.duration
    total = sum(work.values())
    tenants = [
        Allocation(id=_leaf(tenant), parent=ROOT, name=tenant, share=Fraction(max(1, round(1000 * part / total))))
        for tenant, part in sorted(work.items())
    ]
    return (Allocation(id=ROOT, parent=None, name=f"{trace.form.name} trace", share=Fraction(1)), *tenants)


def _leaf(tenant: str) -> str:
    return f"{ROOT}/{tenant}"


def _job_class(row: TraceRow) -> JobClass:
    """The class whose declarations the job gets."""
    if row.tenant == "Pretrain":
        return FLAGSHIP if row.gpus >= 256 else ABLATION
    if row.tenant == "SFT_or_Other":
        return POST_TRAINING
    for limit, job_class in ((8, EXPERIMENT), (64, POST_TRAINING), (255, ABLATION)):
        if row.gpus <= limit:
            return job_class
    return FLAGSHIP


def _workload(row: TraceRow, trace: Trace) -> Workload:
    """What the job declares."""
    job_class = _job_class(row)
    tasks, gpus_per_task = split_tasks(row.gpus, GPUS_PER_NODE)
    resumable = row.number * GOLDEN % 1.0 < job_class.resumable
    limit = time_limit(row.duration, 2.0)
    return Workload(
        id=f"{row.tenant}-{row.job_id}",
        allocation=_leaf(row.tenant),
        job_class=job_class.name,
        submit_time=trace.form.origin + row.submit,
        tasks=tasks,
        gpus_per_task=gpus_per_task,
        topology=TopologyWish(preferred=job_class.preferred if tasks > 1 else None),
        min_runtime=job_class.min_runtime,
        resumable=resumable,
        checkpoint_interval=job_class.checkpoint_interval if resumable else None,
        restart_time=job_class.restart_time,
        max_runtime=limit if row.duration < limit else None,
    )


def _running(started: Started, trace: Trace, now: int, pool: str, ledger: Ledger, policy: Policy) -> Workload:
    """A running job, charged and promised its time where the budget carries that."""
    work = _workload(started.row, trace)
    start = trace.form.origin + started.start
    until = start + min(work.min_runtime, policy.protection_cap)
    used = work.gpus * min(now - start, policy.window)
    promised = work.gpus * max(0, until - now)
    run = Run(placement=started.placement, charged=False, start_time=start)
    if ledger.fits(work.allocation, pool, used, promised):
        ledger.book(work.allocation, pool, used, promised)
        run = Run(
            placement=started.placement,
            charged=True,
            start_time=start,
            charged_since=start,
            granted_at=start,
            protected_until=until,
        )
    return replace(work, run=run)


def _usage(moment: Moment, trace: Trace, now: int, pool: str, ledger: Ledger, policy: Policy) -> list[UsageRecord]:
    """Records of what ended in the window, charged while the budget lasts."""
    records = []
    for started in sorted(moment.ended, key=lambda started: (started.start, started.row.number)):
        start, end = trace.form.origin + started.start, trace.form.origin + started.end
        if end <= now - policy.window:
            continue
        leaf, used = _leaf(started.row.tenant), started.row.gpus * (end - max(start, now - policy.window))
        charged = ledger.fits(leaf, pool, used, 0)
        if charged:
            ledger.book(leaf, pool, used, 0)
        record_id = f"{started.row.tenant}-{started.row.job_id}"
        records.append(
            UsageRecord(id=record_id, allocation=leaf, pool=pool, gpus=started.row.gpus, start=start, end=end, charged=charged)
        )
    return records


def _notes(trace: Trace, moment: Moment) -> tuple[str, ...]:
    counts = f"{len(moment.ended)} ended, {len(moment.running)} run, {len(moment.waiting)} wait, {moment.later} come later"
    return (*trace.notes(), f"at that moment {counts}")
