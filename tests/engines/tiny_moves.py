"""Tiny snapshots in which a gang is owed a rack that small unprotected work lies in, with room for it elsewhere."""

from __future__ import annotations

from fractions import Fraction
from random import Random

from allocator.domain import Allocation, Cluster, Node, Policy, Run, Snapshot, TopologyWish, UsageRecord, Weights, Workload
from tests.engines.tiny import HOUR, LEVELS, NOW


def tiny_moves(seed: int) -> Snapshot:
    """A random snapshot of two racks, a gang that is mostly entitled, and at most four workloads that run."""
    rng = Random(seed)
    gpus, per_rack = rng.choice([2, 2, 4]), rng.choice([1, 2, 2])
    nodes = [
        Node(name=f"n{i}", pool="a", gpus=gpus, domains=("c", f"l{i // per_rack}"), drain_deadline=_deadline(rng))
        for i in range(2 * per_rack)
    ]
    shares = [Fraction(rng.choice([1, 3, 8])), Fraction(rng.choice([0, 1, 1])), Fraction(1)]
    budgets = [
        Allocation(id=key, parent=None, share=share, gpu_limit=rng.choice([None] * 9 + [gpus]))
        for key, share in zip("gxy", shares, strict=True)
    ]
    usage = [
        UsageRecord(id=f"u{key}", allocation=key, pool="a", gpus=hours, start=NOW - 2 * HOUR, end=NOW - HOUR)
        for key in "gxy"
        if (hours := rng.choice([0, 0, 40, 600]))
    ]
    cluster = Cluster(
        levels=LEVELS, nodes=tuple(nodes), slowdown=rng.choice([{}, {"leaf": Fraction(rng.choice([2, 30]), 100)}])
    )
    works = [*_running(rng, nodes), _gang(rng, gpus, per_rack), *_small(rng, gpus)]
    return Snapshot(
        now=NOW, cluster=cluster, budgets=tuple(budgets), workloads=tuple(works), usage=tuple(usage), policy=_policy(rng)
    ).canonical()


def _deadline(rng: Random) -> int | None:
    return NOW + rng.choice([HOUR // 2, 3 * HOUR]) if rng.random() < 0.05 else None


def _policy(rng: Random) -> Policy:
    return Policy(
        max_preemptions=rng.choice([None, None, None, 0, 1, 2]), preempt_under_entitlement=rng.random() < 0.15,
        reserve_from=Fraction(rng.choice([1, 4, 4]), 4),
        weights=Weights(
            fragmentation=Fraction(rng.choice([0, 1, 10]), 100), lost_work=Fraction(rng.choice([0, 1, 3]), 2),
            order=Fraction(rng.choice([1, 20]), 1000),
        ),
    )  # fmt: skip


def _gang(rng: Random, gpus: int, per_rack: int) -> Workload:
    """All of a rack, or most of it."""
    size = rng.choice([gpus, gpus, max(1, gpus // 2)])
    tasks = per_rack * (gpus // size) - (rng.random() < 0.15)
    wish = rng.choice([TopologyWish(required="leaf"), TopologyWish(required="leaf"), TopologyWish(preferred="leaf")])
    return Workload(
        id="gang", allocation="g", submit_time=NOW - 2 * HOUR, tasks=max(1, tasks), gpus_per_task=size,
        min_runtime=rng.choice([HOUR, 2 * HOUR]), resumable=True, topology=wish,
    )  # fmt: skip


def _request(rng: Random, key: str, gpus: int) -> dict[str, object]:
    return {
        "id": key, "allocation": rng.choice("gxxyy"), "submit_time": NOW - rng.randint(0, 9) * HOUR,
        "tasks": rng.choice([1, 1, 1, 2]), "gpus_per_task": rng.randint(1, max(1, gpus // 2)),
        "min_runtime": rng.choice([0, HOUR // 2, HOUR, HOUR]), "resumable": rng.random() < 0.8, "user": "u",
        "checkpoint_on_notice": rng.random() < 0.6, "restart_time": rng.choice([0, 60, 300]),
        "preempted": rng.choice([0, 1, 3, 9]), "renew": rng.random() < 0.05,
        "exclude_nodes": ("n0",) if rng.random() < 0.05 else (),
    }  # fmt: skip


def _small(rng: Random, gpus: int) -> list[Workload]:
    return [Workload(**_request(rng, f"w{i}", gpus)) for i in range(rng.choice([0, 1, 1, 2]))]  # type: ignore[arg-type]


def _running(rng: Random, nodes: list[Node]) -> list[Workload]:
    free, found = {node.name: node.gpus for node in nodes}, []
    for i in range(rng.randint(1, 4)):
        request = _request(rng, f"r{i}", nodes[0].gpus)
        placement = _place(rng, free, int(str(request["tasks"])), int(str(request["gpus_per_task"])))
        if placement is None:
            continue
        start = NOW - rng.choice([600, 5 * HOUR, 5 * HOUR, 10 * HOUR])
        charged = request["min_runtime"] != 0 and rng.random() < 0.75
        run = Run(
            placement=placement, charged=charged, start_time=start,
            charged_since=start if charged else None, granted_at=start if charged else None,
            protected_until=start + int(str(request["min_runtime"])) if charged else None,
        )  # fmt: skip
        found.append(Workload(**request, run=run))  # type: ignore[arg-type]
    return found


def _place(rng: Random, free: dict[str, int], tasks: int, gpus: int) -> dict[str, int] | None:
    """All tasks on one node, or one on each of some; what they take is no longer free."""
    each = 1 if tasks > 1 and rng.random() < 0.6 else tasks
    fitting = [name for name, left in free.items() if left >= each * gpus]
    if len(fitting) < tasks // each:
        return None
    placement = dict.fromkeys(rng.sample(fitting, tasks // each), each)
    for name in placement:
        free[name] -= each * gpus
    return placement
