"""Back to JSON, canonically: keys in the order of the format, lists sorted, exact numbers as their shortest decimal text."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import msgspec
from msgspec import Raw

from allocator.domain import Allocation, Cluster, Issue, Policy, Snapshot, SnapshotError
from allocator.wire.snapshot_doc import (
    AllocationDoc,
    ClusterDoc,
    ExpressDoc,
    NodeDoc,
    PolicyDoc,
    ReservationDoc,
    SnapshotDoc,
    TopologyDoc,
    UsageDoc,
    WeightsDoc,
    WorkloadDoc,
)

_NO_WISH = TopologyDoc()


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """The snapshot as one line of canonical JSON; rejected workloads are in it as they came.

    Raises
    ------
    SnapshotError
        If a snapshot that was not decoded but built holds a value that the format does not allow.
    """
    return msgspec.json.encode(_document(snapshot.canonical()), order="deterministic") + b"\n"


def number(value: Fraction) -> float:
    """The JSON number of an exact fraction: an integer where it is one."""
    return value.numerator if value.denominator == 1 else float(value)


def to_wire(value: Any, kind: Any, path: str) -> Any:
    """Convert domain objects to wire objects of the same field names.

    Raises
    ------
    SnapshotError
        If a value is out of the range of the format.
    """
    try:
        return msgspec.convert(value, kind, from_attributes=True, dec_hook=_number)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        problem = Issue(path=path + where.rstrip("`"), problem=what, remedy="give a value that the schema allows")
        raise SnapshotError([problem]) from error


def _document(snapshot: Snapshot) -> SnapshotDoc:
    """The document; rejected workloads take their place among the others."""
    return SnapshotDoc(
        version=1,
        now=snapshot.now,
        cluster=cluster_doc(snapshot.cluster),
        budgets=[allocation_doc(vertex) for vertex in snapshot.budgets],
        usage=to_wire(snapshot.usage, list[UsageDoc], "$.usage"),
        workloads=_workloads(snapshot),  # type: ignore[arg-type]  # raw ones among them
        reservations=to_wire(snapshot.reservations, list[ReservationDoc], "$.reservations"),
        policy=policy_doc(snapshot.policy),
    )


def _workloads(snapshot: Snapshot) -> list[WorkloadDoc | Raw]:
    """Every workload by id, the rejected ones as raw JSON."""
    docs: list[WorkloadDoc] = to_wire(snapshot.workloads, list[WorkloadDoc], "$.workloads")
    for doc in docs:
        without_empty_wish(doc)
    if not snapshot.rejected:
        return [*docs]
    named: list[tuple[str, WorkloadDoc | Raw]] = [(doc.id, doc) for doc in docs]
    named += [(rejection.workload, Raw(rejection.raw)) for rejection in snapshot.rejected if rejection.raw is not None]
    return [item for _, item in sorted(named, key=lambda pair: pair[0])]


def without_empty_wish(doc: WorkloadDoc) -> None:
    """Leave out a wish that asks for nothing."""
    if doc.topology == _NO_WISH:
        doc.topology = None


def cluster_doc(cluster: Cluster) -> ClusterDoc:
    """Nodes and levels as they are written."""
    return ClusterDoc(
        levels=cluster.levels,
        slowdown={level: number(loss) for level, loss in cluster.slowdown.items()},
        nodes=to_wire(cluster.nodes, list[NodeDoc], "$.cluster.nodes"),
    )


def allocation_doc(vertex: Allocation) -> AllocationDoc:
    """A vertex of the tree as it is written."""
    return AllocationDoc(
        id=vertex.id,
        parent=vertex.parent,
        name=vertex.name,
        share=number(vertex.share),
        share_by_pool={pool: number(share) for pool, share in vertex.share_by_pool.items()},
        funds=vertex.funds,
        gpu_limit=vertex.gpu_limit,
        interactive_limit=vertex.interactive_limit,
    )


def policy_doc(policy: Policy) -> PolicyDoc:
    """Written in full, so that a snapshot means the same when a later release has other defaults."""
    express, weights = policy.express, policy.weights
    return PolicyDoc(
        window=policy.window,
        horizon=policy.horizon,
        protection_cap=policy.protection_cap,
        planning_step=policy.planning_step,
        half_life=policy.half_life,
        notice=policy.notice,
        preempt_under_entitlement=policy.preempt_under_entitlement,
        max_preemptions=policy.max_preemptions,
        reserve_from=number(policy.reserve_from),
        express=ExpressDoc(
            gpus=express.gpus,
            min_runtime=express.min_runtime,
            pool_share=number(express.pool_share),
            per_user=express.per_user,
        ),
        weights=WeightsDoc(**{name: number(getattr(weights, name)) for name in WeightsDoc.__struct_fields__}),
    )


def _number(kind: type, value: Any) -> Any:
    raise NotImplementedError(kind)
