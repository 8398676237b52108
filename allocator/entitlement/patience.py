"""Who waits for victims of earlier decisions to leave, so that no new victims are chosen for it (`commitment`)."""

from __future__ import annotations

import numpy as np

from allocator.domain import Snapshot
from allocator.entitlement.contract import Contract
from allocator.topology import BoolArray, IntArray, Layout, can_place, eligible, place_tasks, shape_of, tasks_per_node


def waits_for_leavers(
    snapshot: Snapshot, layout: Layout, contract: Contract, wants: BoolArray, promise: IntArray, first: BoolArray
) -> BoolArray:
    """Mark the work that does not fit what is free, but will once those who are leaving have left, shape (num_workloads,).

    One after the other takes its place: those marked `first`, then by submit time and id. What an ordered start has claimed
    is taken. Everything is as it was just before `now`. `wants` marks what may start at all.
    """
    waits = np.zeros(len(snapshot.workloads), dtype=bool)
    if not contract.terminating.any():
        return waits
    free, later = _room(snapshot, layout, contract)
    order = np.lexsort((contract.submit, ~first)) if np.any(later > free) else np.empty(0, dtype=np.int64)
    for row in order[(wants & contract.waiting_before)[order]].tolist():
        if not np.any(later > free):
            break
        work = snapshot.workloads[row]
        mask = eligible(layout, work, snapshot.now + int(promise[row]) if promise[row] else None)
        for room in (free, later):
            tasks = np.where(mask, tasks_per_node(np.maximum(room, 0), shape_of(work)), 0)
            found = place_tasks(layout, work, tasks) if can_place(layout, work, tasks) else None
            if found is not None:
                waits[row] = room is later
                for node, count in found.items():
                    later[:, node] -= count * np.array(shape_of(work))
                np.minimum(free, later, out=free)
                break
    return waits


def _room(snapshot: Snapshot, layout: Layout, contract: Contract) -> tuple[IntArray, IntArray]:
    """What was free on each node just before `now`, and what will be once those who are leaving have left.

    Shape (3, num_nodes) each. A victim that is overdue leaves nobody knows when.
    """
    stays, leaves, comes = (np.zeros_like(layout.capacity) for _ in range(3))
    for row, work in enumerate(snapshot.workloads):
        if work.run is not None and (contract.ordered[row] or not contract.fresh[row]):
            placement = work.run.placement
            to = leaves if contract.terminating[row] else comes if contract.ordered[row] else stays
        elif contract.stopped_now[row] and work.stopped is not None and work.stopped.placement is not None:
            placement, to = work.stopped.placement, stays
        else:
            continue
        for name, tasks in placement.items():
            if name in layout.index:
                to[:, layout.index[name]] += tasks * np.array(shape_of(work))
    free = layout.capacity - stays - np.maximum(leaves, comes)
    return free, np.where(layout.overdue, free, layout.capacity - stays - comes)
