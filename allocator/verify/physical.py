"""What no decision may do, whatever the policy: the rules of placement alone.

For policies that know no budgets. Of the rules of the contract it checks `capacity`, `gang`, `single_node_task`, `topology`,
`eligibility` and of `health` that nothing starts where nothing may start and that work leaves dead nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from allocator.domain import Cluster, Decision, Node, NodeState, Snapshot, Start, Workload
from allocator.topology import shape_of
from allocator.verify.verdict import Violation

Used = Mapping[str, Sequence[int]]
"""GPUs, CPUs and GiB in use, by node."""


def verify_physical(snapshot: Snapshot, decision: Decision) -> tuple[Violation, ...]:
    """Every broken rule of placement.

    Parameters
    ----------
    snapshot
        The snapshot that the decision is for.
    decision
        Its starts and stops are looked at, nothing else.
    """
    nodes = {node.name: node for node in snapshot.cluster.nodes}
    works = {work.id: work for work in snapshot.workloads}
    used = {name: [0, 0, 0] for name in nodes}
    for work in snapshot.workloads:
        if work.run is not None:
            _add(used, work, work.run.placement, 1)

    down = {name for name, node in nodes.items() if node.state is NodeState.DOWN}

    def accepts(name: str) -> bool:
        node = nodes[name]
        return node.state is NodeState.UP and (node.drain_deadline is None or node.drain_deadline > snapshot.now)

    return tuple(physical_violations(snapshot.cluster, nodes, accepts, down, works, used, decision))


def physical_violations(
    cluster: Cluster,
    nodes: Mapping[str, Node],
    accepts: Callable[[str], bool],
    down: Collection[str],
    works: Mapping[str, Workload],
    used: Used,
    decision: Decision,
) -> Iterator[Violation]:
    """The same from what a caller keeps up to date: nodes and work by name, whether a node accepts work, which are
    down, what is in use."""
    stopped = {row.workload for row in decision.preemptions}
    after: dict[str, list[int]] = {}
    for key in stopped:
        work = works.get(key)
        if work is None or work.run is None:
            yield Violation("gang", key, "is stopped, but does not run")
            continue
        _add(_copied(after, used, work.run.placement), work, work.run.placement, -1)
    for start in decision.starts:
        found = works.get(start.workload)
        if found is None or (found.run is not None and start.workload not in stopped):
            yield Violation("gang", start.workload, "is started, but does not wait")
            continue
        broken = list(_unfit(cluster, nodes, accepts, found, start))
        yield from broken
        if not broken:
            _add(_copied(after, used, start.placement), found, start.placement, 1)
    if len({row.workload for row in decision.starts}) < len(decision.starts):
        yield Violation("gang", "starts", "a workload is started more than once")
    yield from _overfull(nodes, after)
    for work in works.values() if down else ():
        if work.run is not None and work.id not in stopped and any(name in down for name in work.run.placement):
            yield Violation("health", work.id, "must stop (a node of it is down), but is named in no preemption")


def unsuitable(work: Workload, node: Node) -> str:
    """Why a workload may not use a node, whatever its state; empty if it may."""
    if work.pools and node.pool not in work.pools:
        return f"which lies in pool {node.pool}; it accepts {', '.join(work.pools)}"
    missing = [f"{key}={value}" for key, value in sorted(work.node_labels.items()) if node.labels.get(key) != value]
    if missing:
        return f"which does not carry {', '.join(missing)}"
    return "which it excludes" if node.name in work.exclude_nodes else ""


def _unfit(
    cluster: Cluster, nodes: Mapping[str, Node], accepts: Callable[[str], bool], work: Workload, start: Start
) -> Iterator[Violation]:
    """What is wrong with one placement, capacity apart."""
    placement = start.placement
    if unknown := [name for name in placement if name not in nodes]:
        yield Violation("eligibility", work.id, f"is placed on {unknown[0]}, which is no node of the cluster")
        return
    if sum(placement.values()) != work.tasks or min(placement.values(), default=0) < 1:
        yield Violation("gang", work.id, f"{sum(placement.values())} of its {work.tasks} tasks are placed")
        return
    if len({nodes[name].pool for name in placement}) > 1:
        yield Violation("gang", work.id, "is spread over several pools")
    for name in placement:
        if not accepts(name):
            yield Violation("health", work.id, f"is started on {name}, which takes nothing")
        elif why := unsuitable(work, nodes[name]):
            yield Violation("eligibility", work.id, f"is placed on {name}, {why}")
        elif work.gpus_per_task > nodes[name].gpus:
            yield Violation("single_node_task", work.id, f"one task needs more GPUs than {name} has")
    yield from _torn(cluster, nodes, work, placement)


def _torn(cluster: Cluster, nodes: Mapping[str, Node], work: Workload, placement: Mapping[str, int]) -> Iterator[Violation]:
    wish = work.topology
    if wish.required is not None and len(_by_domain(cluster, nodes, placement, wish.required)) != 1:
        yield Violation("topology", work.id, f"must lie in one {wish.required}")
    if wish.segment is not None:
        domains = _by_domain(cluster, nodes, placement, wish.segment.level)
        if sum(tasks % wish.segment.tasks > 0 for tasks in domains.values()) > 1:
            yield Violation("topology", work.id, f"has several domains without whole segments of {wish.segment.tasks}")


def _by_domain(
    cluster: Cluster, nodes: Mapping[str, Node], placement: Mapping[str, int], level: str
) -> Counter[tuple[str, ...]]:
    """Tasks by domain of a level; empty if there is no such level."""
    found: Counter[tuple[str, ...]] = Counter()
    if level in cluster.levels:
        depth = cluster.levels.index(level) + 1
        for name, tasks in placement.items():
            path = (*nodes[name].domains, name)
            found[path[:depth]] += tasks
    return found


def _copied(after: dict[str, list[int]], used: Used, names: Mapping[str, int]) -> dict[str, list[int]]:
    """The amounts after the decision, with these nodes among them."""
    for name in names:
        if name not in after:
            after[name] = list(used[name])
    return after


def _add(amounts: Mapping[str, list[int]], work: Workload, placement: Mapping[str, int], sign: int) -> None:
    shape = shape_of(work)
    for name, tasks in placement.items():
        entry = amounts[name]
        for resource, amount in enumerate(shape):
            entry[resource] += sign * amount * tasks


def _overfull(nodes: Mapping[str, Node], after: Used) -> Iterator[Violation]:
    for name, (gpus, cpus, memory) in after.items():
        node = nodes[name]
        limits = ((gpus, node.gpus), (cpus, node.cpus), (memory, node.memory_gib))
        if any(limit is not None and amount > limit for amount, limit in limits):
            yield Violation("capacity", name, f"{gpus} of {node.gpus} GPUs, {cpus} CPUs and {memory} GiB would be in use")
