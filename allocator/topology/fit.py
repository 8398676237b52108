"""Which nodes a workload may use, how many of its tasks fit, and whether the gang as a whole can lie there."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from allocator.domain import Workload
from allocator.topology.gang import WHOLE_POOL, Request, group_nodes, offer_of, request_of, sum_by
from allocator.topology.layout import CPUS, GPUS, MEMORY, BoolArray, IntArray, Layout
from allocator.topology.place import place_tasks

__all__ = [
    "Shape",
    "can_place",
    "eligible",
    "fewest_domains",
    "largest_by_pool",
    "largest_gang",
    "place_tasks",
    "shape_of",
    "suitable",
    "tasks_per_node",
]

Shape = tuple[int, int, int]
"""GPUs, CPUs and GiB of one task; 0 where nothing is asked for."""


def shape_of(work: Workload) -> Shape:
    """What one task of the workload needs of its node."""
    return (work.gpus_per_task, work.cpus_per_task or 0, work.memory_gib_per_task or 0)


def suitable(layout: Layout, work: Workload) -> BoolArray:
    """Nodes of accepted pools with the wanted labels that are not excluded, healthy or not, shape (num_nodes,), read-only."""
    return _suitable(layout, work.pools, work.node_labels, work.exclude_nodes)


def eligible(layout: Layout, work: Workload, until: int | None = None, by: IntArray | None = None) -> BoolArray:
    """Suitable nodes on which work may start now; with `until`, only those on which a promise may last until then.

    `by` is the instant by which promises must have ended on each node, shape (num_nodes,), in place of `layout.promise_by`.
    """
    mask = suitable(layout, work) & layout.accepting & ~layout.overdue
    if until is not None:
        mask &= (layout.promise_by if by is None else by) >= until
    return mask


def _suitable(layout: Layout, pools: tuple[str, ...], labels: Mapping[str, str], excluded: tuple[str, ...]) -> BoolArray:
    key = ("suitable", pools, tuple(sorted(labels.items())) if labels else (), excluded)
    return layout.remembered(key, lambda: _find_suitable(layout, pools, labels, excluded))


def _find_suitable(layout: Layout, pools: tuple[str, ...], labels: Mapping[str, str], excluded: tuple[str, ...]) -> BoolArray:
    mask = np.ones(len(layout.names), dtype=bool)
    if pools:
        mask &= np.isin(layout.pool, [idx for idx, name in enumerate(layout.pools) if name in pools])
    for label in labels.items():
        mask &= layout.labels.get(label, False)
    for name in excluded:
        if name in layout.index:
            mask[layout.index[name]] = False
    return mask


def tasks_per_node(free: IntArray, shape: Shape) -> IntArray:
    """How many tasks of that shape each node takes; `free` has shape (3, num_nodes), the result (num_nodes,)."""
    room: IntArray = free[GPUS] // shape[GPUS]
    for resource in (CPUS, MEMORY):
        if shape[resource]:
            room = np.minimum(room, free[resource] // shape[resource])
    return np.maximum(room, 0)


def can_place(layout: Layout, work: Workload, room: IntArray) -> bool:
    """Whether the gang fits in one pool, its required domain and its segments.

    `room` is the number of tasks that each node takes, 0 where the workload is not eligible, shape (num_nodes,).
    """
    request = request_of(layout, work)
    if request is None:
        return False
    segment, num_segments = group_nodes(layout, request.level)
    group, num_groups = group_nodes(layout, request.required)
    offer = offer_of(segment, group, room, request.size, num_segments, num_groups)
    return bool(offer.holds(request.whole, request.rest).any())


def largest_gang(layout: Layout, required: int, room: IntArray) -> int:
    """The most tasks that one domain of the level `required` (an index, -1: one pool) takes, of a gang without segments."""
    return int(largest_by_pool(layout, required, room).max(initial=0))


def largest_by_pool(layout: Layout, required: int, room: IntArray) -> IntArray:
    """The same for each pool on its own, shape (num_pools,)."""
    group, num_groups = group_nodes(layout, required)
    most: IntArray = sum_by(group, room, num_groups).reshape(-1, len(layout.pools)).max(axis=0, initial=0)
    return most


def fewest_domains(layout: Layout, work: Workload, pool: int) -> IntArray:
    """Fewest domains of each level that hold the gang on the suitable nodes of one empty, healthy pool, shape (num_levels,).

    Level by level on its own. The required level is respected, segments at their level and above it. Where the gang does
    not fit at all, 1.
    """
    labels = tuple(sorted(work.node_labels.items()))
    key = ("fewest", pool, work.tasks, shape_of(work), work.topology, labels, work.exclude_nodes)
    return layout.remembered(key, lambda: _fewest_domains(layout, work, pool))


def _fewest_domains(layout: Layout, work: Workload, pool: int) -> IntArray:
    num_levels = len(layout.levels)
    request = request_of(layout, work)
    mask = _suitable(layout, (), work.node_labels, work.exclude_nodes) & (layout.pool == pool)
    room = np.where(mask, tasks_per_node(layout.capacity, shape_of(work)), 0)
    if request is None or work.tasks == 1 or not can_place(layout, work, room):
        return np.ones(num_levels, dtype=np.int64)
    if request.size == 1:
        home = np.zeros_like(room) if request.required == WHOLE_POOL else layout.domain[request.required]
        fewest = [
            1 if level <= request.required else _fewest_parts(layout.domain[level], home, room, work.tasks)
            for level in range(num_levels)
        ]
        return np.array(fewest, dtype=np.int64)
    return np.array([_fewest_at(layout, request, room, level) for level in range(num_levels)], dtype=np.int64)


def _fewest_parts(domain: IntArray, home: IntArray, room: IntArray, tasks: int) -> int:
    """Fewest domains of one home that hold the tasks, with nothing else asked: those with most room, in the home that needs
    fewest. Some home holds them; each domain lies inside one."""
    total = np.bincount(domain, weights=room).astype(np.int64)
    home_of = np.zeros(len(total), dtype=np.int64)
    home_of[domain] = home
    order = np.lexsort((-total, home_of))
    owner, filled = home_of[order], np.cumsum(total[order])
    first = np.searchsorted(owner, owner)  # where the home of each domain begins
    inside = filled - (filled - total[order])[first]
    place = np.arange(len(order)) - first
    return int(place[inside >= tasks].min()) + 1


def _fewest_at(layout: Layout, request: Request, room: IntArray, level: int) -> int:
    """Fewest domains of one level, the least over the required domains that can hold the gang."""
    if level <= request.required:
        return 1
    nodes = room.nonzero()[0]
    home = np.zeros(len(nodes), dtype=np.int64) if request.required == WHOLE_POOL else layout.domain[request.required, nodes]
    counts = [_fewest_inside(layout, request, room, nodes[home == one], level) for one in np.unique(home)]
    return min(count for count in counts if count)


def _fewest_inside(layout: Layout, request: Request, room: IntArray, nodes: IntArray, level: int) -> int:
    """Fewest domains of that level among these nodes, 0 if they do not hold the gang."""
    _, segment = np.unique(layout.domain[request.level, nodes], return_inverse=True)
    _, group = np.unique(layout.domain[level, nodes], return_inverse=True)
    whole, rest, size = request.whole, request.rest, request.size
    everything = offer_of(segment, np.zeros_like(segment), room[nodes], size, len(nodes), 1)
    if not everything.holds(whole, rest)[0]:
        return 0
    if level > request.level:  # finer than the segments: their multiples are not looked at
        whole, rest, size, segment = request.tasks, 0, 1, group
    offer = offer_of(segment, group, room[nodes], size, len(nodes), int(group.max()) + 1)
    order = np.sort(offer.whole)[::-1]
    filled = np.cumsum(order)
    count = int(np.searchsorted(filled, whole)) + 1 if whole else 1
    if rest and filled[count - 1] == whole:
        threshold = order[count - 1] if whole else 0
        # The remainder joins a chosen domain, if one of those that may be chosen has room for it.
        joined = (offer.rest >= rest) & (offer.whole >= threshold)
        count += 0 if joined.any() else 1
    return count
