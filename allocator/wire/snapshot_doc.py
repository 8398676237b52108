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
    Now,
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

    name: Annotated[Name, Meta(description="told apart by it")]
    pool: Annotated[Name, Meta(description="GPU type; a pool is a fair-share market of its own")]
    gpus: Annotated[NodeGpus, Meta(description="installed GPUs")]
    domains: Annotated[tuple[Name, ...], Meta(description="one domain per level above the node, coarse to fine")]
    cpus: Annotated[NodeAmount | None, Meta(description="absent: not limited")] = None
    memory_gib: Annotated[NodeAmount | None, Meta(description="absent: not limited")] = None
    labels: Annotated[dict[Name, str], Meta(description="what work may ask for in node_labels")] = {}
    state: Annotated[NodeState, Meta(description="drain: nothing starts, unprotected work leaves; down: dead")] = NodeState.UP
    drain_deadline: Annotated[Instant | None, Meta(description="promises on this node end here")] = None
    reason: Annotated[str | None, Meta(description="free text, for people")] = None


class ClusterDoc(Doc, kw_only=True):
    """The nodes and the levels of the topology tree."""

    levels: Annotated[tuple[Name, ...], Meta(min_length=1, description="coarse to fine; the last is the node")]
    slowdown: Annotated[dict[Name, Part], Meta(description="share of speed lost per further domain of a level")] = {}
    nodes: Annotated[list[NodeDoc], Meta(description="all nodes of all pools")]


class AllocationDoc(Doc, kw_only=True):
    """A vertex of the budget tree: program, project or researcher."""

    id: Annotated[Name, Meta(description="stable: history belongs to it")]
    parent: Annotated[Name | None, Meta(description="id of the parent, null at the top")]
    name: Annotated[str | None, Meta(description="for people; may change")] = None
    share: Annotated[Number, Meta(description="relative to the siblings")]
    share_by_pool: Annotated[dict[Name, Number], Meta(description="overrides share in single pools")] = {}
    funds: Annotated[bool, Meta(description="false: orders work but holds no budget of its own")] = True
    gpu_limit: Annotated[Count | None, Meta(description="most GPUs held at once, charged or not")] = None
    interactive_limit: Annotated[Count | None, Meta(description="most GPUs held by renewed leases")] = None


class UsageDoc(Doc, kw_only=True):
    """GPU time of work that has ended. Records with one id count the union of their intervals."""

    id: Annotated[Name | None, Meta(description="counts once however often it is sent; absent: records add up")] = None
    allocation: Annotated[Name, Meta(description="id of a leaf of the budget tree")]
    pool: Name
    gpus: Annotated[Count, Meta(description="GPUs it held")]
    start: Instant
    end: Instant
    charged: Annotated[bool, Meta(description="false: it ran free of charge")] = True


class SegmentDoc(Doc, kw_only=True):
    """Every domain of the level holds a multiple of `tasks` tasks, but for one remainder."""

    level: Annotated[Name, Meta(description="level of the domains, for example nvlink")]
    tasks: Annotated[PositiveCount, Meta(description="tasks that lie in one domain together")]


class TopologyDoc(Doc, kw_only=True):
    """What a gang asks of the topology."""

    required: Annotated[Name | None, Meta(description="level: all tasks inside one domain of it")] = None
    preferred: Annotated[Name | None, Meta(description="level: costs more when it is missed")] = None
    segment: Annotated[SegmentDoc | None, Meta(description="so many tasks to a domain, in as many domains as it takes")] = None


class StopDoc(Doc, kw_only=True):
    """The last stop by a decision."""

    at: Instant
    pool: Name
    gpus: Count
    charged: bool
    placement: Annotated[dict[Name, PositiveCount] | None, Meta(description="tasks per node it was stopped on")] = None
    express: Annotated[bool, Meta(description="it held GPUs of the express lane and was stopped by choice")] = False
    begun: Annotated[bool, Meta(description="false: it was ordered for later and had not begun")] = True


class RunDoc(Doc, kw_only=True):
    """Where and since when a workload runs."""

    start_time: Annotated[Instant | None, Meta(description="absent: protected from now on")] = None
    placement: Annotated[dict[Name, PositiveCount], Meta(min_length=1, description="tasks per node")]
    charged: Annotated[bool, Meta(description="whether its time counts against budgets")]
    charged_since: Annotated[Instant | None, Meta(description="after a promotion; absent: since the start")] = None
    granted_at: Annotated[Instant | None, Meta(description="when the promise was made")] = None
    protected_until: Annotated[Instant | None, Meta(description="end of the promise")] = None
    express: Annotated[bool, Meta(description="it holds GPUs of the express lane")] = False
    last_checkpoint: Annotated[Instant | None, Meta(description="if known; absent: by its checkpoint_interval")] = None
    terminating_until: Annotated[Instant | None, Meta(description="it has been told to stop and leaves by then")] = None


class WorkloadDoc(Doc, kw_only=True, rename={"job_class": "class"}):
    """A gang of `tasks` x `gpus_per_task`, all or nothing, in one pool. Without `run` it waits."""

    id: Annotated[Name, Meta(description="told apart by it")]
    allocation: Annotated[Name, Meta(description="id of a leaf of the budget tree")]
    user: Annotated[Name | None, Meta(description="needed for the express lane")] = None
    job_class: Annotated[str | None, Meta(description="free text, for reports")] = None
    submit_time: Annotated[Instant, Meta(description="of the first submission; a stop does not change it")]
    tasks: Annotated[PositiveCount, Meta(description="all of them run, or none")]
    gpus_per_task: Annotated[PositiveCount, Meta(description="a task lies on one node")]
    cpus_per_task: Annotated[NodeAmount | None, Meta(description="absent: not counted")] = None
    memory_gib_per_task: Annotated[NodeAmount | None, Meta(description="absent: not counted")] = None
    pools: Annotated[tuple[Name, ...], Meta(description="accepted pools, best first; absent: any")] = ()
    topology: Annotated[TopologyDoc | None, Meta(description="what it asks of the topology")] = None
    node_labels: Annotated[dict[Name, str], Meta(description="labels that each of its nodes carries")] = {}
    exclude_nodes: Annotated[tuple[Name, ...], Meta(description="nodes that it is not to run on")] = ()
    min_runtime: Annotated[Span, Meta(description="shortest useful run, in seconds; 0: free of charge and not protected")]
    resumable: Annotated[bool, Meta(description="false: a stop throws away all since its start")]
    checkpoint_interval: Annotated[
        PositiveSpan | None, Meta(description="a stop throws away what came after the last; absent: none")
    ] = None
    checkpoint_on_notice: Annotated[bool, Meta(description="it saves its work when it is told to stop")] = False
    restart_time: Annotated[Span, Meta(description="seconds until it makes progress again after a stop")] = 300
    unfunded: Annotated[Unfunded, Meta(description="if no budget pays: run free of charge, or wait")] = Unfunded.RUN
    renew: Annotated[bool, Meta(description="a lease: to be renewed when its promise lapses")] = False
    priority: Annotated[Priority, Meta(description="order inside the allocation, higher first")] = 0
    max_runtime: Annotated[PositiveSpan | None, Meta(description="seconds after which it ends by itself")] = None
    preempted: Annotated[int, Meta(description="how often a decision has stopped it", ge=0, le=1_000_000)] = 0
    entitled_since: Annotated[Instant | None, Meta(description="as the last decision gave it: the mark of a large gang")] = None
    stopped: Annotated[StopDoc | None, Meta(description="its last stop by a decision")] = None
    run: Annotated[RunDoc | None, Meta(description="absent: it waits")] = None


class ReservationDoc(FullDoc, kw_only=True):
    """Nodes of a domain that are kept for a gang from `start` on."""

    workload: Name
    pool: Name
    domain: Annotated[tuple[Name, ...], Meta(description="its path; empty: the whole pool")]
    nodes: Annotated[Count, Meta(description="how many; which of them is decided when they are due")]
    start: Annotated[Instant, Meta(description="when they are due")]
    eligible_since: Annotated[Instant, Meta(description="since when it has been entitled")]
    bound: Annotated[Instant, Meta(description="it starts no later, dead nodes apart")]
    waits_for: Annotated[tuple[Name, ...], Meta(description="whose promises it waits for")] = ()


class ExpressDoc(FullDoc, kw_only=True):
    """The lane of short small work that is always funded."""

    gpus: Annotated[Count, Meta(description="most GPUs of one workload")] = 8
    min_runtime: Annotated[Span, Meta(description="longest min runtime, in seconds")] = 1_800
    pool_share: Annotated[Part, Meta(description="share of a pool that it may hold, 8 GPUs at least")] = 0.05
    per_user: Annotated[Count, Meta(description="most workloads of one user at a time")] = 2


class WeightsDoc(FullDoc, kw_only=True):
    """Multipliers of the objective."""

    unfairness: Annotated[Multiplier, Meta(description="deviation from what is owed")] = 2
    express: Annotated[Multiplier, Meta(description="express work that waits")] = 10
    idle: Annotated[Multiplier, Meta(description="GPUs that no task uses")] = 1
    lost_work: Annotated[Multiplier, Meta(description="work that stops throw away, and restarts")] = 1.5
    spread: Annotated[Multiplier, Meta(description="gangs that touch more domains than needed")] = 1
    fragmentation: Annotated[Multiplier, Meta(description="nodes and racks that are broken up")] = 0.01
    order: Annotated[Multiplier, Meta(description="who waits longer, inside an allocation")] = 0.001


class PolicyDoc(FullDoc, kw_only=True):
    """What an operator may tune; each field may be left out."""

    window: Annotated[PositiveSpan, Meta(description="seconds for which usage counts")] = 604_800
    horizon: Annotated[PositiveSpan, Meta(description="seconds over which shares are evened out")] = 14_400
    protection_cap: Annotated[Span, Meta(description="longest promise, in seconds")] = 28_800
    planning_step: Annotated[PositiveSpan, Meta(description="seconds that the objective looks ahead")] = 3_600
    half_life: Annotated[PositiveSpan | None, Meta(description="seconds in which usage fades by half; no window then")] = None
    notice: Annotated[Span, Meta(description="seconds from the order to stop until it must be gone")] = 120
    preempt_under_entitlement: Annotated[bool, Meta(description="true: no licence is needed to stop for shares")] = False
    max_preemptions: Annotated[Count | None, Meta(description="most stops of charged work at once; absent: no limit")] = None
    reserve_from: Annotated[Number, Meta(description="share of a pool from which on a gang counts as large")] = 0.25
    express: Annotated[ExpressDoc, Meta(description="the lane of short small work")] = field(default_factory=ExpressDoc)
    weights: Annotated[WeightsDoc, Meta(description="multipliers of the objective")] = field(default_factory=WeightsDoc)


class SnapshotDoc(FullDoc, kw_only=True):
    """The cluster, its budgets and its work at the instant `now`."""

    version: Literal[1]
    now: Now
    cluster: Annotated[ClusterDoc, Meta(description="nodes and topology")]
    budgets: Annotated[list[AllocationDoc], Meta(description="the budget tree")]
    usage: Annotated[list[UsageDoc], Meta(description="time of work that has ended")] = []
    workloads: Annotated[list[WorkloadDoc], Meta(description="all that runs or waits")]
    reservations: Annotated[list[ReservationDoc], Meta(description="as the last decision gave them")] = []
    policy: Annotated[PolicyDoc, Meta(description="what an operator may tune; absent: the defaults")] = field(
        default_factory=PolicyDoc
    )
