"""Traces on the wire: in by one typed pass, out as canonical JSON."""

from __future__ import annotations

from dataclasses import replace
from os import PathLike
from pathlib import Path

import msgspec

from allocator.domain import SnapshotError
from allocator.domain.trace import Revision, Trace
from allocator.wire.decode import exact_fraction, settle
from allocator.wire.encode import allocation_doc, cluster_doc, policy_doc, to_wire, without_empty_wish
from allocator.wire.memory import collector_paused
from allocator.wire.shapes import problems
from allocator.wire.snapshot_doc import UsageDoc
from allocator.wire.source import loads, plain, read_bytes, refuse_syntax
from allocator.wire.trace_checks import trace_issues
from allocator.wire.trace_doc import JobDoc, MaintenanceDoc, OutageDoc, RevisionDoc, TraceDoc

_DECODER = msgspec.json.Decoder(TraceDoc)


class _Kind(msgspec.Struct):
    """What tells a trace from a snapshot; the rest is skipped."""

    jobs: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def load_trace(source: str | PathLike[str] | bytes) -> Trace:
    """Read a trace from a file, or from its bytes; gzip is recognised by its first bytes.

    Raises
    ------
    SnapshotError
        With every issue, if the document is refused.
    """
    return decode_trace(read_bytes(source))


def load_named_trace(path: Path) -> Trace:
    """The same, where a file is one of several: every issue begins with its name."""
    try:
        return load_trace(path)
    except SnapshotError as error:
        raise SnapshotError([replace(issue, path=f"{path}: {issue.path}") for issue in error.issues]) from error


def decode_trace(data: bytes) -> Trace:
    """Decode a trace, plain or gzip-compressed, into canonical form.

    A trace is made for a replay, so nothing in it is let through with a rejection: a job that asks for what does not exist
    refuses the document. Contradictions are looked for once every field can be read.

    Raises
    ------
    SnapshotError
        With every issue of the document, not the first.
    """
    data = plain(data)
    try:
        with collector_paused():
            return _to_domain(_read(data))
    except RecursionError as error:
        refuse_syntax(data, error)


def is_trace(data: bytes) -> bool:
    """Whether a document that may be a snapshot is a trace: only traces have jobs. What is no JSON is neither."""
    try:
        return msgspec.json.decode(plain(data), type=_Kind).jobs is not msgspec.UNSET
    except msgspec.MsgspecError:
        return False


def encode_trace(trace: Trace) -> bytes:
    """The trace as one line of canonical JSON: the same trace gives the same bytes, in whatever order its lists came.

    Raises
    ------
    SnapshotError
        If a trace that was not decoded but built holds a value that the format does not allow.
    """
    with collector_paused():
        return msgspec.json.encode(_document(canonical_trace(trace)), order="deterministic") + b"\n"


def canonical_trace(trace: Trace) -> Trace:
    """The same trace with its lists in canonical order: jobs by submission, then id."""
    return replace(
        trace,
        cluster=replace(trace.cluster, nodes=tuple(sorted(trace.cluster.nodes, key=lambda node: node.name))),
        budgets=tuple(sorted(trace.budgets, key=lambda vertex: vertex.id)),
        jobs=tuple(sorted(trace.jobs, key=lambda job: (job.workload.submit_time, job.workload.id))),
        usage=tuple(sorted(trace.usage, key=lambda one: (one.start, one.end, one.id or "", one.allocation, one.pool))),
        outages=tuple(sorted(trace.outages, key=lambda outage: (outage.start, outage.node, outage.end))),
        maintenance=tuple(sorted(trace.maintenance, key=lambda work: (work.announced, work.node, work.deadline or work.end))),
        revisions=tuple(
            replace(revision, budgets=tuple(sorted(revision.budgets, key=lambda vertex: vertex.id)))
            for revision in sorted(trace.revisions, key=lambda revision: revision.at)
        ),
    )


def _read(data: bytes) -> TraceDoc:
    """The document, or every issue of it."""
    try:
        doc = _DECODER.decode(data)
    except msgspec.ValidationError as error:
        issues = problems(loads(data), TraceDoc, "$")
        raise SnapshotError(issues) from error
    except msgspec.DecodeError as error:
        refuse_syntax(data, error)
    if issues := trace_issues(doc):
        raise SnapshotError(issues)
    return doc


def _to_domain(doc: TraceDoc) -> Trace:
    for job in doc.jobs:
        settle(job.workload)
    trace: Trace = msgspec.convert(doc, Trace, from_attributes=True, dec_hook=exact_fraction)
    return canonical_trace(trace)


def _document(trace: Trace) -> TraceDoc:
    jobs: list[JobDoc] = to_wire(trace.jobs, list[JobDoc], "$.jobs")
    for job in jobs:
        without_empty_wish(job.workload)
    return TraceDoc(
        version=1,
        name=trace.name,
        start=trace.start,
        end=trace.end,
        cluster=cluster_doc(trace.cluster),
        budgets=[allocation_doc(vertex) for vertex in trace.budgets],
        usage=to_wire(trace.usage, tuple[UsageDoc, ...], "$.usage"),
        outages=to_wire(trace.outages, tuple[OutageDoc, ...], "$.outages"),
        maintenance=to_wire(trace.maintenance, tuple[MaintenanceDoc, ...], "$.maintenance"),
        revisions=tuple(_revision(revision) for revision in trace.revisions),
        policy=policy_doc(trace.policy),
        notes=trace.notes,
        jobs=jobs,
    )


def _revision(revision: Revision) -> RevisionDoc:
    budgets = [allocation_doc(vertex) for vertex in revision.budgets]
    return RevisionDoc(at=revision.at, budgets=budgets, author=revision.author, reason=revision.reason)
