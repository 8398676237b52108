"""The family `mixed`: a nearly full cluster, work in every state, and a queue of 2.5 times the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from allocator.domain import Cluster, Node, NodeState, Policy, Snapshot, UsageRecord, Workload
from allocator.generate.demand import Crowd, PoolView, build_crowd, view_pool
from allocator.generate.fleet import build_cluster, split_nodes
from allocator.generate.history import CHARGED_PART, write_history
from allocator.generate.ledger import Ledger, draw_targets
from allocator.generate.organisation import Organisation, build_organisation, default_leaves
from allocator.generate.packing import Packer
from allocator.generate.params import HOUR, NOW, SnapshotParams
from allocator.generate.running import Limits, place_running, start_all
from allocator.generate.waiting import draw_waiting

DEFAULT_GPUS = 1024
DEFAULT_QUEUE = 2.5
DOWN, DRAIN, ANNOUNCED = 0.01, 0.008, 0.008
"""Parts of the nodes that are dead, draining, and announced to drain; at least one of each from 16 nodes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPart:
    """What one pool contributes to the snapshot."""

    nodes: tuple[Node, ...]
    workloads: tuple[Workload, ...]
    usage: tuple[UsageRecord, ...]


def generate_mixed(params: SnapshotParams, seed: int) -> Snapshot:
    """A mixed snapshot; the defaults are 1,024 GPUs in one pool."""
    gpus = DEFAULT_GPUS if params.gpus is None else params.gpus
    cluster = build_cluster(split_nodes(gpus, 1 if params.pools is None else params.pools))
    leaves = default_leaves(gpus) if params.leaves is None else params.leaves
    # One stream for the organisation and one for each pool: a change in one part leaves the others as they are.
    tree_seed, pools_seed = np.random.SeedSequence(seed).spawn(2)
    pools = sorted({node.pool for node in cluster.nodes}, key=[node.pool for node in cluster.nodes].index)
    organisation = build_organisation(np.random.Generator(np.random.PCG64(tree_seed)), leaves, pools)
    return populate(cluster, organisation, pools_seed, params)


def populate(cluster: Cluster, organisation: Organisation, seed: np.random.SeedSequence, params: SnapshotParams) -> Snapshot:
    """Fill a cluster with the work of an organisation, pool by pool."""
    policy = Policy()
    crowd = build_crowd(organisation)
    by_pool: dict[str, list[Node]] = {}
    for node in cluster.nodes:
        by_pool.setdefault(node.pool, []).append(node)
    installed = {pool: sum(node.gpus for node in nodes) for pool, nodes in by_pool.items()}
    ledger = Ledger(organisation.budgets, installed, policy)
    limits = Limits(gpu_limit={leaf.id: leaf.gpu_limit for leaf in organisation.budgets if leaf.gpu_limit is not None})
    parts = []
    for (pool, nodes), pool_seed in zip(by_pool.items(), seed.spawn(len(by_pool)), strict=True):
        view = view_pool(nodes, cluster.levels, [other for other in by_pool if other != pool])
        parts.append(
            _populate_pool(np.random.Generator(np.random.PCG64(pool_seed)), view, organisation, crowd, ledger, limits, params)
        )
    return Snapshot(
        now=NOW,
        cluster=replace(cluster, nodes=tuple(node for part in parts for node in part.nodes)),
        budgets=organisation.budgets,
        workloads=name_workloads([workload for part in parts for workload in part.workloads]),
        usage=name_records([record for part in parts for record in part.usage]),
        policy=policy,
    ).canonical()


def _populate_pool(
    rng: np.random.Generator,
    pool: PoolView,
    organisation: Organisation,
    crowd: Crowd,
    ledger: Ledger,
    limits: Limits,
    params: SnapshotParams,
) -> PoolPart:
    """Running work, its states within the budgets, the queue, and the records that are still missing."""
    policy = Policy()
    if params.history:
        draw_targets(rng, ledger, organisation.projects, pool.name, int(CHARGED_PART * pool.gpus * policy.window))
    packer = Packer(pool.nodes)
    empty = _dead_nodes(rng, pool)
    for index in empty:
        packer.block(index)
    target = int(params.occupancy * int(packer.free.sum()))
    placed = place_running(rng, crowd, pool, packer, limits, target)
    running = start_all(rng, placed, pool, ledger, limits, policy)
    queue = DEFAULT_QUEUE if params.queue is None else params.queue
    waiting = draw_waiting(rng, crowd, pool, max(0, round(queue * pool.gpus) - sum(work.gpus for work in running)))
    usage = write_history(rng, ledger, organisation.projects, pool.name, pool.gpus, policy) if params.history else []
    nodes = _disturb(rng, pool, empty, running)
    return PoolPart(nodes=nodes, workloads=(*running, *waiting), usage=tuple(usage))


def _dead_nodes(rng: np.random.Generator, pool: PoolView) -> list[int]:
    """Nodes that were dead before work was placed: all dead ones but one."""
    if len(pool.nodes) < 16:
        return []
    count = max(1, round(DOWN * len(pool.nodes))) - (len(pool.nodes) >= 64)
    return sorted(int(index) for index in rng.choice(len(pool.nodes), size=count, replace=False))


def _disturb(rng: np.random.Generator, pool: PoolView, empty: Sequence[int], running: Sequence[Workload]) -> tuple[Node, ...]:
    """Mark dead and draining nodes; from 64 nodes on one with small work on it has just died."""
    nodes = list(pool.nodes)
    for index in empty:
        nodes[index] = replace(nodes[index], state=NodeState.DOWN, reason="xid 79")
    if len(nodes) < 16:
        return tuple(nodes)
    largest: dict[str, int] = {}
    for work in running:
        for name in work.run.placement if work.run else ():
            largest[name] = max(largest.get(name, 0), work.gpus)
    alive = [index for index in rng.permutation(len(nodes)).tolist() if nodes[index].state is NodeState.UP]
    if len(nodes) >= 64:
        struck = min(alive[:32], key=lambda index: largest.get(nodes[index].name, 1 << 30))
        alive.remove(struck)
        nodes[struck] = replace(nodes[struck], state=NodeState.DOWN, reason="fell off the bus")
    num_drain = max(1, round(DRAIN * len(nodes)))
    for index in alive[:num_drain]:
        nodes[index] = replace(nodes[index], state=NodeState.DRAIN, reason="link flaps")
    for index in alive[num_drain : num_drain + max(1, round(ANNOUNCED * len(nodes)))]:
        deadline = NOW + int(rng.uniform(1, 12)) * HOUR
        nodes[index] = replace(nodes[index], drain_deadline=deadline, reason="firmware update")
    return tuple(nodes)


def name_workloads(workloads: Sequence[Workload]) -> tuple[Workload, ...]:
    """Number the workloads in the order in which they were submitted."""
    width = max(4, len(str(len(workloads))))
    ordered = sorted(workloads, key=lambda work: work.submit_time)
    return tuple(replace(work, id=f"w{number:0{width}d}") for number, work in enumerate(ordered, start=1))


def name_records(records: Sequence[UsageRecord]) -> tuple[UsageRecord, ...]:
    """Number the records in the order in which they ended."""
    width = max(4, len(str(len(records))))
    ordered = sorted(records, key=lambda record: record.end)
    return tuple(replace(record, id=f"rec{number:0{width}d}") for number, record in enumerate(ordered, start=1))
