"""Whether a snapshot contradicts itself: one function per part, every contradiction named."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any

from allocator.wire.draft import Draft
from allocator.wire.shapes import nearest, show
from allocator.wire.snapshot_doc import AllocationDoc, UsageDoc


def check_consistency(draft: Draft) -> None:
    """Note every contradiction of everything but the runs (see `runs`) and the requests (see `requests`)."""
    if draft.cluster_known:
        _check_levels(draft)
        _check_nodes(draft)
    _check_unique(draft, "cluster.nodes", draft.doc.cluster.nodes, "name")
    _check_unique(draft, "workloads", draft.doc.workloads, "id")
    _check_unique(draft, "reservations", draft.doc.reservations, "workload")
    check_budgets(draft)
    _check_usage(draft)


def check_budgets(draft: Draft) -> None:
    """Note every contradiction of the budget tree."""
    _check_unique(draft, "budgets", draft.doc.budgets, "id")
    _check_parents(draft)
    _check_cycles(draft)


def _check_unique(draft: Draft, section: str, elements: Iterable[Any], key: str) -> None:
    """Ensures that no name is given twice."""
    names = list(map(attrgetter(key), elements))
    if len(set(names)) == len(names):
        return
    first: dict[str, int] = {}
    for row, name in enumerate(names):
        if name in first:
            problem = f"{show(name)} was given before, at {draft.path(section, first[name])}"
            draft.refuse(f"{draft.path(section, row)}.{key}", problem, f"every {key} may stand here once")
        first.setdefault(name, row)


def _check_levels(draft: Draft) -> None:
    """Ensures that levels are told apart and slowdowns belong to levels."""
    cluster = draft.doc.cluster
    for at, level in enumerate(cluster.levels):
        if level in cluster.levels[:at]:
            path = f"$.cluster.levels[{at}]"
            draft.refuse(path, f"the level {show(level)} was given before", "give each level a name of its own")
    for level in cluster.slowdown:
        if level not in cluster.levels:
            draft.refuse(f"$.cluster.slowdown.{level}", f"unknown level {show(level)}", nearest(level, cluster.levels))


def _check_nodes(draft: Draft) -> None:
    """Ensures that there is a cluster and that each node names one domain per level above it."""
    cluster = draft.doc.cluster
    if not draft.unread.get("cluster.nodes") and not any(node.gpus for node in cluster.nodes):
        what = "no node has a GPU" if cluster.nodes else "the cluster is empty"
        draft.refuse("$.cluster.nodes", what, "give at least one node with GPUs; nodes that are out of service have state down")
    above = cluster.levels[:-1]
    for row, node in enumerate(cluster.nodes):
        if len(node.domains) != len(above):
            problem = f"node {show(node.name)} names {len(node.domains)} domains, there are {len(above)} levels above the node"
            names = f": {', '.join(map(show, above))}" if above else ""
            path = f"{draft.path('cluster.nodes', row)}.domains"
            draft.refuse(path, problem, f"give one domain per level, coarse to fine{names}")


def _check_parents(draft: Draft) -> None:
    """Ensures that every parent exists."""
    ids = {vertex.id for vertex in draft.doc.budgets}
    for row, vertex in enumerate(draft.doc.budgets):
        if vertex.parent is not None and vertex.parent not in ids and not draft.knows("budgets", vertex.parent):
            problem = f"unknown parent {show(vertex.parent)} of {show(vertex.id)}"
            remedy = f"give the id of a budget, or null; {nearest(vertex.parent, sorted(ids))}"
            draft.refuse(f"{draft.path('budgets', row)}.parent", problem, remedy)


def _check_cycles(draft: Draft) -> None:
    """Ensures that the budgets form a tree: each cycle is named once."""
    rows = {vertex.id: row for row, vertex in enumerate(draft.doc.budgets)}
    parent = {vertex.id: vertex.parent for vertex in draft.doc.budgets}
    settled: set[str] = set()
    for start in sorted(parent):
        walk = _walk_up(start, parent, settled)
        last = parent[walk[-1]] if walk else None
        if last in walk:
            cycle = walk[walk.index(last) :]
            way = " -> ".join(map(show, [*cycle, cycle[0]]))
            path = f"{draft.path('budgets', rows[cycle[0]])}.parent"
            draft.refuse(path, f"the budgets form a cycle: {way}", "give one of them the parent null")
        settled.update(walk)


def _walk_up(start: str, parent: Mapping[str, str | None], settled: set[str]) -> list[str]:
    """The vertices from `start` upwards, until one that is settled, the top, or one that was met already."""
    walk: dict[str, None] = {}
    at: str | None = start
    while at is not None and at in parent and at not in settled and at not in walk:
        walk[at] = None
        at = parent[at]
    return list(walk)


def _check_usage(draft: Draft) -> None:
    """Ensures that records end after they start, and that pieces with one id tell of the same work."""
    first: dict[str, tuple[int, UsageDoc]] = {}
    for row, record in enumerate(draft.doc.usage):
        if record.end < record.start:
            path = f"{draft.path('usage', row)}.end"
            draft.refuse(path, f"{record.end} lies before the start {record.start}", "give an end that is not before the start")
        if record.id is not None:
            at, other = first.setdefault(record.id, (row, record))
            if other is not record and _facts(other) != _facts(record):
                _refuse_piece(draft, row, record, at, other)


def _facts(record: UsageDoc) -> dict[str, object]:
    return {"allocation": record.allocation, "pool": record.pool, "gpus": record.gpus, "charged": record.charged}


def _refuse_piece(draft: Draft, row: int, record: UsageDoc, at: int, other: UsageDoc) -> None:
    """Name what differs between two records with one id."""
    for key, value in _facts(record).items():
        if value != (before := _facts(other)[key]):
            where = draft.path("usage", at)
            problem = f"{show(value)}, but the record at {where} with the same id {show(record.id)} has {show(before)}"
            remedy = "pieces of one record agree in all but their times; give others their own id"
            draft.refuse(f"{draft.path('usage', row)}.{key}", problem, remedy)


def leaves_of(budgets: Iterable[AllocationDoc]) -> tuple[set[str], set[str]]:
    """The ids of the leaves, and those of the vertices that have children."""
    vertices = list(budgets)
    inner = {vertex.parent for vertex in vertices if vertex.parent is not None}
    ids = {vertex.id for vertex in vertices}
    return ids - inner, ids & inner
