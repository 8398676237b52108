"""The snapshot of one epoch."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from allocator.domain.budgets import Allocation, UsageRecord
from allocator.domain.cluster import Cluster
from allocator.domain.policy import Policy
from allocator.domain.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """`nodes` nodes of `domain` (its path; empty: the whole pool) kept for a gang from `start` on."""

    workload: str
    pool: str
    domain: tuple[str, ...]
    nodes: int
    start: int
    eligible_since: int
    bound: int
    waits_for: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """A waiting workload that asks for nothing that exists: it is reported in `waiting` and takes no further part.

    `raw` is its JSON text as it came, keys sorted, so that the next snapshot still has it.
    """

    workload: str
    reason: str
    detail: str
    raw: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The cluster, its budgets and its work at the instant `now`."""

    now: int
    cluster: Cluster
    budgets: tuple[Allocation, ...]
    workloads: tuple[Workload, ...]
    usage: tuple[UsageRecord, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    policy: Policy = field(default_factory=Policy)
    rejected: tuple[Rejection, ...] = ()

    def canonical(self) -> Snapshot:
        """The same snapshot with its lists in canonical order, so that no decision depends on the order they came in."""
        return replace(
            self,
            cluster=replace(self.cluster, nodes=tuple(sorted(self.cluster.nodes, key=lambda node: node.name))),
            budgets=tuple(sorted(self.budgets, key=lambda vertex: vertex.id)),
            workloads=tuple(sorted(self.workloads, key=lambda work: work.id)),
            usage=tuple(sorted(self.usage, key=_usage_key)),
            reservations=tuple(sorted(self.reservations, key=lambda reservation: reservation.workload)),
            rejected=tuple(sorted(self.rejected, key=lambda rejection: rejection.workload)),
        )


def _usage_key(record: UsageRecord) -> tuple[str, str, str, int, int, int, bool]:
    return (record.id or "", record.allocation, record.pool, record.start, record.end, record.gpus, record.charged)
