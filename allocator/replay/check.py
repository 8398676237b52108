"""Refuses traces that contradict themselves, with everything that is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from allocator.domain import Issue, SnapshotError
from allocator.domain.trace import Job, Trace
from allocator.replay.meters import Books


def check_trace(trace: Trace) -> None:
    """Look for contradictions.

    Raises
    ------
    SnapshotError
        With one issue for each of them.
    """
    issues = [*_span_issues(trace), *_job_issues(trace), *_node_issues(trace), *_usage_issues(trace)]
    if issues:
        raise SnapshotError(issues)


def _span_issues(trace: Trace) -> Iterator[Issue]:
    if trace.start >= trace.end:
        yield Issue(path="$.end", problem=f"{trace.end} is not after the start {trace.start}", remedy="give a later end")
    for index, row in enumerate(trace.revisions):
        if row.at < trace.start:
            remedy = "give the budgets that hold at the start as budgets"
            yield Issue(path=f"$.revisions[{index}].at", problem=f"{row.at} is before the start", remedy=remedy)


def _job_issues(trace: Trace) -> Iterator[Issue]:
    jobs = {job.workload.id: job for job in trace.jobs}
    for key in _repeated(job.workload.id for job in trace.jobs):
        yield Issue(path=_path(key), problem="stands in the trace more than once", remedy="give every job an id of its own")
    pools = tuple(sorted({node.pool for node in trace.cluster.nodes}))
    leaves = {
        leaf for budgets in (trace.budgets, *(row.budgets for row in trace.revisions)) for leaf in Books(budgets, pools).leaves
    }
    for key, job in jobs.items():
        for name, problem, remedy in _wrong(job, leaves):
            yield Issue(path=f"{_path(key)}.{name}", problem=problem, remedy=remedy)
        if job.after is not None and job.after not in jobs:
            yield Issue(path=f"{_path(key)}.after", problem=f"unknown job {job.after!r}", remedy="name a job of the trace")
    for key in _in_circles(jobs):
        yield Issue(path=f"{_path(key)}.after", problem="waits for its own end", remedy="order the segments of a campaign")


def _wrong(job: Job, leaves: set[str]) -> Iterator[tuple[str, str, str]]:
    """Field, problem and remedy of each thing that is wrong with a job by itself."""
    work = job.workload
    if work.allocation not in leaves:
        yield "allocation", f"{work.allocation!r} is a leaf of no budget tree", "name a leaf of the budgets or of a revision"
    if work.run is not None:
        yield "run", "a job of a trace has not started", "leave run out"
    if job.work < 1 or (job.fails_after is not None and job.fails_after < 1):
        yield "work", "work and fails_after are at least 1 s", "leave the job out"
    if min(job.checkpoint_cost, job.failing_resumes, job.idle, work.restart_time) < 0:
        yield "checkpoint_cost", "a span or count is negative", "give 0 or more"
    if work.checkpoint_interval is not None and job.checkpoint_cost >= work.checkpoint_interval:
        problem = f"a checkpoint takes {job.checkpoint_cost} s of every {work.checkpoint_interval} s"
        yield "checkpoint_cost", problem, "make it shorter than the interval"


def _in_circles(jobs: dict[str, Job]) -> Iterator[str]:
    """Jobs that come after themselves."""
    safe: set[str] = set()
    for key in jobs:
        trail: list[str] = []
        at: str | None = key
        while at is not None and at in jobs and at not in safe and at not in trail:
            trail.append(at)
            at = jobs[at].after
        if at is not None and at in trail:
            yield key
        else:
            safe.update(trail)


def _node_issues(trace: Trace) -> Iterator[Issue]:
    names = {node.name for node in trace.cluster.nodes}
    for index, row in enumerate(trace.outages):
        if row.node not in names or row.start >= row.end:
            yield _bad_node(f"$.outages[{index}]", row.node, "start < end")
    for index, wanted in enumerate(trace.maintenance):
        deadline = wanted.announced if wanted.deadline is None else wanted.deadline
        if wanted.node not in names or not wanted.announced <= deadline < wanted.end:
            yield _bad_node(f"$.maintenance[{index}]", wanted.node, "announced <= deadline < end")


def _bad_node(path: str, node: str, order: str) -> Issue:
    return Issue(path=path, problem=f"{node!r} is no node, or not {order}", remedy=f"name a node of the cluster, {order}")


def _usage_issues(trace: Trace) -> Iterator[Issue]:
    for key in _repeated(record.id for record in trace.usage if record.id is not None):
        yield Issue(path=f"$.usage[?@.id=={key!r}]", problem="stands there more than once", remedy="give each record once")
    for index, record in enumerate(trace.usage):
        if record.end > trace.start:
            yield Issue(path=f"$.usage[{index}].end", problem="is after the start", remedy="cut it at the start of the trace")


def _repeated(keys: Iterable[str]) -> list[str]:
    return [key for key, count in Counter(keys).items() if count > 1]


def _path(key: str) -> str:
    return f"$.jobs[?@.id=={key!r}]"
