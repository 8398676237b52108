"""From the nodes of a snapshot to arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter, lt

import numpy as np

from allocator.domain import Node, NodeState, Snapshot
from allocator.topology.layout import NEVER, UNLIMITED, BoolArray, IntArray, Layout


def build_layout(snapshot: Snapshot, like: Layout | None = None) -> Layout:
    """Lay the cluster out as arrays, nodes in canonical order (by name).

    `like` is a layout of the same cluster at some other instant, if there is one: what has not changed is taken from it.
    """
    nodes = snapshot.cluster.nodes
    if like is None or nodes is not like.nodes:
        nodes = _in_order(nodes)
    frame = like if like is not None and _same_frame(like, snapshot.cluster.levels, nodes) else _frame(snapshot, nodes)
    down, drain, deadline = (frame.down, frame.drain, frame.deadline) if frame.nodes == nodes else _states(nodes)
    expired = ~down & (deadline <= snapshot.now)
    overdue = _held_by_overdue_victims(snapshot)
    layout = replace(
        frame,
        nodes=nodes,
        accepting=~down & ~drain & ~expired,
        down=down,
        drain=drain,
        leaving=~down & (drain | expired),
        expired=expired,
        deadline=deadline,
        promise_by=deadline,
        overdue=_bools(name in overdue for name in frame.names) if overdue else np.zeros(len(nodes), dtype=bool),
    )
    _freeze(layout)
    return layout


def _in_order(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """The nodes by name: the very same list where it stands in that order."""
    names = [node.name for node in nodes]
    return nodes if all(map(lt, names, names[1:])) else tuple(sorted(nodes, key=attrgetter("name")))


def _same_frame(like: Layout, levels: tuple[str, ...], nodes: tuple[Node, ...]) -> bool:
    """Whether these are the nodes of a layout, in whatever state."""
    if like.levels != levels or len(like.nodes) != len(nodes):
        return False
    return like.nodes is nodes or all(map(_same_node, like.nodes, nodes))


def _same_node(one: Node, other: Node) -> bool:
    return one is other or _built(one) == _built(other)


def _built(node: Node) -> tuple[object, ...]:
    """All of a node but its state."""
    return node.name, node.pool, node.gpus, node.domains, node.cpus, node.memory_gib, node.labels


def _frame(snapshot: Snapshot, nodes: Sequence[Node]) -> Layout:
    """The layout of nodes that are all well."""
    pools = tuple(sorted({node.pool for node in nodes}))
    number = {name: idx for idx, name in enumerate(pools)}
    domain, paths = _number_domains(nodes, len(snapshot.cluster.levels))
    well = np.zeros(len(nodes), dtype=bool)
    never = np.full(len(nodes), NEVER, dtype=np.int64)
    return Layout(
        names=tuple(node.name for node in nodes),
        index={node.name: idx for idx, node in enumerate(nodes)},
        levels=snapshot.cluster.levels,
        pools=pools,
        pool=_ints(number[node.pool] for node in nodes),
        capacity=_capacity(nodes),
        domain=domain,
        domain_paths=paths,
        accepting=~well,
        down=well,
        drain=well,
        leaving=well,
        expired=well,
        deadline=never,
        promise_by=never,
        overdue=well,
        labels=_label_masks(nodes),
        nodes=(),
    )


def _states(nodes: Sequence[Node]) -> tuple[BoolArray, BoolArray, IntArray]:
    """What people and health checks say of the nodes: who is down, who drains, and until when."""
    return (
        _bools(node.state is NodeState.DOWN for node in nodes),
        _bools(node.state is NodeState.DRAIN for node in nodes),
        _ints(NEVER if node.drain_deadline is None else node.drain_deadline for node in nodes),
    )


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
    arrays = (layout.pool, layout.capacity, layout.domain, layout.accepting, layout.down, layout.drain, layout.leaving)
    for array in (*arrays, layout.expired, layout.deadline, layout.overdue, *layout.labels.values()):
        array.setflags(write=False)
