"""Snapshots in few words: one level of domains above the node, one pool `p`, unless a test says otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from allocator.domain import Allocation, Cluster, Node, NodeState, Policy, Run, Snapshot, UsageRecord, Workload

NOW = 1_764_430_000
HOUR = 3600


def node(name: str, gpus: int = 8, pool: str = "p", **fields: Any) -> Node:
    stated: dict[str, Any] = {"name": name, "pool": pool, "gpus": gpus, "domains": ("c",)}
    return Node(**stated | fields)


def drained(name: str, deadline: int | None = None, **fields: Any) -> Node:
    return node(name, state=NodeState.DRAIN, drain_deadline=deadline, **fields)


def allocation(key: str, share: int = 1, parent: str | None = None, **fields: Any) -> Allocation:
    return Allocation(id=key, parent=parent, share=Fraction(share), **fields)


def work(key: str, leaf: str = "A", gpus: int = 1, min_runtime: int = HOUR, **fields: Any) -> Workload:
    """One task of so many GPUs, or 8-GPU tasks."""
    tasks, per_task = (1, gpus) if gpus <= 8 else (gpus // 8, 8)
    stated: dict[str, Any] = {"id": key, "allocation": leaf, "submit_time": NOW - HOUR, "resumable": True}
    asked: dict[str, Any] = {"tasks": tasks, "gpus_per_task": per_task, "min_runtime": min_runtime}
    return Workload(**stated | asked | fields)


def running(key: str, where: str, since: int | None = HOUR, charged: bool = True, **fields: Any) -> Workload:
    """Work that has run on one node for so many seconds (None: it is not known since when)."""
    run = {name: fields.pop(name) for name in list(fields) if name in Run.__dataclass_fields__}
    start = None if since is None else NOW - since
    return work(key, **fields, run=Run(placement={where: 1}, charged=charged, start_time=start, **run))


def snapshot(
    nodes: Sequence[Node],
    budgets: Sequence[Allocation],
    works: Sequence[Workload],
    usage: Sequence[UsageRecord] = (),
    policy: Policy | None = None,
    levels: tuple[str, ...] = ("cluster", "node"),
    slowdown: dict[str, Fraction] | None = None,
) -> Snapshot:
    cluster = Cluster(levels=levels, nodes=tuple(nodes), slowdown=slowdown or {})
    return Snapshot(
        now=NOW, cluster=cluster, budgets=tuple(budgets), workloads=tuple(works), usage=tuple(usage), policy=policy or Policy()
    ).canonical()
