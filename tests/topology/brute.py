"""All placements of a tiny gang, by trying every number of tasks on every node."""

from __future__ import annotations

from collections import Counter
from itertools import product

from allocator.domain import Workload
from allocator.topology import IntArray, Layout

Placement = dict[int, int]


def is_valid(layout: Layout, work: Workload, placement: Placement, room: IntArray) -> bool:
    """Whether all tasks lie in one pool, within the room of the nodes, the required domain and the segments."""
    if sum(placement.values()) != work.tasks or any(not 0 < tasks <= room[node] for node, tasks in placement.items()):
        return False
    wish = work.topology
    if len({int(layout.pool[node]) for node in placement}) != 1:
        return False
    if wish.required is not None and domains_touched(layout, placement)[layout.levels.index(wish.required)] != 1:
        return False
    if wish.segment is None:
        return True
    held: Counter[int] = Counter()
    for node, tasks in placement.items():
        held[int(layout.domain[layout.levels.index(wish.segment.level), node])] += tasks
    return sum(tasks % wish.segment.tasks != 0 for tasks in held.values()) <= 1


def domains_touched(layout: Layout, placement: Placement) -> list[int]:
    """Number of domains by level."""
    return [len({int(level[node]) for node in placement}) for level in layout.domain]


def all_placements(layout: Layout, work: Workload, room: IntArray) -> list[Placement]:
    """Every valid placement."""
    found = []
    for counts in product(*(range(min(int(tasks), work.tasks) + 1) for tasks in room)):
        placement = {node: tasks for node, tasks in enumerate(counts) if tasks}
        if sum(counts) == work.tasks and is_valid(layout, work, placement, room):
            found.append(placement)
    return found
