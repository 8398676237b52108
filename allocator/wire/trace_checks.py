"""Whether a trace contradicts itself. What it shares with a snapshot is judged by the same checks, at other paths."""

from __future__ import annotations

import re
from collections.abc import Iterable

from allocator.domain import Issue
from allocator.wire.consistency import check_budgets, check_consistency, leaves_of
from allocator.wire.draft import Draft
from allocator.wire.requests import Requests
from allocator.wire.shapes import nearest, show
from allocator.wire.snapshot_doc import AllocationDoc, SnapshotDoc
from allocator.wire.trace_doc import TraceDoc

_WORKLOAD = re.compile(r"^\$\.workloads\[(\?@|\d+\])")


def trace_issues(doc: TraceDoc) -> list[Issue]:
    """Every contradiction of a trace: its snapshot parts, what jobs ask for, their order, and what happens to nodes."""
    draft = _as_snapshot(doc, doc.budgets)
    check_consistency(draft)
    requests = Requests(draft, leaves=_later_leaves(doc))
    for job in doc.jobs:
        draft.issues += [issue for _, issue in requests.findings(job.workload)]
    issues = [_moved(issue) for issue in draft.issues]
    issues += _check_span(doc)
    issues += _check_jobs(doc)
    issues += _check_chains(doc)
    issues += _check_nodes(doc)
    issues += _check_revisions(doc)
    return issues


def _as_snapshot(doc: TraceDoc, budgets: list[AllocationDoc]) -> Draft:
    """The trace as the checks of snapshots see it: all jobs wait."""
    workloads = [job.workload for job in doc.jobs]
    return Draft(
        doc=SnapshotDoc(
            version=1, now=doc.start, cluster=doc.cluster, budgets=budgets, usage=list(doc.usage), workloads=workloads
        )
    )


def _moved(issue: Issue) -> Issue:
    """The same issue where a trace has its workloads."""
    found = _WORKLOAD.match(issue.path)
    if found is None:
        return issue
    if found[1] == "?@":
        key, _, field = issue.path.removeprefix("$.workloads[?@.id==").rpartition("].")
        path = f"$.jobs[?@.workload.id=={key}].workload.{field}"
    else:
        path = f"$.jobs[{found[1]}.workload{issue.path[found.end() :]}"
    return Issue(path=path, problem=issue.problem, remedy=issue.remedy)


def _later_leaves(doc: TraceDoc) -> set[str]:
    """Leaves that come with a revision: work may name them before they are there."""
    return {leaf for revision in doc.revisions for leaf in leaves_of(revision.budgets)[0]}


def _check_span(doc: TraceDoc) -> Iterable[Issue]:
    """Ensures that the trace lasts some time, and that its history lies before it."""
    if doc.end <= doc.start:
        yield _issue("$.end", f"{doc.end} is not after the start {doc.start}", "give a later end")
    for row, record in enumerate(doc.usage):
        if record.end > doc.start:
            yield _issue(f"$.usage[{row}].end", f"{record.end} lies after the start of the trace", "history ends before it")


def _check_jobs(doc: TraceDoc) -> Iterable[Issue]:
    """Ensures that jobs wait when they come, and die before their work is done if they die."""
    for row, job in enumerate(doc.jobs):
        if job.workload.run is not None:
            yield _issue(f"$.jobs[{row}].workload.run", "a job of a trace has not started", "leave the run out")
        if job.fails_after is not None and job.fails_after > job.work:
            problem = f"it is to die after {job.fails_after} s of {job.work} s of work"
            yield _issue(f"$.jobs[{row}].fails_after", problem, "give at most its work, or leave it out")


def _check_chains(doc: TraceDoc) -> Iterable[Issue]:
    """Ensures that what a job waits for exists, and that none waits for itself over others."""
    rows = {job.workload.id: row for row, job in enumerate(doc.jobs)}
    after = {job.workload.id: job.after for job in doc.jobs if job.after is not None}
    settled: set[str] = set()
    for key, wanted in after.items():
        if wanted not in rows:
            yield _issue(f"$.jobs[{rows[key]}].after", f"unknown job {show(wanted)}", nearest(wanted, list(rows), 3))
        walk: list[str] = []
        met: set[str] = set()
        at: str | None = key
        while at is not None and at not in settled and at not in met:
            walk.append(at)
            met.add(at)
            at = after.get(at)
        if at is not None and at in met:
            way = " -> ".join(map(show, [*walk[walk.index(at) :], at]))
            yield _issue(f"$.jobs[{rows[at]}].after", f"the jobs wait for each other: {way}", "let one of them start first")
        settled |= met


def _check_nodes(doc: TraceDoc) -> Iterable[Issue]:
    """Ensures that outages and maintenance are of nodes that exist, and that their moments come in order."""
    names = {node.name for node in doc.cluster.nodes}
    for row, outage in enumerate(doc.outages):
        yield from _check_node(f"$.outages[{row}]", outage.node, names)
        yield from _check_order(f"$.outages[{row}]", ("start", "end"), (outage.start, outage.end), strict=True)
    for row, work in enumerate(doc.maintenance):
        path = f"$.maintenance[{row}]"
        yield from _check_node(path, work.node, names)
        if work.deadline is None:
            yield from _check_order(path, ("announced", "end"), (work.announced, work.end), strict=True)
            if not work.drain:
                yield _issue(f"{path}.deadline", "without a deadline and a drain nothing changes", "give one of them")
            continue
        yield from _check_order(path, ("announced", "deadline"), (work.announced, work.deadline), strict=False)
        yield from _check_order(path, ("deadline", "end"), (work.deadline, work.end), strict=True)


def _check_node(path: str, name: str, names: set[str]) -> Iterable[Issue]:
    if name not in names:
        yield _issue(f"{path}.node", f"unknown node {show(name)}", nearest(name, sorted(names), 3))


def _check_order(path: str, fields: tuple[str, str], moments: tuple[int, int], *, strict: bool) -> Iterable[Issue]:
    first, second = moments
    if second < first or (strict and second == first):
        problem = f"{second} is not after `{fields[0]}` {first}" if strict else f"{second} is before `{fields[0]}` {first}"
        yield _issue(f"{path}.{fields[1]}", problem, "give moments in their order")


def _check_revisions(doc: TraceDoc) -> Iterable[Issue]:
    """Ensures that every later tree is a tree, and that no two begin together."""
    seen: set[int] = set()
    for row, revision in enumerate(doc.revisions):
        draft = _as_snapshot(doc, revision.budgets)
        check_budgets(draft)
        for issue in draft.issues:
            path = f"$.revisions[{row}]{issue.path.removeprefix('$')}"
            yield Issue(path=path, problem=issue.problem, remedy=issue.remedy)
        if revision.at in seen:
            yield _issue(f"$.revisions[{row}].at", f"another revision begins at {revision.at}", "give one tree for a moment")
        seen.add(revision.at)


def _issue(path: str, problem: str, remedy: str) -> Issue:
    return Issue(path=path, problem=problem, remedy=remedy)
