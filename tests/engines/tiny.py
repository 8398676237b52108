"""Tiny snapshots by seed: small enough for every decision to be enumerated, odd enough to reach every rule."""

from __future__ import annotations

from fractions import Fraction
from random import Random

from allocator.domain import (
    Allocation,
    Cluster,
    ExpressLane,
    LastStop,
    Node,
    NodeState,
    Policy,
    Run,
    Segment,
    Snapshot,
    TopologyWish,
    Unfunded,
    UsageRecord,
    Weights,
    Workload,
)

NOW = 1_764_430_000
HOUR = 3600
LEVELS = ("cluster", "leaf", "node")


def tiny_snapshot(seed: int) -> Snapshot:
    """A random snapshot of at most four nodes and six workloads; consistent by construction."""
    rng = Random(seed)
    nodes = _nodes(rng)
    budgets = _budgets(rng)
    parents = {vertex.parent for vertex in budgets}
    leaves = [vertex.id for vertex in budgets if vertex.id not in parents]
    pools = sorted({node.pool for node in nodes})
    workloads = [*_running(rng, nodes, leaves), *_waiting(rng, leaves, pools, max(node.gpus for node in nodes))]
    cluster = Cluster(levels=LEVELS, nodes=tuple(nodes), slowdown=_slowdown(rng))
    return Snapshot(
        now=NOW, cluster=cluster, budgets=tuple(budgets), workloads=tuple(workloads), usage=tuple(_usage(rng, leaves, pools)),
        policy=_policy(rng),
    ).canonical()  # fmt: skip


def _slowdown(rng: Random) -> dict[str, Fraction]:
    choice = rng.random()
    if choice < 0.3:
        return {}
    found = {"leaf": Fraction(rng.choice([2, 5, 30]), 100)}
    return found | ({"node": Fraction(1, 100)} if choice > 0.85 else {})


def _nodes(rng: Random) -> list[Node]:
    gpus, two_pools, bound = rng.choice([2, 3, 4, 4]), rng.random() < 0.25, rng.random() < 0.2
    found = []
    for i in range(rng.randint(1, 4)):
        state, deadline = NodeState.UP, None
        if (chance := rng.random()) < 0.05:
            state = NodeState.DOWN
        elif chance < 0.12:
            state, deadline = NodeState.DRAIN, rng.choice([None, NOW - 1, NOW + HOUR])
        elif chance < 0.2:
            deadline = NOW + rng.choice([HOUR // 2, 3 * HOUR])
        found.append(
            Node(
                name=f"n{i}", pool="b" if two_pools and i % 2 else "a", gpus=gpus, domains=("c", f"l{rng.randint(0, 1)}"),
                cpus=gpus * 2 if bound else None, labels={"arch": rng.choice(["x", "y"])} if rng.random() < 0.3 else {},
                state=state, drain_deadline=deadline,
            )
        )  # fmt: skip
    return found


def _budgets(rng: Random) -> list[Allocation]:
    found = []
    for i in range(rng.randint(1, 3)):
        share = Fraction(rng.choice([0, 1, 1, 1, 2, 5]))
        limit = rng.choice([2, 3]) if rng.random() < 0.1 else None
        found.append(Allocation(id=f"p{i}", parent=None, share=share, gpu_limit=limit))
        found += [_researcher(rng, f"p{i}", k) for k in range(rng.choice([0, 0, 1, 2]))]
    return found


def _researcher(rng: Random, parent: str, k: int) -> Allocation:
    return Allocation(id=f"{parent}r{k}", parent=parent, share=Fraction(rng.choice([1, 1, 2])), funds=rng.random() < 0.3)


def _usage(rng: Random, leaves: list[str], pools: list[str]) -> list[UsageRecord]:
    found = []
    for i in range(rng.randint(0, 3)):
        start = NOW - rng.randint(1, 200) * HOUR
        found.append(
            UsageRecord(
                id=f"u{i}", allocation=rng.choice(leaves), pool=rng.choice(pools), gpus=rng.randint(1, 8), start=start,
                end=min(NOW, start + rng.randint(1, 120) * HOUR), charged=rng.random() < 0.8,
            )
        )  # fmt: skip
    return found


def _request(rng: Random, key: str, leaf: str, largest: int) -> dict[str, object]:
    """The fields of a workload that do not depend on where it runs."""
    tasks = rng.choice([1, 1, 1, 2, 2, 3])
    gpus = rng.choice([size for size in (1, 1, 2, 3, 4) if size <= largest])
    notice = rng.random() < 0.5
    return {
        "id": key, "allocation": leaf, "submit_time": NOW - rng.randint(0, 9) * HOUR, "tasks": tasks, "gpus_per_task": gpus,
        "cpus_per_task": rng.choice([1, 3, 5]) if rng.random() < 0.2 else None,
        "min_runtime": rng.choice([0, HOUR // 2, HOUR, 2 * HOUR, 8 * HOUR]), "resumable": rng.random() < 0.7,
        "checkpoint_on_notice": notice, "restart_time": rng.choice([0, 60, 300, 900]), "preempted": rng.choice([0, 0, 1, 3, 9]),
        "user": rng.choice([None, "u", "v"]), "priority": rng.choice([0, 0, 0, 5]),
        "max_runtime": tasks * HOUR if notice else None,
        "unfunded": rng.choice([Unfunded.RUN, Unfunded.RUN, Unfunded.WAIT]),
    }  # fmt: skip


def _running(rng: Random, nodes: list[Node], leaves: list[str]) -> list[Workload]:
    free = {node.name: node.gpus for node in nodes}
    cpus = {node.name: node.cpus if node.cpus is not None else 1 << 30 for node in nodes}
    found = []
    for i in range(rng.randint(0, 3)):
        request = _request(rng, f"r{i}", rng.choice(leaves), max(node.gpus for node in nodes))
        placement = _random_placement(rng, nodes, free, cpus, request)
        if placement is None:
            continue
        found.append(Workload(**request, run=_run(rng, int(str(request["min_runtime"])), placement)))  # type: ignore[arg-type]
    return found


def _random_placement(
    rng: Random, nodes: list[Node], free: dict[str, int], cpus: dict[str, int], request: dict[str, object]
) -> dict[str, int] | None:
    pool = rng.choice(nodes).pool
    gpus, need = int(str(request["gpus_per_task"])), int(str(request["cpus_per_task"] or 0))
    placement: dict[str, int] = {}
    for _ in range(int(str(request["tasks"]))):
        fitting = [n.name for n in nodes if n.pool == pool and free[n.name] >= gpus and cpus[n.name] >= need]
        if not fitting:
            for name, tasks in placement.items():
                free[name] += tasks * gpus
                cpus[name] += tasks * need
            return None
        name = rng.choice(fitting)
        free[name] -= gpus
        cpus[name] -= need
        placement[name] = placement.get(name, 0) + 1
    return placement


def _run(rng: Random, min_runtime: int, placement: dict[str, int]) -> Run:
    if rng.random() < 0.05:
        return Run(placement=placement, charged=min_runtime > 0)
    start = NOW - rng.choice([0, 600, HOUR, 5 * HOUR, 10 * HOUR])
    if min_runtime == 0 or rng.random() < 0.3:
        return Run(placement=placement, charged=False, start_time=start)
    return Run(
        placement=placement, charged=True, start_time=start, charged_since=start, granted_at=start,
        protected_until=start + min(min_runtime, 8 * HOUR),
        last_checkpoint=start + 60 if start < NOW - 60 and rng.random() < 0.3 else None,
        express=min_runtime == HOUR // 2 and rng.random() < 0.3,
    )  # fmt: skip


def _waiting(rng: Random, leaves: list[str], pools: list[str], largest: int) -> list[Workload]:
    found = []
    for i in range(rng.randint(1, 4)):
        request = _request(rng, f"w{i}", rng.choice(leaves), largest)
        wish = TopologyWish()
        if (chance := rng.random()) < 0.15:
            wish = TopologyWish(required=rng.choice(["leaf", "node", "cluster"]))
        elif chance < 0.3:
            wish = TopologyWish(preferred=rng.choice(["leaf", "cluster"]))
        elif chance < 0.38:
            wish = TopologyWish(segment=Segment(level="leaf", tasks=2))
        stopped = None
        if rng.random() < 0.08:
            stopped = LastStop(at=NOW - rng.choice([0, 0, HOUR]), pool=pools[0], gpus=1, charged=rng.random() < 0.5)
        found.append(
            Workload(
                **request, topology=wish, pools=rng.choice([(), (), (pools[-1],), tuple(pools)]),  # type: ignore[arg-type]
                node_labels={"arch": "x"} if rng.random() < 0.1 else {}, exclude_nodes=("n0",) if rng.random() < 0.1 else (),
                stopped=stopped,
            )
        )  # fmt: skip
    return found


def _policy(rng: Random) -> Policy:
    if rng.random() < 0.5:
        return Policy()
    return Policy(
        horizon=rng.choice([HOUR, 4 * HOUR, 24 * HOUR]), planning_step=rng.choice([900, HOUR]),
        preempt_under_entitlement=rng.random() < 0.2, max_preemptions=rng.choice([None, None, 0, 1]),
        half_life=rng.choice([None, None, 2 * 86_400]),
        express=ExpressLane(gpus=rng.choice([2, 8]), per_user=rng.choice([1, 2])),
        weights=Weights(
            fragmentation=Fraction(rng.choice([0, 1, 10]), 100), spread=Fraction(rng.choice([0, 1, 2])),
            lost_work=Fraction(rng.choice([1, 3, 8]), 2), order=Fraction(rng.choice([1, 20]), 1000),
        ),
    )  # fmt: skip
