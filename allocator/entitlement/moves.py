"""Who may move: unprotected work on a node that an entitled gang needs for its domain (`relocation`).

A fact of the snapshot, fixed before anything is decided, so that engines and verifier agree on it. It is computed from who
waited just before `now` and from what nobody may stop: carrying out a decision never lets more work move at the same instant.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from allocator.domain import Workload
from allocator.entitlement.model import Entitlement, Forced
from allocator.topology import GPUS, BoolArray, IntArray, shape_of, tasks_per_node


def movable(ent: Entitlement, placeable: BoolArray) -> BoolArray:
    """Mark the runs that may stop and start elsewhere in their pool in one decision, shape (num_workloads,).

    They may be stopped by choice, lie on one node, and that node is wanted by a gang (`_gangs`). Sessions do not move: a
    new promise would be a renewal that nobody has counted.

    Parameters
    ----------
    ent
        The facts so far.
    placeable
        Work that has some healthy placement, shape (num_workloads,).
    """
    found = np.zeros(len(ent.snapshot.workloads), dtype=np.bool_)
    wanted = _wanted_nodes(ent)
    for row in np.flatnonzero(ent.works.stoppable & placeable).tolist() if wanted.any() else ():
        work = ent.snapshot.workloads[row]
        assert work.run is not None
        nodes = [ent.layout.index[name] for name in work.run.placement]
        found[row] = len(nodes) == 1 and wanted[nodes[0]] and not work.renew
    return found


def _wanted_nodes(ent: Entitlement) -> BoolArray:
    """Nodes that some gang could use if all that may be stopped made way, shape (num_nodes,)."""
    wanted = np.zeros(len(ent.layout.names), dtype=np.bool_)
    room, seen = _room_beside_firm(ent), set[tuple[object, ...]]()
    for row in _gangs(ent):
        work, promise = ent.snapshot.workloads[row], int(ent.works.promise[row])
        own = row if row in ent.own_limit else None
        kind = (
            work.pools, tuple(sorted(work.node_labels.items())), work.exclude_nodes, shape_of(work), work.tasks,
            work.topology, promise, own,
        )  # fmt: skip
        if kind not in seen:
            seen.add(kind)
            wanted |= _within_reach(ent, work, ent.may_start_on(row, ent.snapshot.now + promise), room)
    return wanted


def _gangs(ent: Entitlement) -> Iterator[int]:
    """Entitled gangs that wait for a domain: those that name a level, and those that no single node holds."""
    works, largest = ent.works, int(ent.layout.capacity[GPUS].max(initial=0))
    for row in np.flatnonzero(works.candidate & works.entitled & ~works.running & (works.promise > 0)).tolist():
        work = ent.snapshot.workloads[row]
        if work.tasks > 1 and (_level(work) is not None or work.gpus > largest):
            yield row


def _level(work: Workload) -> str | None:
    """The level of the domains that a gang asks for."""
    wish = work.topology
    return wish.required or wish.preferred or (wish.segment.level if wish.segment else None)


def _room_beside_firm(ent: Entitlement) -> IntArray:
    """What nobody may stop, and what starts in any case, leaves on each node, shape (3, num_nodes)."""
    works, room = ent.works, ent.layout.capacity.copy()
    for row in np.flatnonzero(works.running & ~works.stoppable & (works.forced == Forced.NONE)).tolist():
        work = ent.snapshot.workloads[row]
        assert work.run is not None
        for name, tasks in work.run.placement.items():
            room[:, ent.layout.index[name]] -= tasks * np.array(shape_of(work))
    for one in ent.reserved:
        for node, tasks in one.placement.items():
            room[:, node] -= tasks * np.array(shape_of(ent.snapshot.workloads[one.row]))
    return np.maximum(room, 0)


def _within_reach(ent: Entitlement, work: Workload, may_start: BoolArray, room: IntArray) -> BoolArray:
    """Nodes of the domains that could hold the gang, or a whole segment of it, shape (num_nodes,)."""
    layout, level = ent.layout, _level(work)
    domain = layout.pool if level is None else _paired(layout.domain[layout.levels.index(level)], layout.pool)
    tasks = np.where(may_start, tasks_per_node(room, shape_of(work)), 0)
    wish = work.topology
    least = min(work.tasks, wish.segment.tasks) if wish.segment and not (wish.required or wish.preferred) else work.tasks
    enough = np.bincount(domain, weights=np.minimum(tasks, work.tasks)) >= least
    return np.asarray((tasks > 0) & enough[domain])


def _paired(domain: IntArray, pool: IntArray) -> IntArray:
    """Domains told apart by pool, shape (num_nodes,)."""
    return np.asarray(domain * (int(pool.max(initial=0)) + 1) + pool)
