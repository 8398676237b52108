"""The decision of one epoch, row by row as it goes over the wire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from allocator.domain.snapshot import Reservation


class StopReason(StrEnum):
    """Why a running workload is stopped."""

    SHARE = "share"
    EXPRESS = "express"
    RESERVATION = "reservation"
    RELOCATE = "relocate"
    DRAIN = "drain"
    NODE_DOWN = "node_down"


class Reason(StrEnum):
    """Why a workload waits."""

    INVALID_REQUEST = "invalid_request"
    TOPOLOGY_IMPOSSIBLE = "topology_impossible"
    UNFUNDED = "unfunded"
    OVER_ENTITLEMENT = "over_entitlement"
    OVER_LIMIT = "over_limit"
    BLOCKED_BY_PROTECTION = "blocked_by_protection"
    NO_CAPACITY = "no_capacity"
    RESERVED_FOR_OTHER = "reserved_for_other"
    POOL_DOWN = "pool_down"
    SEARCH_TRUNCATED = "search_truncated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """`placement` maps node names to tasks. `protected_until` is None for an uncharged start."""

    workload: str
    placement: Mapping[str, int]
    charged: bool
    protected_until: int | None
    express: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    """A stop, for whose sake, and what it throws away (`lost_gpu_seconds` without restart time)."""

    workload: str
    reason: StopReason
    beneficiaries: tuple[str, ...]
    lost_gpu_seconds: int
    stop_by: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewal:
    """Another min runtime for a lease."""

    workload: str
    protected_until: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion:
    """Uncharged work that becomes charged and protected in place."""

    workload: str
    protected_until: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainRow:
    """A draining node: whether it is empty, when it will be, and whose promises it waits for."""

    node: str
    drained: bool
    free_at: int | None
    waits_for: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingRow:
    """Why a workload waits. `not_before`: a lower bound on its start if no work ends by itself; None: nothing can be said."""

    workload: str
    reason: Reason
    not_before: int | None
    never: bool
    detail: str
    blockers: tuple[str, ...] = ()
    eta: int | None = None
    entitled_since: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lapse:
    """A lease that ends soon."""

    workload: str
    at: int
    renewable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenContract:
    """A promise that was broken by a dead node or a passed deadline (`cause`: node_down, drain_deadline)."""

    workload: str
    promised: int
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationRow:
    """One vertex in one pool. `entitled_milli` is in 1/1000 GPU; the wire shows GPUs. `share` is the product along the path."""

    id: str
    pool: str
    share: float
    budget_gpu_seconds: int | None
    usage_gpu_seconds: int
    entitled_milli: int
    gpus_before: int
    gpus_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverReport:
    """Which rung answered and what it proved.

    `objective`, `bound` and `terms` are in 1/1000 GPU-second; the wire shows GPU-seconds. `bound` is None where nothing
    was proven. `gap` is (objective - bound) / (planning step x schedulable GPUs). `notes` report engines that crashed,
    overran or were overruled.
    """

    rung: str
    engine: str
    status: str
    objective: int
    bound: int | None
    gap: float | None
    terms: Mapping[str, int]
    seed: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What one epoch decides. Everything but `timing` (seconds by step) is a pure function of snapshot, policy and seed."""

    now: int
    snapshot: str
    solver: SolverReport
    starts: tuple[Start, ...] = ()
    preemptions: tuple[Preemption, ...] = ()
    renewals: tuple[Renewal, ...] = ()
    promotions: tuple[Promotion, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    drains: tuple[DrainRow, ...] = ()
    waiting: tuple[WaitingRow, ...] = ()
    lapsing: tuple[Lapse, ...] = ()
    contract_broken: tuple[BrokenContract, ...] = ()
    allocations: tuple[AllocationRow, ...] = ()
    warnings: tuple[str, ...] = ()
    timing: Mapping[str, float] = field(default_factory=dict)
