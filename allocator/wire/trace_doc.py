"""The trace as it stands on the wire, version 1: its parts are those of the snapshot, so that a job reads like a workload."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from allocator.wire.scalars import Instant, Name, PositiveSpan, Span
from allocator.wire.snapshot_doc import AllocationDoc, ClusterDoc, Doc, FullDoc, PolicyDoc, UsageDoc, WorkloadDoc


class JobDoc(Doc, kw_only=True):
    """A workload as it is submitted, and what only its future knows."""

    workload: Annotated[WorkloadDoc, Meta(description="what the user declares; without a run")]
    work: Annotated[PositiveSpan, Meta(description="seconds of work at full speed")]
    checkpoint_cost: Annotated[Span, Meta(description="seconds that each checkpoint takes")] = 0
    fails_after: Annotated[PositiveSpan | None, Meta(description="work after which it dies by itself; absent: never")] = None
    failing_resumes: Annotated[int, Meta(description="resumes that fail before one succeeds", ge=0, le=1_000)] = 0
    after: Annotated[Name | None, Meta(description="id of the job that has to end first")] = None
    idle: Annotated[Span, Meta(description="seconds that it keeps its GPUs unused after its work, where it may")] = 0


class OutageDoc(Doc, kw_only=True):
    """A node is down from `start` until `end`."""

    node: Annotated[Name, Meta(description="its name")]
    start: Instant
    end: Instant
    reason: Annotated[str | None, Meta(description="free text, for people")] = None


class MaintenanceDoc(Doc, kw_only=True):
    """A node is wanted empty from `deadline` until `end`."""

    node: Annotated[Name, Meta(description="its name")]
    announced: Annotated[Instant, Meta(description="when the dispatcher hears of it")]
    deadline: Annotated[Instant | None, Meta(description="promises on the node end here; absent: nobody is hurried")] = None
    end: Annotated[Instant, Meta(description="when the node is back")]
    drain: Annotated[bool, Meta(description="false: what ends in time may still start there")] = True
    reason: Annotated[str | None, Meta(description="free text, for people")] = None


class RevisionDoc(Doc, kw_only=True):
    """The whole budget tree that holds from `at` on."""

    at: Instant
    budgets: Annotated[list[AllocationDoc], Meta(description="the tree, complete")]
    author: Annotated[str | None, Meta(description="for people")] = None
    reason: Annotated[str | None, Meta(description="for people")] = None


class TraceDoc(FullDoc, kw_only=True):
    """A cluster, its budgets and all that happens to them from `start` until `end`."""

    version: Literal[1]
    name: Annotated[Name, Meta(description="for reports")]
    start: Instant
    end: Instant
    cluster: Annotated[ClusterDoc, Meta(description="nodes and topology")]
    budgets: Annotated[list[AllocationDoc], Meta(description="the budget tree at `start`")]
    usage: Annotated[tuple[UsageDoc, ...], Meta(description="time of work that ended before `start`")] = ()
    outages: Annotated[tuple[OutageDoc, ...], Meta(description="when nodes are down")] = ()
    maintenance: Annotated[tuple[MaintenanceDoc, ...], Meta(description="when nodes are wanted empty")] = ()
    revisions: Annotated[tuple[RevisionDoc, ...], Meta(description="later budget trees")] = ()
    policy: Annotated[PolicyDoc, Meta(description="what an operator may tune; absent: the defaults")] = field(
        default_factory=PolicyDoc
    )
    notes: Annotated[tuple[str, ...], Meta(description="where it comes from and what was left out, for people")] = ()
    jobs: Annotated[list[JobDoc], Meta(description="in order of submission, then id")]
