"""A snapshot of one moment of a job log.

Mapping
-------
cluster
    8-GPU nodes in units of 32, by default as many as a log of this form is known to fill (1,024 GPUs for ElasticFlow, 512
    for Philly, 2,416 for Kalos).
budgets, work and declarations
    As in a trace (see `job` and `sources`).
what runs
    Starts are simulated first come, first served (see `first_come`) with the recorded run time. What runs is placed, what
    waits is queued, what ended in the week before becomes usage records. The moment is `now`.
charged or not
    Logs do not know budgets. Records are charged in order of their start while the tenant's budget lasts; then running
    work, in the same order, if the budget carries its usage and its open promise. The rest ran and runs free of charge.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from allocator.domain import Policy, Run, Snapshot, UsageRecord, Workload
from allocator.generate.files import refuse
from allocator.generate.first_come import Moment, Started, simulate_until
from allocator.generate.fleet import build_cluster
from allocator.generate.job import budgets_of, leaf_of, workload_of
from allocator.generate.ledger import Ledger
from allocator.generate.packing import Packer
from allocator.generate.sources import Source, read_source


def snapshot_from_trace(
    path: Path, at: int, *, gpus: int | None = None, history: bool = True
) -> tuple[Snapshot, tuple[str, ...]]:
    """The snapshot of a log `at` seconds after its start, and notes on the rows that were not used.

    Raises
    ------
    SnapshotError
        Where the file has no known form or several pools, or nothing runs or waits at that moment.
    """
    source = read_source(path, gpus=gpus)
    if len(source.sizes) > 1:
        raise refuse(str(path), "a log of several pools", "make a trace of it: allocator generate trace --from")
    cluster = build_cluster(source.sizes)
    pool = cluster.nodes[0].pool
    now = source.origin + at
    moment = simulate_until(source.rows, Packer(cluster.nodes), now)
    if not moment.running and not moment.waiting:
        busy = next((row.submit for row in source.rows if row.submit >= now), source.rows[-1].submit) + 1 - source.origin
        raise refuse("at", f"nothing runs or waits {at} s after the start of the trace", f"give another moment, as {busy}")
    budgets = budgets_of(source, source.rows)
    policy = Policy()
    ledger = Ledger(budgets, {pool: sum(node.gpus for node in cluster.nodes)}, policy)
    usage = _usage(moment, source, now, pool, ledger, policy) if history else []
    workloads = [_running(started, source, now, pool, ledger, policy) for started in moment.running]
    workloads.extend(workload_of(source, row) for row in moment.waiting)
    snapshot = Snapshot(
        now=now, cluster=cluster, budgets=budgets, workloads=tuple(workloads), usage=tuple(usage), policy=policy
    )
    return snapshot.canonical(), _notes(source, moment)


def _running(started: Started, source: Source, now: int, pool: str, ledger: Ledger, policy: Policy) -> Workload:
    """A running job, charged and promised its time where the budget carries that."""
    work = workload_of(source, started.row)
    start = started.start
    until = start + min(work.min_runtime, policy.protection_cap)
    used = work.gpus * min(now - start, policy.window)
    promised = work.gpus * max(0, until - now)
    run = Run(placement=started.placement, charged=False, start_time=start)
    if work.min_runtime and ledger.fits(work.allocation, pool, used, promised):
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


def _usage(moment: Moment, source: Source, now: int, pool: str, ledger: Ledger, policy: Policy) -> list[UsageRecord]:
    """Records of what ended in the window, charged while the budget lasts."""
    records = []
    for started in sorted(moment.ended, key=lambda started: (started.start, started.number)):
        start, end, row = started.start, started.end, started.row
        if end <= now - policy.window:
            continue
        leaf, used = leaf_of(source, row), row.gpus * (end - max(start, now - policy.window))
        charged = row.declared.min_runtime > 0 and ledger.fits(leaf, pool, used, 0)
        if charged:
            ledger.book(leaf, pool, used, 0)
        records.append(
            UsageRecord(id=row.key, allocation=leaf, pool=pool, gpus=row.gpus, start=start, end=end, charged=charged)
        )
    return records


def _notes(source: Source, moment: Moment) -> tuple[str, ...]:
    counts = f"{len(moment.ended)} ended, {len(moment.running)} run, {len(moment.waiting)} wait, {moment.later} come later"
    return (*source.notes(), f"at that moment {counts}")
