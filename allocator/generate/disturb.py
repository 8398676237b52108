"""Dead and draining nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from allocator.domain import Node, NodeState, Workload
from allocator.generate.demand import PoolView
from allocator.generate.params import HOUR, NOW

DOWN, DRAIN, ANNOUNCED = 0.01, 0.008, 0.008
"""Parts of the nodes that are dead, draining, and announced to drain; at least one of each from 16 nodes on."""


def dead_nodes(rng: np.random.Generator, pool: PoolView) -> list[int]:
    """Nodes that were dead before work was placed: all dead ones but one."""
    if len(pool.nodes) < 16:
        return []
    count = max(1, round(DOWN * len(pool.nodes))) - (len(pool.nodes) >= 64)
    return sorted(int(index) for index in rng.choice(len(pool.nodes), size=count, replace=False))


def mark_dead(pool: PoolView, empty: Sequence[int]) -> list[Node]:
    """The nodes, with those down that were dead before."""
    nodes = list(pool.nodes)
    for index in empty:
        nodes[index] = replace(nodes[index], state=NodeState.DOWN, reason="xid 79")
    return nodes


def disturb(rng: np.random.Generator, pool: PoolView, empty: Sequence[int], running: Sequence[Workload]) -> tuple[Node, ...]:
    """Mark dead and draining nodes; from 64 nodes on one with small work on it has just died."""
    nodes = mark_dead(pool, empty)
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


def leave_well(rng: np.random.Generator, pool: PoolView, empty: Sequence[int], running: Sequence[Workload]) -> tuple[Node, ...]:
    """No further node is marked."""
    return tuple(mark_dead(pool, empty))


def drain_tenth(
    rng: np.random.Generator, pool: PoolView, empty: Sequence[int], running: Sequence[Workload]
) -> tuple[Node, ...]:
    """One node in ten leaves: some are announced to, some drain, of some the deadline has passed, at staggered moments."""
    nodes = mark_dead(pool, empty)
    alive = [index for index in rng.permutation(len(nodes)).tolist() if nodes[index].state is NodeState.UP]
    count = max(1, round(0.1 * len(nodes)))
    for turn, index in enumerate(alive[:count]):
        hours = float(rng.uniform(-1, 0) if turn % 8 == 7 else rng.uniform(0.25, 16))
        state = NodeState.UP if turn % 2 else NodeState.DRAIN
        deadline = None if turn % 8 == 0 else NOW + round(hours * HOUR)
        nodes[index] = replace(nodes[index], state=state, drain_deadline=deadline, reason="maintenance")
    return tuple(nodes)
