"""Whether a workload fits a healthy cluster at all: never, not as long as nodes are away, or under its promise."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from allocator.domain import Reason, Workload
from allocator.entitlement.requests import request_of
from allocator.topology import (
    CPUS,
    GPUS,
    MEMORY,
    MOST_ANSWERS,
    NEVER,
    BoolArray,
    IntArray,
    Layout,
    can_place,
    largest_gang,
    shape_of,
    suitable,
    tasks_per_node,
)


class Health(NamedTuple):
    """What the empty cluster says to one class of workloads.

    `impossible` is (reason, detail) for what can never start as it is. `fits`: fits the nodes that accept work now.
    `fits_promise`: fits those of them that do not drain before the promise ends.
    """

    impossible: tuple[str, str] | None
    fits: bool
    fits_promise: bool


class HealthCheck:
    """Judges workloads by class, and remembers: most workloads look like many others.

    Without announced drains nothing depends on the clock, so that what it remembers holds as long as the nodes are as they are.
    """

    def __init__(self, layout: Layout, now: int) -> None:
        self._layout = layout
        self._now = now
        self._deadlines_matter = bool((layout.deadline[layout.accepting] < NEVER).any())
        self._known: dict[Hashable, Health] = {}
        self._room: dict[Hashable, IntArray] = {}
        self._largest: dict[Hashable, int] = {}

    def at(self, layout: Layout, now: int) -> HealthCheck:
        """A check of these nodes at this instant: itself, with all it knows, where its answers are the same."""
        same = layout.index is self._layout.index and np.array_equal(layout.accepting, self._layout.accepting)
        clock = self._deadlines_matter or bool((layout.deadline[layout.accepting] < NEVER).any())
        return self if same and not clock and len(self._known) < MOST_ANSWERS else HealthCheck(layout, now)

    def judge_all(self, works: Sequence[Workload], request: IntArray, promise: IntArray) -> tuple[list[Health], IntArray]:
        """The health of each class of workloads, and the class of each, shape (num_workloads,).

        `promise` are the seconds of their promises, `request` equal numbers for equals; shape (num_workloads,) each.
        """
        seconds = promise if self._deadlines_matter else np.zeros_like(promise)
        code = request * (int(seconds.max(initial=0)) + 1) + seconds
        _, first, kind = np.unique(code, return_index=True, return_inverse=True)
        return [self._of(works[row], int(seconds[row])) for row in first.tolist()], kind

    def _of(self, work: Workload, promise: int) -> Health:
        key = request_of(work), promise
        found = self._known.get(key)
        if found is None:
            labels = tuple(sorted(work.node_labels.items())) if work.node_labels else ()
            nodes = (work.pools, labels, work.exclude_nodes, work.gpus_per_task, work.cpus_per_task, work.memory_gib_per_task)
            found = self._known[key] = self._judge(work, nodes, promise)
        return found

    def _judge(self, work: Workload, nodes: Hashable, promise: int) -> Health:
        layout = self._layout
        reason = self._room_for_none(work, nodes)
        if reason is not None:
            return Health((Reason.INVALID_REQUEST.value, reason), fits=False, fits_promise=False)
        if not self._holds(work, nodes, "installed", np.ones(len(layout.names), dtype=bool)):
            detail = f"{work.tasks} tasks of {work.gpus_per_task} GPUs fit no {_where(work)}, even empty and healthy"
            return Health((Reason.TOPOLOGY_IMPOSSIBLE.value, detail), fits=False, fits_promise=False)
        fits = self._holds(work, nodes, "accepting", layout.accepting)
        if not (fits and self._deadlines_matter and promise):
            return Health(None, fits, fits)
        until = self._now + promise
        return Health(None, fits, self._holds(work, nodes, until, layout.accepting & (layout.deadline >= until)))

    def _room_for_none(self, work: Workload, nodes: Hashable) -> str | None:
        """Why not even one task fits any node, healthy or not."""
        room = self._room_on(work, nodes)
        return None if room.any() else _why_no_room(self._layout, work)

    def _room_on(self, work: Workload, nodes: Hashable) -> IntArray:
        """Tasks that each suitable node takes when it is empty."""
        room = self._room.get(nodes)
        if room is None:
            room = np.where(suitable(self._layout, work), tasks_per_node(self._layout.capacity, shape_of(work)), 0)
            self._room[nodes] = room
        return room

    def _holds(self, work: Workload, nodes: Hashable, which: Hashable, mask: BoolArray) -> bool:
        """Whether the gang fits the masked nodes when they are empty; `which` stands for the mask in the memory."""
        wish, levels = work.topology, self._layout.levels
        if wish.segment is not None or not (wish.required is None or wish.required in levels):
            return can_place(self._layout, work, self._room_on(work, nodes) * mask)
        key = (nodes, which, wish.required)
        largest = self._largest.get(key)
        if largest is None:
            required = -1 if wish.required is None else levels.index(wish.required)
            largest = self._largest[key] = largest_gang(self._layout, required, self._room_on(work, nodes) * mask)
        return work.tasks <= largest


def _where(work: Workload) -> str:
    """What a gang would have to lie in, for people."""
    wish = work.topology
    place = "pool" if wish.required is None else f"domain of level {wish.required!r}"
    return place if wish.segment is None else f"{place} in segments of {wish.segment.tasks} per {wish.segment.level!r}"


def _why_no_room(layout: Layout, work: Workload) -> str:
    """Why not one task fits any node, for people: the first of the demands that nothing meets."""
    pools = [idx for idx, name in enumerate(layout.pools) if not work.pools or name in work.pools]
    if not pools:
        return f"none of its pools exists: {', '.join(work.pools)}"
    accepted = np.isin(layout.pool, pools)
    asked = ((GPUS, "GPUs", work.gpus_per_task), (CPUS, "CPUs", work.cpus_per_task), (MEMORY, "GiB", work.memory_gib_per_task))
    for resource, unit, amount in asked:
        largest = int(layout.capacity[resource, accepted].max(initial=0))
        if amount is not None and amount > largest:
            return f"a task of {amount} {unit} fits no node of an accepted pool; the largest has {largest}"
    labelled = accepted.copy()
    for key, value in sorted(work.node_labels.items()):
        labelled &= layout.labels.get((key, value), False)
        if not labelled.any():
            return f"no node of an accepted pool carries the label {key}={value} with the others it asks for"
    if not suitable(layout, work).any():
        return "every node that it could use is excluded"
    return "no node that it may use is large enough for one task"
