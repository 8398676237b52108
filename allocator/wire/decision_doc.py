"""The decision as it stands on the wire, version 1: field for field what the format says, in its order."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from allocator.domain import Reason, StopReason
from allocator.wire.scalars import Count, Instant, Name, PositiveCount
from allocator.wire.snapshot_doc import Doc, FullDoc, ReservationDoc

GpuSeconds = Annotated[float, Meta(description="GPU-seconds")]
WholeGpuSeconds = Annotated[int, Meta(ge=0, description="GPU-seconds")]


class StartDoc(Doc, kw_only=True):
    """A workload starts, on exactly these nodes."""

    workload: Name
    placement: Annotated[dict[Name, PositiveCount], Meta(min_length=1, description="tasks per node")]
    charged: Annotated[bool, Meta(description="false: free of charge, and never protected")]
    protected_until: Annotated[Instant | None, Meta(description="null where the start is free of charge")]
    express: Annotated[bool, Meta(description="in the express lane")] = False


class PreemptionDoc(Doc, kw_only=True):
    """A running workload stops, and for whose sake."""

    workload: Name
    reason: Annotated[StopReason, Meta(description="why")]
    beneficiaries: Annotated[
        tuple[Name, ...], Meta(description="the starts that need its place; empty for drains and dead nodes")
    ]
    lost_gpu_seconds: Annotated[int, Meta(ge=0, description="work thrown away, without the restart")]
    stop_by: Annotated[Instant, Meta(description="it must be gone by then")]


class PromiseDoc(Doc, kw_only=True):
    """A promise to a workload that runs already: a renewed lease, or work that becomes charged in place."""

    workload: Name
    protected_until: Instant


class DrainDoc(Doc, kw_only=True):
    """A draining node: whether it is empty, when it will be, and whose promises it waits for."""

    node: Name
    drained: Annotated[bool, Meta(description="true: maintenance may begin")]
    free_at: Annotated[Instant | None, Meta(description="null where nothing can be said")]
    waits_for: Annotated[tuple[Name, ...], Meta(description="whose promises it waits for")]


class WaitingDoc(Doc, kw_only=True):
    """Why a workload waits, and until when."""

    workload: Name
    reason: Annotated[Reason, Meta(description="the code")]
    not_before: Annotated[
        Instant | None, Meta(description="no start before, if no work ends by itself; null: nothing can be said")
    ]
    never: Annotated[bool, Meta(description="cannot start as it is")]
    eta: Annotated[Instant | None, Meta(description="forecast: when it becomes entitled if things go on as they are")] = None
    entitled_since: Annotated[Instant | None, Meta(description="to be handed back: the mark of a large gang")] = None
    blockers: Annotated[tuple[Name, ...], Meta(description="who is in the way")]
    detail: Annotated[str, Meta(description="the reason in a sentence")]


class LapseDoc(Doc, kw_only=True):
    """A lease that ends soon."""

    workload: Name
    at: Instant
    renewable: bool


class BrokenDoc(Doc, kw_only=True):
    """A promise that was broken."""

    workload: Name
    promised: Annotated[Instant, Meta(description="the end of the promise")]
    cause: Literal["node_down", "drain_deadline"]


class AllocationRowDoc(Doc, kw_only=True):
    """One vertex of the budget tree in one pool."""

    id: Name
    pool: Name
    share: Annotated[float, Meta(description="product of the normalised shares along the path")]
    budget_gpu_seconds: Annotated[int | None, Meta(description="null where the vertex does not fund")]
    usage_gpu_seconds: WholeGpuSeconds
    entitled_gpus: Annotated[float, Meta(description="what it is owed now, promises considered")]
    gpus_before: Annotated[Count, Meta(description="all it held, charged or not")]
    gpus_after: Annotated[Count, Meta(description="all it holds once this is carried out")]


class SolverDoc(Doc, kw_only=True):
    """Which rung answered, and what it proved."""

    rung: Annotated[Literal["exact", "greedy", "keep"], Meta(description="which kind of answer this is")]
    engine: Annotated[Name, Meta(description="who found it")]
    status: Annotated[Name, Meta(description="optimal: nothing better exists; feasible: not proven")]
    objective: GpuSeconds
    bound: Annotated[float | None, Meta(description="GPU-seconds; null where nothing was proven")]
    gap: Annotated[float | None, Meta(description="(objective - bound) / (planning step x schedulable GPUs)")]
    terms: Annotated[dict[Name, float], Meta(description="parts of the objective in GPU-seconds")]
    seed: int
    notes: Annotated[tuple[str, ...], Meta(description="engines that crashed, overran or were overruled")] = ()


class TimingDoc(FullDoc, kw_only=True):
    """How long it took. The only part of a decision that differs between runs."""

    total_seconds: float
    steps: Annotated[dict[str, float], Meta(description="seconds by step")]


class DecisionDoc(Doc, kw_only=True):
    """What one epoch decides."""

    version: Literal[1]
    now: Instant
    snapshot: Annotated[str, Meta(description="digest of the snapshot it was made for, sha256:...")]
    starts: Annotated[list[StartDoc], Meta(description="to be started, after the stops")]
    preemptions: Annotated[list[PreemptionDoc], Meta(description="to be stopped")]
    renewals: Annotated[list[PromiseDoc], Meta(description="leases that are promised more time")]
    promotions: Annotated[list[PromiseDoc], Meta(description="what runs free of charge and becomes charged in place")]
    reservations: list[ReservationDoc]
    drains: Annotated[list[DrainDoc], Meta(description="nodes that are being taken out of service")]
    waiting: Annotated[list[WaitingDoc], Meta(description="all that waits, and why")]
    lapsing: Annotated[list[LapseDoc], Meta(description="leases that end soon")]
    contract_broken: Annotated[list[BrokenDoc], Meta(description="promises broken by dead nodes or passed deadlines")]
    allocations: Annotated[list[AllocationRowDoc], Meta(description="what everybody has and is owed, by pool")]
    warnings: Annotated[tuple[str, ...], Meta(description="for people")] = ()
    solver: SolverDoc
    timing: TimingDoc
