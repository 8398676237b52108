"""Whether running work makes sense: nodes that exist, one pool, all tasks placed, no node over-full."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from allocator.wire.draft import Draft
from allocator.wire.shapes import field_path, nearest, show
from allocator.wire.snapshot_doc import NodeDoc, WorkloadDoc

_RESOURCES = (("gpus", "GPUs"), ("cpus", "CPUs"), ("memory_gib", "GiB of memory"))


def check_runs(draft: Draft) -> None:
    """Note every run that makes no sense. Runs on a cluster that could not be read are taken as they are."""
    if not draft.cluster_known:
        return
    nodes = {node.name: node for node in draft.doc.cluster.nodes}
    running = [(row, work) for row, work in enumerate(draft.doc.workloads) if work.run is not None]
    for row, work in running:
        _check_placement(draft, row, work, nodes)
        _check_levels(draft, row, work)
    _check_nodes(draft, running, nodes)


def _check_placement(draft: Draft, row: int, work: WorkloadDoc, nodes: dict[str, NodeDoc]) -> None:
    """Ensures that a gang lies complete in one pool, on nodes that exist."""
    assert work.run is not None
    path = f"{draft.path('workloads', row)}.run.placement"
    placement = work.run.placement
    for name in placement:
        if name not in nodes and not draft.knows("cluster.nodes", name):
            problem = f"{show(work.id)} runs on the unknown node {show(name)}"
            remedy = f"list the node with state down if it is gone, or take the run out; {nearest(name, list(nodes), 3)}"
            draft.refuse(field_path(path, name), problem, remedy)
    if (placed := sum(placement.values())) != work.tasks:
        problem = f"{placed} tasks of {show(work.id)} are placed, it has {work.tasks}"
        draft.refuse(path, problem, "place every task of the gang, once")
    pools = sorted({nodes[name].pool for name in placement if name in nodes})
    if len(pools) > 1:
        draft.refuse(path, f"{show(work.id)} runs in several pools: {', '.join(map(show, pools))}", "a gang runs in one pool")


def _check_levels(draft: Draft, row: int, work: WorkloadDoc) -> None:
    """Ensures that what running work asks of the topology has a meaning."""
    levels = draft.doc.cluster.levels
    for where, level in named_levels(work):
        if level not in levels:
            problem = f"{show(work.id)} runs and names the unknown level {show(level)}"
            draft.refuse(f"{draft.path('workloads', row)}.{where}", problem, nearest(level, levels))


def named_levels(work: WorkloadDoc) -> Iterator[tuple[str, str]]:
    """The levels that a workload names, with the field that names them."""
    wish = work.topology
    if wish is None:
        return
    if wish.required is not None:
        yield "topology.required", wish.required
    if wish.preferred is not None:
        yield "topology.preferred", wish.preferred
    if wish.segment is not None:
        yield "topology.segment.level", wish.segment.level


def _check_nodes(draft: Draft, running: list[tuple[int, WorkloadDoc]], nodes: dict[str, NodeDoc]) -> None:
    """Ensures that no node holds more than it has.

    Work that is leaving (`terminating_until`) and work that was ordered for later (a start in the future) may share a node:
    each fits together with the rest, on its own.
    """
    stays: dict[str, list[WorkloadDoc]] = defaultdict(list)
    leaves: dict[str, list[WorkloadDoc]] = defaultdict(list)
    comes: dict[str, list[WorkloadDoc]] = defaultdict(list)
    for _, work in running:
        assert work.run is not None
        start = work.run.start_time
        ordered = start is not None and start > draft.doc.now
        group = leaves if work.run.terminating_until is not None else comes if ordered else stays
        for name in work.run.placement:
            group[name].append(work)
    for row, node in enumerate(draft.doc.cluster.nodes):
        for guests in (leaves, comes) if node.name in leaves and node.name in comes else (leaves | comes,):
            _check_node(draft, row, node, stays.get(node.name, []) + guests.get(node.name, []))


def _check_node(draft: Draft, row: int, node: NodeDoc, held: list[WorkloadDoc]) -> None:
    """Ensures that the tasks on one node fit it, in every resource that it states."""
    for field, unit in _RESOURCES if held else ():
        limit = getattr(node, field)
        used = [(_on_node(work, node, field), work.id) for work in held]
        if limit is not None and (total := sum(amount for amount, _ in used)) > limit:
            names = ", ".join(f"{show(key)} ({amount})" for amount, key in sorted(used, reverse=True)[:5])
            problem = f"node {show(node.name)} is over-full: {total} {unit} are in use, it has {limit}; largest: {names}"
            draft.refuse(f"{draft.path('cluster.nodes', row)}.{field}", problem, "correct the node or the placements on it")


def _on_node(work: WorkloadDoc, node: NodeDoc, field: str) -> int:
    """What the tasks of one workload take of a resource of the node."""
    assert work.run is not None
    return work.run.placement[node.name] * (getattr(work, f"{field}_per_task") or 0)
