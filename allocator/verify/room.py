"""What is free after a decision, and who could still use it: shared by the verifier and by whoever repairs a decision."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from allocator.entitlement.alike import start_classes
from allocator.topology import IntArray
from allocator.verify.after import AfterState
from allocator.verify.clearing import clear_for
from allocator.verify.room_state import Cleared, Mode, Refusal, Room

__all__ = [
    "Mode",
    "Opening",
    "Refusal",
    "Room",
    "could_start",
    "could_start_over_unallocated",
    "free_after",
    "one_of_each_kind",
    "openings",
    "that_fit",
]


@dataclass(frozen=True, slots=True)
class Opening:
    """A way in which a waiting workload could start.

    `pool` is an index, `placement` maps node indices to tasks. `stops` are the rows of unallocated work that would have to
    stop (or, if they start in this decision, not to start); `idled` the GPUs freed by them that the start does not use.
    """

    row: int
    pool: int
    mode: Mode
    placement: Mapping[int, int]
    gpus: int
    stops: tuple[int, ...] = ()
    idled: int = 0

    @property
    def exempt(self) -> bool:
        """True where the stops would idle more GPUs than the start uses, so that nobody has to make them."""
        return self.idled > self.gpus


def free_after(after: AfterState) -> IntArray:
    """GPUs, CPUs and GiB that no task uses after the decision, shape (3, num_nodes)."""
    return after.free


def could_start(room: Room, row: int) -> Opening | Refusal:
    """How a waiting workload could start on free GPUs with all the rest unchanged, else the rule that forbids it.

    Pools are tried in the order in which the workload names them.
    """
    refusal = room.barred(row)
    if refusal is not None:
        return refusal
    known = room.refusals.get(room.alike[row])
    if known is not None and known[0] == room.places.version:
        return known[1]
    found = _could_start(room, row)
    if isinstance(found, Refusal):
        room.refusals[room.alike[row]] = room.places.version, found
    return found


def _could_start(room: Room, row: int) -> Opening | Refusal:
    """How any workload that may start in the same ways as this one could start."""
    refusal = room.limit(row)
    if refusal is not None:
        return refusal
    for pool in room.pools(row):
        mode = room.mode(row, pool)
        if isinstance(mode, Refusal):
            refusal = refusal or mode
            continue
        work = room.work(row)
        placement = room.places.find(work, pool, room.until(row, mode), room.masks)
        if placement is not None:
            return Opening(row, pool, mode, placement, work.gpus)
        refusal = refusal or Refusal("capacity", f"does not fit on what is free in {room.ent.layout.pools[pool]}")
    return refusal or Refusal("eligibility", "accepts no pool of the cluster")


def one_of_each_kind(room: Room, rows: IntArray) -> IntArray:
    """Positions, ascending, of the first of those rows that may start in the same ways. As long as nothing changes, where it
    could not start, none of them could."""
    _, first = np.unique(start_classes(room.ent)[rows], return_index=True)
    return np.sort(first)


def that_fit(room: Room, rows: IntArray) -> IntArray:
    """Those of the rows that have a placement on free GPUs at all, were they promised nothing: the others could not start."""
    _, first, request = np.unique(room.ent.works.request[rows], return_index=True, return_inverse=True)
    fits = np.fromiter((_has_place(room, row) for row in rows[first].tolist()), np.bool_, len(first))
    return rows[fits[request]]


def _has_place(room: Room, row: int) -> bool:
    return any(room.places.holds(room.work(row), pool, None, room.masks) for pool in room.pools(row))


def openings(room: Room, rows: IntArray, could: Callable[[Room, int], Opening | Refusal] = could_start) -> Iterator[Opening]:
    """The openings of those of the rows that have one, in their order."""
    kinds = start_classes(room.ent)[rows]
    able = [kinds[at] for at in one_of_each_kind(room, rows).tolist() if isinstance(could(room, int(rows[at])), Opening)]
    for row in rows[np.isin(kinds, able)].tolist():
        found = could(room, row)
        if isinstance(found, Opening):
            yield found


def could_start_over_unallocated(room: Room, row: int) -> Opening | Refusal:
    """How an entitled waiting workload could start on free GPUs and those of unallocated work, else what forbids it.

    The opening found may be exempt; among those of several pools one that is not comes first.
    """
    refusal = room.barred(row)
    if refusal is not None:
        return refusal
    if not room.ent.works.entitled[row]:
        return Refusal("licence", "is not entitled")
    exempt: Opening | None = None
    for pool in room.pools(row):
        found = _over_unallocated(room, row, pool)
        if isinstance(found, Opening) and not found.exempt:
            return found
        if isinstance(found, Opening):
            exempt = exempt or found
        else:
            refusal = refusal or found
    return exempt or refusal or Refusal("eligibility", "accepts no pool of the cluster")


def _over_unallocated(room: Room, row: int, pool: int) -> Opening | Refusal:
    """The opening in one pool, if there is one."""
    mode = room.mode(row, pool)
    if isinstance(mode, Refusal):
        return mode
    if mode is Mode.UNCHARGED:
        return Refusal("funding", "its promise is not funded, and unallocated work takes nothing from unallocated work")
    cleared = clear_for(room, row, pool, mode)
    if cleared is None:
        return Refusal("capacity", f"does not fit in {room.ent.layout.pools[pool]}, whatever unallocated work stops")
    over = room.limit(row, cleared.stops)
    if over is not None:
        own = _within_limit(room, row, pool, mode)
        if own is None:
            return over
        cleared = own
    return Opening(row, pool, mode, cleared.placement, room.work(row).gpus, cleared.stops, cleared.idled)


def _within_limit(room: Room, row: int, pool: int, mode: Mode) -> Cleared | None:
    """Room made by work under the vertices whose GPU limit binds, so that the limit holds after all."""
    tree, works = room.ent.tree, room.ent.works
    bound = room.binding(row)
    cleared = clear_for(room, row, pool, mode, lambda stop: bound in tree.path(int(works.leaf[stop])))
    return cleared if cleared is not None and room.limit(row, cleared.stops) is None else None
