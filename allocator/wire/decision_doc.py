"""The decision as it stands on the wire, version 1: field for field what the format says, in its order."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from allocator.domain import Reason, StopReason
from allocator.wire.scalars import Count, Instant, Name
from allocator.wire.snapshot_doc import Doc, FullDoc, ReservationDoc

GpuSeconds = Annotated[float, Meta(description="GPU-seconds")]
WholeGpuSeconds = Annotated[int, Meta(ge=0, description="GPU-seconds")]


class StartDoc(Doc, kw_only=True):
    """A workload starts, on exactly these nodes."""

    workload: Name
    placement: Annotated[dict[Name, Annotated[int, Meta(ge=1)]], Meta(min_length=1, description="tasks per node")]
    charged: bool
    protected_until: Annotated[Instant | None, Meta(description="null where the start is free of charge")]
    express: bool = False


class PreemptionDoc(Doc, kw_only=True):
    """A running workload stops, and for whose sake."""

    workload: Name
    reason: StopReason
    beneficiaries: tuple[Name, ...]
    lost_gpu_seconds: Annotated[int, Meta(ge=0, description="work thrown away, without the restart")]
    stop_by: Instant


class PromiseDoc(Doc, kw_only=True):
    """A promise to a workload that runs already: a renewed lease, or work that becomes charged in place."""

    workload: Name
    protected_until: Instant


class DrainDoc(Doc, kw_only=True):
    """A draining node: whether it is empty, when it will be, and whose promises it waits for."""

    node: Name
    drained: bool
    free_at: Annotated[Instant | None, Meta(description="null where nothing can be said")]
    waits_for: tuple[Name, ...]


class WaitingDoc(Doc, kw_only=True):
    """Why a workload waits, and until when."""

    workload: Name
    reason: Reason
    not_before: Annotated[
        Instant | None, Meta(description="no start before, if no work ends by itself; null: nothing can be said")
    ]
    never: Annotated[bool, Meta(description="cannot start as it is")]
    eta: Annotated[Instant | None, Meta(description="forecast: when it becomes entitled if things go on as they are")] = None
    entitled_since: Instant | None = None
    blockers: tuple[Name, ...]
    detail: str


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
    entitled_gpus: float
    gpus_before: Count
    gpus_after: Count


class SolverDoc(Doc, kw_only=True):
    """Which rung answered, and what it proved."""

    rung: Literal["exact", "greedy", "keep"]
    engine: Name
    status: Name
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
    starts: list[StartDoc]
    preemptions: list[PreemptionDoc]
    renewals: list[PromiseDoc]
    promotions: list[PromiseDoc]
    reservations: list[ReservationDoc]
    drains: list[DrainDoc]
    waiting: list[WaitingDoc]
    lapsing: list[LapseDoc]
    contract_broken: list[BrokenDoc]
    allocations: list[AllocationRowDoc]
    warnings: tuple[str, ...] = ()
    solver: SolverDoc
    timing: TimingDoc
