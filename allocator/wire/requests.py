"""Whether waiting work asks for something that exists: allocation, pools, labels, levels, and nodes large enough for a task.

What needs the layout (racks that are too small, excluded nodes) is judged later, by the entitlement.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from decimal import Decimal

import msgspec

from allocator.domain import Issue, Reason, Rejection
from allocator.wire.consistency import leaves_of
from allocator.wire.draft import Draft, workload_path
from allocator.wire.runs import named_levels
from allocator.wire.shapes import nearest, show
from allocator.wire.snapshot_doc import NodeDoc, WorkloadDoc

Finding = tuple[Reason, Issue]
"""What is wrong with a request, and the reason code it gets."""


_DECODER = msgspec.json.Decoder(float_hook=Decimal)
_ENCODER = msgspec.json.Encoder(decimal_format="number", order="sorted")


class Requests:
    """Judges waiting workloads against one cluster and one budget tree. Answers for equal requests are remembered.

    `leaves` are further vertices that work may belong to.
    """

    def __init__(self, draft: Draft, leaves: Collection[str] = ()) -> None:
        self._draft = draft
        self._leaves, self._inner = leaves_of(draft.doc.budgets)
        self._leaves.update(leaves)
        self._levels = draft.doc.cluster.levels
        self._nodes = _group_nodes(draft.doc.cluster.nodes)
        self._pools = sorted(self._nodes)
        self._num_gpus = {pool: sum(node.gpus for node in draft.doc.cluster.nodes if node.pool == pool) for pool in self._pools}
        # A cluster of which something is missing refuses the document; what it cannot hold says nothing about a request.
        self._comparable = draft.cluster_known and not draft.unread.get("cluster.nodes") and any(self._num_gpus.values())
        self._accepted: dict[tuple[object, ...], list[NodeDoc]] = {}
        self._sound: set[tuple[object, ...]] = set()

    def findings(self, work: WorkloadDoc) -> list[Finding]:
        """Everything that is wrong with one workload; most have nothing, and most of those look like another one."""
        labels = tuple(work.node_labels.items())
        shape = (work.gpus_per_task, work.cpus_per_task, work.memory_gib_per_task)
        levels = tuple(named_levels(work)) if work.topology is not None else ()
        key = (work.allocation, work.pools, labels, shape, work.tasks, levels)
        if key in self._sound:
            return []
        found = [*self._check_allocation(work)] if self._draft.budgets_known else []
        if self._draft.cluster_known:
            found += self._check_levels(work)
        if self._comparable:
            found += self._check_cluster(work)
        if not found:
            self._sound.add(key)
        return found

    def _check_allocation(self, work: WorkloadDoc) -> Iterable[Finding]:
        """Ensures that work belongs to a leaf of the budget tree."""
        key = work.allocation
        if key in self._leaves or self._draft.knows("budgets", key):
            return
        if key in self._inner:
            remedy = "submit to a vertex without children"
            if leaf := self._leaf_below(key):
                remedy += f", for example {show(leaf)}"
            yield _invalid(work, "allocation", f"{show(key)} is not a leaf of the budget tree", remedy)
        else:
            yield _invalid(work, "allocation", f"unknown allocation {show(key)}", nearest(key, sorted(self._leaves)))

    def _leaf_below(self, key: str) -> str | None:
        """The first leaf under a vertex; None where the tree is a cycle there."""
        seen: set[str] = set()
        while key in self._inner and key not in seen:
            seen.add(key)
            key = min(vertex.id for vertex in self._draft.doc.budgets if vertex.parent == key)
        return key if key in self._leaves else None

    def _check_levels(self, work: WorkloadDoc) -> Iterable[Finding]:
        """Ensures that every level named exists."""
        for where, level in named_levels(work):
            if level not in self._levels:
                issue = _issue(work, where, f"unknown level {show(level)}", nearest(level, self._levels))
                yield Reason.TOPOLOGY_IMPOSSIBLE, issue

    def _check_cluster(self, work: WorkloadDoc) -> Iterable[Finding]:
        """Ensures that some node of an accepted pool, with the labels, can hold a task, and that the gang fits such a pool."""
        accepted = [pool for pool in work.pools or self._pools if pool in self._nodes]
        if not accepted:
            problem = f"no accepted pool exists: {', '.join(map(show, work.pools))}"
            yield _invalid(work, "pools", problem, nearest(work.pools[0] if work.pools else "", self._pools))
            return
        nodes = self._nodes_for(tuple(accepted), work.node_labels)
        if not nodes:
            problem = (
                f"no node of {', '.join(map(show, accepted))} has the labels {show(dict(sorted(work.node_labels.items())))}"
            )
            yield _invalid(work, "node_labels", problem, "ask for labels that nodes of an accepted pool have, or for none")
            return
        yield from self._check_shape(work, nodes, accepted)

    def _check_shape(self, work: WorkloadDoc, nodes: list[NodeDoc], accepted: list[str]) -> Iterable[Finding]:
        """Ensures that one task fits a node and that the pool has as many GPUs as the gang."""
        if not any(_fits(work, node) for node in nodes):
            where = f"nodes of {', '.join(map(show, accepted))}"
            yield from _too_large(work, nodes, where)
        largest = max(accepted, key=lambda pool: self._num_gpus[pool])
        asked, most = work.tasks * work.gpus_per_task, self._num_gpus[largest]
        if asked > most:
            gang = f"{work.tasks} tasks of {work.gpus_per_task} GPUs are {asked} GPUs"
            problem = f"{gang}, the largest accepted pool {show(largest)} has {most}"
            yield Reason.TOPOLOGY_IMPOSSIBLE, _issue(work, "tasks", problem, "a gang runs in one pool: ask for fewer")

    def _nodes_for(self, accepted: tuple[str, ...], labels: Mapping[str, str]) -> list[NodeDoc]:
        """One node of each kind in the accepted pools that carries the labels."""
        key = (accepted, *sorted(labels.items()))
        if key not in self._accepted:
            kinds = [node for pool in accepted for node in self._nodes[pool]]
            self._accepted[key] = [node for node in kinds if labels.items() <= node.labels.items()]
        return self._accepted[key]


def reject(draft: Draft, key: str, findings: Iterable[Finding], raw: bytes) -> None:
    """Note a rejection; a request that is invalid in itself outweighs one that this topology cannot meet."""
    known = list(findings)
    invalid = any(reason is Reason.INVALID_REQUEST for reason, _ in known)
    reason = Reason.INVALID_REQUEST if invalid else Reason.TOPOLOGY_IMPOSSIBLE
    detail = " | ".join(str(issue) for _, issue in known)
    draft.rejected.append(Rejection(workload=key, reason=reason, detail=detail, raw=raw))
    draft.rejections += [issue for _, issue in known]


def canonical_raw(raw: bytes) -> bytes:
    """The JSON text of a workload in canonical order, with every number as it was written."""
    try:
        value = _DECODER.decode(raw)
    except msgspec.ValidationError:  # an integer of thousands of digits
        return raw
    excluded = value.get("exclude_nodes") if isinstance(value, dict) else None
    if isinstance(excluded, list) and all(isinstance(name, str) for name in excluded):
        value["exclude_nodes"] = sorted(set(excluded))
    return _ENCODER.encode(value)


def _group_nodes(nodes: Iterable[NodeDoc]) -> dict[str, list[NodeDoc]]:
    """By pool, one node of each kind (capacity and labels)."""
    kinds: dict[str, dict[tuple[object, ...], NodeDoc]] = {}
    for node in nodes:
        kind = (node.gpus, node.cpus, node.memory_gib, *sorted(node.labels.items()))
        kinds.setdefault(node.pool, {}).setdefault(kind, node)
    return {pool: list(found.values()) for pool, found in kinds.items()}


def _fits(work: WorkloadDoc, node: NodeDoc) -> bool:
    """True where one task fits the empty node."""
    return (
        work.gpus_per_task <= node.gpus
        and (node.cpus is None or (work.cpus_per_task or 0) <= node.cpus)
        and (node.memory_gib is None or (work.memory_gib_per_task or 0) <= node.memory_gib)
    )


def _too_large(work: WorkloadDoc, nodes: list[NodeDoc], where: str) -> Iterable[Finding]:
    """Name the resources of a task that no node has; where each alone would fit, their combination."""
    single = 0
    for field in ("gpus", "cpus", "memory_gib"):
        asked = getattr(work, f"{field}_per_task") or 0
        most = max((_limit(node, field) for node in nodes), default=0.0)
        if asked > most:
            single += 1
            problem = f"{asked} exceeds every node, the largest of the {where} has {most:g}"
            yield _invalid(work, f"{field}_per_task", problem, f"ask for at most {most:g} per task")
    if not single:
        problem = f"no single one of the {where} has the GPUs, CPUs and memory of a task"
        yield _invalid(work, "gpus_per_task", problem, "ask for less per task")


def _limit(node: NodeDoc, field: str) -> float:
    limit = getattr(node, field)
    return float("inf") if limit is None else limit


def _invalid(work: WorkloadDoc, where: str, problem: str, remedy: str) -> Finding:
    return Reason.INVALID_REQUEST, _issue(work, where, problem, remedy)


def _issue(work: WorkloadDoc, where: str, problem: str, remedy: str) -> Issue:
    return Issue(path=f"{workload_path(work.id)}.{where}", problem=problem, remedy=remedy)
