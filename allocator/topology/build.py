"""From the nodes of a snapshot to arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from allocator.domain import Node, NodeState, Snapshot
from allocator.topology.layout import NEVER, UNLIMITED, BoolArray, IntArray, Layout


def build_layout(snapshot: Snapshot) -> Layout:
    """Lay the cluster out as arrays, nodes in canonical order (by name)."""
    nodes = sorted(snapshot.cluster.nodes, key=lambda node: node.name)
    pools = tuple(sorted({node.pool for node in nodes}))
    domain, paths = _number_domains(nodes, len(snapshot.cluster.levels))
    deadline = _ints(NEVER if node.drain_deadline is None else node.drain_deadline for node in nodes)
    down = _bools(node.state is NodeState.DOWN for node in nodes)
    drain = _bools(node.state is NodeState.DRAIN for node in nodes)
    expired = ~down & (deadline <= snapshot.now)
    overdue = _held_by_overdue_victims(snapshot)
    layout = Layout(
        names=tuple(node.name for node in nodes),
        index={node.name: idx for idx, node in enumerate(nodes)},
        levels=snapshot.cluster.levels,
        pools=pools,
        pool=_ints(pools.index(node.pool) for node in nodes),
        capacity=_capacity(nodes),
        domain=domain,
        domain_paths=paths,
        accepting=~down & ~drain & ~expired,
        down=down,
        leaving=~down & (drain | expired),
        expired=expired,
        deadline=deadline,
        promise_by=deadline,
        overdue=_bools(node.name in overdue for node in nodes),
        labels=_label_masks(nodes),
    )
    _freeze(layout)
    return layout


def _held_by_overdue_victims(snapshot: Snapshot) -> set[str]:
    """Names of the nodes on which a victim lies that should have left by now."""
    runs = (work.run for work in snapshot.workloads if work.run is not None)
    late = (run for run in runs if run.terminating_until is not None and run.terminating_until <= snapshot.now)
    return {name for run in late for name in run.placement}


def _number_domains(nodes: Sequence[Node], num_levels: int) -> tuple[IntArray, tuple[tuple[tuple[str, ...], ...], ...]]:
    """Dense domain ids by level, in the order of the sorted paths; a domain is its whole path, the last level the node."""
    domain = np.zeros((num_levels, len(nodes)), dtype=np.int64)
    paths: list[tuple[tuple[str, ...], ...]] = []
    for level in range(num_levels - 1):
        ordered = tuple(sorted({node.domains[: level + 1] for node in nodes}))
        number = {path: idx for idx, path in enumerate(ordered)}
        domain[level] = [number[node.domains[: level + 1]] for node in nodes]
        paths.append(ordered)
    domain[-1] = np.arange(len(nodes))
    paths.append(tuple((*node.domains, node.name) for node in nodes))
    return domain, tuple(paths)


def _capacity(nodes: Sequence[Node]) -> IntArray:
    """GPUs, CPUs and GiB by node, shape (3, num_nodes)."""
    return np.array(
        [
            [node.gpus for node in nodes],
            [UNLIMITED if node.cpus is None else node.cpus for node in nodes],
            [UNLIMITED if node.memory_gib is None else node.memory_gib for node in nodes],
        ],
        dtype=np.int64,
    ).reshape(3, len(nodes))


def _label_masks(nodes: Sequence[Node]) -> Mapping[tuple[str, str], BoolArray]:
    """Which nodes carry each label."""
    masks: dict[tuple[str, str], BoolArray] = {}
    for idx, node in enumerate(nodes):
        for label in node.labels.items():
            masks.setdefault(label, np.zeros(len(nodes), dtype=bool))[idx] = True
    return masks


def _ints(values: Iterable[int]) -> IntArray:
    return np.fromiter(values, dtype=np.int64)


def _bools(values: Iterable[bool]) -> BoolArray:
    return np.fromiter(values, dtype=bool)


def _freeze(layout: Layout) -> None:
    """Make every array of the layout read-only."""
    arrays = (layout.pool, layout.capacity, layout.domain, layout.accepting, layout.down, layout.leaving)
    for array in (*arrays, layout.expired, layout.deadline, layout.overdue, *layout.labels.values()):
        array.setflags(write=False)
