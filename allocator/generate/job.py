"""From rows of a log to jobs of a trace, and the budgets above them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from allocator.domain import Allocation, TopologyWish, Workload
from allocator.domain.trace import Job
from allocator.generate.organisation import ROOT
from allocator.generate.sources import Source, SourceRow


def leaf_of(source: Source, row: SourceRow) -> str:
    """The vertex of the budget tree that a row belongs to."""
    if source.researchers and row.user is not None:
        return f"{ROOT}/{row.tenant}/{row.user}"
    return f"{ROOT}/{row.tenant}"


def workload_of(source: Source, row: SourceRow) -> Workload:
    """What a row declares."""
    declared = row.declared
    return Workload(
        id=row.key,
        allocation=leaf_of(source, row),
        user=row.user,
        job_class=declared.job_class,
        submit_time=row.submit,
        tasks=row.tasks,
        gpus_per_task=row.gpus_per_task,
        pools=declared.pools,
        topology=TopologyWish(preferred=declared.preferred),
        min_runtime=declared.min_runtime,
        resumable=declared.resumable,
        checkpoint_interval=declared.checkpoint_interval,
        checkpoint_on_notice=declared.checkpoint_on_notice,
        restart_time=declared.restart_time,
        priority=declared.priority,
        max_runtime=declared.max_runtime,
    )


def job_of(source: Source, row: SourceRow) -> Job:
    """A row with its future."""
    return Job(
        workload=workload_of(source, row),
        work=row.work,
        checkpoint_cost=row.declared.checkpoint_cost,
        fails_after=row.work if row.fails else None,
        after=row.after,
    )


def budgets_of(source: Source, rows: Iterable[SourceRow]) -> tuple[Allocation, ...]:
    """The organisation above the tenants of the rows.

    Where no shares are known, a tenant's is its part of the GPU time in thousandths, at least one: what a manager would
    give who looks back. Where they are known, the whole tree stands, with tenants that ask for nothing.
    """
    rows = list(rows)
    work: dict[str, int] = {}
    for row in rows:
        work[row.tenant] = work.get(row.tenant, 0) + row.gpus * row.work
    shares = source.shares or by_work(work)
    paths = sorted({above for path in (*work, *source.shares) for above in _with_parents(path)})
    vertices = [Allocation(id=ROOT, parent=None, name=f"{source.title} trace", share=Fraction(1))]
    for path in paths:
        parent = f"{ROOT}/{path.rpartition('/')[0]}".rstrip("/")
        name = path.rpartition("/")[2]
        vertices.append(Allocation(id=f"{ROOT}/{path}", parent=parent, name=name, share=shares.get(path, Fraction(1))))
    if source.researchers:
        leaves = sorted({(row.tenant, row.user) for row in rows if row.user is not None})
        vertices += [
            Allocation(id=f"{ROOT}/{tenant}/{user}", parent=f"{ROOT}/{tenant}", share=Fraction(1), funds=False)
            for tenant, user in leaves
        ]
    return tuple(vertices)


def by_work(work: Mapping[str, int]) -> dict[str, Fraction]:
    """Shares in thousandths of the whole."""
    total = sum(work.values())
    return {tenant: Fraction(max(1, round(1000 * part / total))) for tenant, part in work.items()}


def _with_parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[: depth + 1]) for depth in range(len(parts))]
