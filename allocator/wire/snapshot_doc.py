"""The snapshot as it stands on the wire, version 1: field for field what the format says, in its order."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from allocator.domain import NodeState, Unfunded
from allocator.wire.scalars import (
    Count,
    Instant,
    Multiplier,
    Name,
    NodeAmount,
    NodeGpus,
    Number,
    Part,
    PositiveCount,
    PositiveSpan,
    Priority,
    Span,
)


class Doc(Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """Base of every object of both documents: unknown fields are errors, defaults are not written."""


class FullDoc(Doc, omit_defaults=False):
    """An object that is written with every field, defaults included."""


class NodeDoc(Doc, kw_only=True):
    """One schedulable host."""

    name: Name
    pool: Annotated[Name, Meta(description="GPU type; a pool is a fair-share market of its own")]
    gpus: NodeGpus
    domains: Annotated[tuple[Name, ...], Meta(description="one domain per level above the node, coarse to fine")]
    cpus: Annotated[NodeAmount | None, Meta(description="absent: not limited")] = None
    memory_gib: Annotated[NodeAmount | None, Meta(description="absent: not limited")] = None
    labels: dict[Name, str] = {}
    state: NodeState = NodeState.UP
    drain_deadline: Annotated[Instant | None, Meta(description="promises on this node end here")] = None
    reason: str | None = None


class ClusterDoc(Doc, kw_only=True):
    """The nodes and the levels of the topology tree."""

    levels: Annotated[tuple[Name, ...], Meta(min_length=1, description="coarse to fine; the last is the node")]
    slowdown: Annotated[dict[Name, Part], Meta(description="share of speed lost per further domain of a level")] = {}
    nodes: list[NodeDoc]


class AllocationDoc(Doc, kw_only=True):
    """A vertex of the budget tree: program, project or researcher."""

    id: Name
    parent: Annotated[Name | None, Meta(description="id of the parent, null at the top")]
    name: str | None = None
    share: Annotated[Number, Meta(description="relative to the siblings")]
    share_by_pool: Annotated[dict[Name, Number], Meta(description="overrides share in single pools")] = {}
    funds: Annotated[bool, Meta(description="false: orders work but holds no budget of its own")] = True
    gpu_limit: Annotated[Count | None, Meta(description="most GPUs held at once, charged or not")] = None
    interactive_limit: Annotated[Count | None, Meta(description="most GPUs held by renewed leases")] = None


class UsageDoc(Doc, kw_only=True):
    """GPU time of work that has ended. Records with one id count the union of their intervals."""

    id: Name | None = None
    allocation: Name
    pool: Name
    gpus: Count
    start: Instant
    end: Instant
    charged: bool = True


class SegmentDoc(Doc, kw_only=True):
    """Every domain of the level holds a multiple of `tasks` tasks, but for one remainder."""

    level: Name
    tasks: PositiveCount


class TopologyDoc(Doc, kw_only=True):
    """What a gang asks of the topology."""

    required: Annotated[Name | None, Meta(description="level: all tasks inside one domain of it")] = None
    preferred: Annotated[Name | None, Meta(description="level: costs more when it is missed")] = None
    segment: SegmentDoc | None = None


class StopDoc(Doc, kw_only=True):
    """The last stop by a decision."""

    at: Instant
    pool: Name
    gpus: Count
    charged: bool
    placement: Annotated[dict[Name, PositiveCount] | None, Meta(description="tasks per node it was stopped on")] = None
    express: Annotated[bool, Meta(description="it held GPUs of the express lane and was stopped by choice")] = False


class RunDoc(Doc, kw_only=True):
    """Where and since when a workload runs."""

    start_time: Annotated[Instant | None, Meta(description="absent: protected from now on")] = None
    placement: Annotated[dict[Name, PositiveCount], Meta(min_length=1, description="tasks per node")]
    charged: bool
    charged_since: Instant | None = None
    granted_at: Instant | None = None
    protected_until: Instant | None = None
    express: bool = False
    last_checkpoint: Instant | None = None
    terminating_until: Instant | None = None


class WorkloadDoc(Doc, kw_only=True, rename={"job_class": "class"}):
    """A gang of `tasks` x `gpus_per_task`, all or nothing, in one pool. Without `run` it waits."""

    id: Name
    allocation: Annotated[Name, Meta(description="id of a leaf of the budget tree")]
    user: Name | None = None
    job_class: Annotated[str | None, Meta(description="free text, for reports")] = None
    submit_time: Instant
    tasks: PositiveCount
    gpus_per_task: PositiveCount
    cpus_per_task: NodeAmount | None = None
    memory_gib_per_task: NodeAmount | None = None
    pools: Annotated[tuple[Name, ...], Meta(description="accepted pools, best first; absent: any")] = ()
    topology: TopologyDoc | None = None
    node_labels: dict[Name, str] = {}
    exclude_nodes: tuple[Name, ...] = ()
    min_runtime: Annotated[Span, Meta(description="shortest useful run, in seconds; 0: free of charge and never protected")]
    resumable: bool
    checkpoint_interval: PositiveSpan | None = None
    checkpoint_on_notice: bool = False
    restart_time: Span = 300
    unfunded: Unfunded = Unfunded.RUN
    renew: bool = False
    priority: Annotated[Priority, Meta(description="order inside the allocation, higher first")] = 0
    max_runtime: PositiveSpan | None = None
    preempted: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    entitled_since: Instant | None = None
    stopped: StopDoc | None = None
    run: RunDoc | None = None


class ReservationDoc(FullDoc, kw_only=True):
    """Nodes of a domain that are kept for a gang from `start` on."""

    workload: Name
    pool: Name
    domain: Annotated[tuple[Name, ...], Meta(description="its path; empty: the whole pool")]
    nodes: Count
    start: Instant
    eligible_since: Instant
    bound: Instant
    waits_for: tuple[Name, ...] = ()


class ExpressDoc(FullDoc, kw_only=True):
    """The lane of short small work that is always funded."""

    gpus: Count = 8
    min_runtime: Span = 1_800
    pool_share: Part = 0.05
    per_user: Count = 2


class WeightsDoc(FullDoc, kw_only=True):
    """Multipliers of the objective."""

    unfairness: Multiplier = 2
    express: Multiplier = 10
    idle: Multiplier = 1
    lost_work: Multiplier = 1.5
    spread: Multiplier = 1
    fragmentation: Multiplier = 0.01
    order: Multiplier = 0.001


class PolicyDoc(FullDoc, kw_only=True):
    """What an operator may tune; each field may be left out."""

    window: PositiveSpan = 604_800
    horizon: PositiveSpan = 14_400
    protection_cap: Span = 28_800
    planning_step: PositiveSpan = 3_600
    half_life: PositiveSpan | None = None
    notice: Span = 120
    preempt_under_entitlement: bool = False
    max_preemptions: Count | None = None
    reserve_from: Number = 0.25
    express: ExpressDoc = field(default_factory=ExpressDoc)
    weights: WeightsDoc = field(default_factory=WeightsDoc)


class SnapshotDoc(FullDoc, kw_only=True):
    """The cluster, its budgets and its work at the instant `now`."""

    version: Literal[1]
    now: Instant
    cluster: ClusterDoc
    budgets: list[AllocationDoc]
    usage: list[UsageDoc] = []
    workloads: list[WorkloadDoc]
    reservations: list[ReservationDoc] = []
    policy: PolicyDoc = field(default_factory=PolicyDoc)
