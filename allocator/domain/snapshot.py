"""The snapshot of one epoch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import islice
from operator import attrgetter, le
from typing import Any, TypeVar

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

    def canonical(self, like: Snapshot | None = None) -> Snapshot:
        """The same snapshot with its lists in canonical order, so that no decision depends on the order they came in.

        The snapshot itself if it stands in that order. `like` is another canonical snapshot, if there is one: the lists that
        this one has too are not looked at.
        """
        known = None if like is None else (like.cluster.nodes, like.budgets)
        nodes, budgets = self.cluster.nodes, self.budgets
        if known is None or known[0] is not nodes:
            nodes = _sorted(nodes, attrgetter("name"))
        if known is None or known[1] is not budgets:
            budgets = _sorted(budgets, attrgetter("id"))
        cluster = self.cluster if nodes is self.cluster.nodes else replace(self.cluster, nodes=nodes)
        parts: dict[str, Any] = {
            "cluster": cluster,
            "budgets": budgets,
            "workloads": _sorted(self.workloads, attrgetter("id")),
            "usage": _sorted(self.usage, _usage_key),
            "reservations": _sorted(self.reservations, attrgetter("workload")),
            "rejected": _sorted(self.rejected, attrgetter("workload")),
        }
        in_order = all(getattr(self, name) is part for name, part in parts.items())
        return self if in_order else replace(self, **parts)


Part = TypeVar("Part")


def _sorted(parts: tuple[Part, ...], key: Callable[[Part], Any]) -> tuple[Part, ...]:
    """The parts in order: the very same tuple if they stand in order."""
    if len(parts) < 2:
        return parts
    keys = list(map(key, parts))
    if all(map(le, keys, islice(keys, 1, None))):
        return parts
    return tuple(parts[at] for at in sorted(range(len(parts)), key=keys.__getitem__))


def _usage_key(record: UsageRecord) -> tuple[str, str, str, int, int, int, bool]:
    return (record.id or "", record.allocation, record.pool, record.start, record.end, record.gpus, record.charged)
