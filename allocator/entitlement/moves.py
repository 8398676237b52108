"""Who may move: unprotected work on nodes that an entitled gang needs for its domain (`relocation`).

A fact of the snapshot, fixed before anything is decided, so that engines and verifier agree on it. Gangs and domains are
chosen by how things were just before `now`: carrying out a decision never lets more work move at the same instant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from allocator.domain import Workload
from allocator.entitlement.contract import Contract
from allocator.entitlement.costs import spread_cost
from allocator.entitlement.forced import UNFORCED
from allocator.entitlement.model import Entitlement
from allocator.topology import GPUS, BoolArray, IntArray, shape_of, tasks_per_node

MOST_GANGS = 16
"""Gangs for whose sake work moves in one decision, the largest: what may move has to be few for models to stay small."""

DOMAINS_EACH = 2
"""Domains by gang in which work may move, those that are nearest to being clear."""

MOST_NODES = 2
"""Nodes on which work that moves may lie: larger gangs lose a lot for a little, and are dear for the models."""


def movable(ent: Entitlement, contract: Contract, placeable: BoolArray) -> BoolArray:
    """Mark the runs that may stop and start elsewhere in their pool in one decision, shape (num_workloads,).

    They may be stopped by choice, lie on few nodes, and one of these is wanted by a gang that waits for a domain. Sessions do
    not move: a new promise would be a renewal that nobody has counted. Nor do gangs that would gain by it alone, because they
    are spread further now than a stop costs: nobody moves for its own sake.

    Parameters
    ----------
    ent
        The facts so far.
    placeable
        Work that has some healthy placement, shape (num_workloads,).
    """
    found = np.zeros(len(ent.snapshot.workloads), dtype=np.bool_)
    kinds = _gangs(ent, contract)
    wanted = _wanted_nodes(ent, contract, kinds) if kinds else np.zeros(len(ent.layout.names), dtype=np.bool_)
    for row in (ent.works.stoppable & placeable).nonzero()[0].tolist() if kinds else ():
        work = ent.snapshot.workloads[row]
        assert work.run is not None
        nodes = np.array(sorted(ent.layout.index[name] for name in work.run.placement), dtype=np.int64)
        if len(nodes) <= MOST_NODES and wanted[nodes].any() and not work.renew:
            found[row] = len(nodes) == 1 or spread_cost(ent, row, nodes) <= ent.works.lost_cost[row]
    return found


def _gangs(ent: Entitlement, contract: Contract) -> list[list[int]]:
    """The gangs for whose sake work may move, alike ones together: entitled, and more than any single node holds, or with a
    level that they ask for."""
    works, largest = ent.works, int(ent.layout.capacity[GPUS].max(initial=0))
    rows = [
        row
        for row in (works.entitled & contract.waiting_before & (works.promise > 0)).nonzero()[0].tolist()
        if (work := ent.snapshot.workloads[row]).tasks > 1 and (_level(work) is not None or work.gpus > largest)
    ]
    kinds: dict[tuple[object, ...], list[int]] = {}
    for row in sorted(rows, key=lambda row: (-int(works.gpus[row]), row))[:MOST_GANGS]:
        if works.candidate[row] and not works.running[row]:
            kinds.setdefault(_kind(ent, row), []).append(row)
    return list(kinds.values())


def _kind(ent: Entitlement, row: int) -> tuple[object, ...]:
    """What tells where a gang may lie."""
    work, own = ent.snapshot.workloads[row], row if row in ent.own_limit else None
    labels = tuple(sorted(work.node_labels.items()))
    return work.pools, labels, work.exclude_nodes, shape_of(work), work.tasks, work.topology, int(ent.works.promise[row]), own


def _level(work: Workload) -> str | None:
    """The level of the domains that a gang asks for."""
    wish = work.topology
    return wish.required or wish.preferred or (wish.segment.level if wish.segment else None)


@dataclass(frozen=True, slots=True)
class _Before:
    """What each node had just before `now`, shape (3, num_nodes): `room` beside what nobody may stop, and `free` of it."""

    room: IntArray
    free: IntArray


def _just_before(ent: Entitlement, contract: Contract) -> _Before:
    works, layout = ent.works, ent.layout
    promoted = contract.charged & ~contract.charged_before
    firm = works.running & ~works.fresh & ~works.stoppable & ~promoted & (works.forced == UNFORCED)
    room, free = layout.capacity.copy(), layout.capacity.copy()
    placements = contract.placements
    row, node, tasks = (column[placements.before] for column in (placements.row, placements.node, placements.tasks))
    use, stays = ent.columns.shape[:, row] * tasks, firm[row]
    for left, beside, own in zip(free, room, use, strict=True):
        np.subtract.at(left, node, own)
        np.subtract.at(beside, node[stays], own[stays])
    return _Before(np.maximum(room, 0), np.maximum(free, 0))


def _wanted_nodes(ent: Entitlement, contract: Contract, kinds: Sequence[Sequence[int]]) -> BoolArray:
    """Nodes of the domains that are nearest to being clear for some gang, shape (num_nodes,)."""
    wanted, before = np.zeros(len(ent.layout.names), dtype=np.bool_), _just_before(ent, contract)
    for rows in kinds:
        work, until = ent.snapshot.workloads[rows[0]], ent.snapshot.now + int(ent.works.promise[rows[0]])
        may_start = ent.may_start_on(rows[0], until)
        shape = shape_of(work)
        room, free = (np.where(may_start, tasks_per_node(amount, shape), 0) for amount in (before.room, before.free))
        domain, least, most = _domains(ent, work)
        held = np.bincount(domain, weights=np.minimum(room, work.tasks))
        missing = np.maximum(least - np.bincount(domain, weights=np.minimum(free, work.tasks)), 0)
        enough = (held >= least).nonzero()[0]
        nearest = enough[np.lexsort((enough, missing[enough]))][: most * len(rows)]
        wanted |= np.isin(domain, nearest) & (room > 0)
    return wanted


def _domains(ent: Entitlement, work: Workload) -> tuple[IntArray, int, int]:
    """The domain of each node that counts for a gang, the tasks that it should hold, and how many such domains to clear.

    A gang that asks for no level needs nodes.
    """
    layout, level, wish = ent.layout, _level(work), work.topology
    if level is None:
        return np.arange(len(layout.names)), 1, DOMAINS_EACH * work.tasks
    domain = layout.domain[layout.levels.index(level)] * len(layout.pools) + layout.pool
    if wish.segment and not (wish.required or wish.preferred):
        return domain, min(work.tasks, wish.segment.tasks), DOMAINS_EACH * -(-work.tasks // wish.segment.tasks)
    return domain, work.tasks, DOMAINS_EACH
