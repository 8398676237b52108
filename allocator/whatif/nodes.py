"""Edits of the cluster: nodes that come, go, die for a while, or are serviced."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from allocator.domain import Cluster, Node, NodeState
from allocator.domain.trace import Job, Outage, Trace
from allocator.generate.events import serviced
from allocator.generate.files import refuse
from allocator.generate.fleet import ARCHITECTURES, build_nodes
from allocator.whatif.scenario_doc import AddDoc, FailDoc, MaintainDoc, NodesDoc
from allocator.whatif.spans import seconds
from allocator.wire.shapes import nearest

REASON = "what-if"


def chosen(cluster: Cluster, doc: NodesDoc, place: str) -> list[Node]:
    """The nodes that fit, by name.

    Raises
    ------
    SnapshotError
        If there is none, or several domains have that name.
    """
    found = sorted(cluster.nodes, key=lambda node: node.name)
    if doc.node is not None:
        found = _fitting(found, doc.node, [[node.name] for node in found], f"{place}.node", "node")
    if doc.pool is not None:
        found = _fitting(found, doc.pool, [[node.pool] for node in found], f"{place}.pool", "pool")
    if doc.domain is not None:
        found = _fitting(found, doc.domain, [node.domains for node in found], f"{place}.domain", "domain")
        _refuse_ambiguous(found, doc.domain, f"{place}.domain")
    if doc.nodes is not None and doc.nodes > len(found):
        raise refuse(f"{place}.nodes", f"{doc.nodes} of {len(found)} nodes", f"give at most {len(found)}")
    return found[: doc.nodes]


def _fitting(nodes: list[Node], name: str, names: Sequence[Sequence[str]], place: str, what: str) -> list[Node]:
    """Those of the nodes that have this name among theirs."""
    found = [node for node, own in zip(nodes, names, strict=True) if name in own]
    if not found:
        known = sorted({each for own in names for each in own})
        raise refuse(place, f"there is no {what} {name!r} among the nodes that are left to choose", nearest(name, known))
    return found


def _refuse_ambiguous(nodes: list[Node], name: str, place: str) -> None:
    """A domain is known by its whole path."""
    paths = sorted({node.domains[: node.domains.index(name) + 1] for node in nodes})
    if len(paths) > 1:
        listed = ", ".join("/".join(path) for path in paths[:4])
        raise refuse(place, f"{len(paths)} domains are called {name!r}: {listed}", "narrow it down with pool, or name nodes")


def remove_nodes(trace: Trace, doc: NodesDoc, place: str) -> Trace:
    """The trace without some nodes. What is asked of them and of pools that are gone is forgotten; a job that could run nowhere
    else keeps its wish, for the check of the trace to name it."""
    gone = {node.name for node in chosen(trace.cluster, doc, place)}
    nodes = tuple(node for node in trace.cluster.nodes if node.name not in gone)
    pools = {node.pool for node in nodes}
    return replace(
        trace,
        cluster=replace(trace.cluster, nodes=nodes),
        jobs=tuple(_without(job, gone, pools) for job in trace.jobs),
        outages=tuple(outage for outage in trace.outages if outage.node not in gone),
        maintenance=tuple(work for work in trace.maintenance if work.node not in gone),
        usage=tuple(record for record in trace.usage if record.pool in pools),
    )


def _without(job: Job, gone: set[str], pools: set[str]) -> Job:
    work = job.workload
    left = tuple(pool for pool in work.pools if pool in pools) or work.pools
    excluded = tuple(name for name in work.exclude_nodes if name not in gone)
    if (left, excluded) == (work.pools, work.exclude_nodes):
        return job
    return replace(job, workload=replace(work, pools=left, exclude_nodes=excluded))


# --- nodes that come -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Kind:
    """What is bought: a node as it will be, how many make a rack, and how many racks a unit."""

    node: Node
    per_rack: int
    racks_per_unit: int


def add_nodes(trace: Trace, doc: AddDoc, place: str) -> Trace:
    """The trace with nodes from the start on. They hang below the top of the topology, in units and racks of their own."""
    cluster = trace.cluster
    kind = _kind(cluster, doc, place)
    count = doc.nodes if doc.nodes is not None else (doc.racks or 0) * kind.per_rack
    pool = doc.pool or kind.node.pool
    prefix = _free_prefix(cluster, pool)
    bought = tuple(
        replace(
            kind.node,
            name=f"{prefix}-{number + 1:03d}",
            pool=pool,
            domains=_domains(cluster, prefix, number // kind.per_rack, kind.racks_per_unit),
        )
        for number in range(count)
    )
    return replace(trace, cluster=replace(cluster, nodes=(*cluster.nodes, *bought)))


def _kind(cluster: Cluster, doc: AddDoc, place: str) -> _Kind:
    if doc.architecture is not None:
        architecture = ARCHITECTURES[doc.architecture]
        return _Kind(build_nodes(architecture, 1)[0], architecture.nodes_per_leaf, architecture.leaves_per_su)
    names = [[node.name] for node in cluster.nodes]
    model = _fitting(list(cluster.nodes), doc.like or "", names, f"{place}.like", "node")[0]
    per_rack = sum(node.domains == model.domains for node in cluster.nodes) if model.domains else 1
    return _Kind(replace(model, state=NodeState.UP, drain_deadline=None, reason=None), per_rack, 1)


def _domains(cluster: Cluster, prefix: str, rack: int, racks_per_unit: int) -> tuple[str, ...]:
    """One domain for each level above the node: the top as it is, if there is one top; racks below, and units between."""
    depth = len(cluster.levels) - 1
    unit = f"{prefix}-unit{rack // racks_per_unit + 1}"
    names = [unit] * depth
    if depth:
        names[-1] = f"{unit}/rack{rack % racks_per_unit + 1}"
    tops = {node.domains[0] for node in cluster.nodes if node.domains}
    if depth > 1 and len(tops) == 1:
        names[0] = tops.pop()
    return tuple(names)


def _free_prefix(cluster: Cluster, pool: str) -> str:
    """What new names begin with: `gb300-new`, or with a number if there are such already."""
    names = [name for node in cluster.nodes for name in (node.name, *node.domains)]
    prefixes = (f"{pool}-new{number or ''}" for number in itertools.count())
    return next(prefix for prefix in prefixes if not any(name.startswith(f"{prefix}-") for name in names))


# --- nodes that are away for a while -------------------------------------------------------------------------------------


def fail_nodes(trace: Trace, doc: FailDoc, place: str) -> Trace:
    """The trace with nodes that die at a moment."""
    begins = trace.start + seconds(doc.at)
    ends = trace.end if doc.lasts is None else begins + seconds(doc.lasts)
    if not trace.start <= begins < min(ends, trace.end):
        raise refuse(f"{place}.at", "nothing dies inside the trace", f"it lasts {trace.end - trace.start} s")
    lost = (Outage(node=node.name, start=begins, end=ends, reason=REASON) for node in chosen(trace.cluster, doc, place))
    return replace(trace, outages=tuple(sorted((*trace.outages, *lost), key=lambda row: (row.start, row.node))))


def service_nodes(trace: Trace, doc: MaintainDoc, place: str) -> Trace:
    """The trace with a plan of maintenance.

    Raises
    ------
    SnapshotError
        If none of the nodes fits, or work on the first of them begins after the end.
    """
    begins, nodes = trace.start + seconds(doc.at), chosen(trace.cluster, doc, place)
    if begins >= trace.end:
        problem = f"{doc.at!r} after the start the trace has ended: nothing is serviced in it"
        raise refuse(f"{place}.at", problem, f"give a moment before {trace.end - trace.start} s")
    planned = serviced(
        nodes, begins, seconds(doc.lasts), seconds(doc.notice), earliest=trace.start, batch=doc.batch, drain=doc.drain
    )
    return replace(trace, maintenance=(*trace.maintenance, *planned))
