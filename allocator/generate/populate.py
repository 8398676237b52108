"""Fills a cluster with the work of an organisation, pool by pool, as a recipe says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from allocator.domain import Cluster, Node, Policy, Snapshot, UsageRecord, Workload
from allocator.generate.demand import Crowd, PoolView, build_crowd, view_pool
from allocator.generate.disturb import dead_nodes
from allocator.generate.history import CHARGED_PART, write_history
from allocator.generate.ledger import Ledger
from allocator.generate.organisation import Organisation, build_organisation, default_leaves
from allocator.generate.packing import Packer
from allocator.generate.params import NOW, SnapshotParams
from allocator.generate.recipe import Recipe
from allocator.generate.running import Limits, Starter, place_running
from allocator.generate.waiting import queue_up


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPart:
    """What one pool contributes to the snapshot."""

    nodes: tuple[Node, ...]
    workloads: tuple[Workload, ...]
    usage: tuple[UsageRecord, ...]


def generate_on(cluster: Cluster, params: SnapshotParams, seed: int, recipe: Recipe | None = None) -> Snapshot:
    """A snapshot on a cluster, with an organisation of the size that the parameters or the cluster ask for."""
    gpus = sum(node.gpus for node in cluster.nodes)
    leaves = default_leaves(gpus) if params.leaves is None else params.leaves
    # One stream for the organisation and one for each pool: a change in one part leaves the others as they are.
    tree_seed, pools_seed = np.random.SeedSequence(seed).spawn(2)
    pools = list(dict.fromkeys(node.pool for node in cluster.nodes))
    organisation = build_organisation(np.random.Generator(np.random.PCG64(tree_seed)), leaves, pools)
    return populate(cluster, organisation, pools_seed, params, Recipe() if recipe is None else recipe)


def populate(
    cluster: Cluster, organisation: Organisation, seed: np.random.SeedSequence, params: SnapshotParams, recipe: Recipe
) -> Snapshot:
    """Fill every pool and put the parts together."""
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
        rng = np.random.Generator(np.random.PCG64(pool_seed))
        parts.append(_populate_pool(rng, view, organisation, crowd, ledger, limits, params, recipe))
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
    recipe: Recipe,
) -> PoolPart:
    """Running work, its states within the budgets, the queue, and the records that are still missing."""
    policy = Policy()
    if params.history:
        recipe.set_targets(rng, ledger, organisation.projects, pool.name, int(CHARGED_PART * pool.gpus * policy.window))
    packer = Packer(pool.nodes)
    empty = dead_nodes(rng, pool) if recipe.sick_nodes else []
    for index in empty:
        packer.block(index)
    target = int(recipe.occupancy * int(packer.free.sum()))
    placed = place_running(rng, crowd, pool, packer, limits, target, recipe)
    starter = Starter(pool=pool, ledger=ledger, limits=limits, policy=policy, states=recipe.states)
    running = starter.start_all(rng, placed)
    queue = recipe.queue if params.queue is None else params.queue
    demand = max(0, round(queue * pool.gpus) - sum(work.gpus for work in running))
    waiting = queue_up(rng, recipe.draw_waiting(rng, crowd, pool, demand), pool)
    usage = write_history(rng, ledger, organisation.projects, pool.name, pool.gpus, policy) if params.history else []
    nodes = recipe.disturb(rng, pool, empty, running)
    return PoolPart(nodes=nodes, workloads=(*running, *waiting), usage=tuple(usage))


def name_workloads(workloads: Sequence[Workload]) -> tuple[Workload, ...]:
    """Number the workloads in the order in which they were submitted."""
    width = max(4, len(str(len(workloads))))
    ordered = sorted(workloads, key=lambda work: work.submit_time)
    for number, work in enumerate(ordered, start=1):
        # They were made here and nobody else has seen them yet; a copy of each doubles the time of a long queue.
        object.__setattr__(work, "id", f"w{number:0{width}d}")
    return tuple(ordered)


def name_records(records: Sequence[UsageRecord]) -> tuple[UsageRecord, ...]:
    """Number the records in the order in which they ended."""
    width = max(4, len(str(len(records))))
    ordered = sorted(records, key=lambda record: record.end)
    return tuple(replace(record, id=f"rec{number:0{width}d}") for number, record in enumerate(ordered, start=1))
