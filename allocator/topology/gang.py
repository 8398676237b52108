"""What the topology wish of a gang asks for, in numbers.

A gang of n tasks with segments of k is q = n // k whole segments and a rest of r = n % k tasks. A set of segment domains
that have room for c_d tasks holds it exactly if sum floor(c_d / k) > q (the rest takes the place of one more segment), or
if that sum is q and either r = 0 or some c_d mod k >= r. Without segments the nodes are the segment domains and k = 1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from allocator.domain import Workload
from allocator.topology.layout import BoolArray, IntArray, Layout

WHOLE_POOL = -1
"""Stands for the level above the coarsest: all nodes of the pool."""


class Request(NamedTuple):
    """A gang as the topology sees it.

    `required` and `level` are level indices: the tasks lie inside one domain of `required` (WHOLE_POOL: one pool), and
    every domain of `level` holds a multiple of `size` tasks, but for one remainder: `whole` segments and `rest` tasks.
    """

    required: int
    level: int
    size: int
    whole: int
    rest: int

    @property
    def tasks(self) -> int:
        """Tasks of the whole gang."""
        return self.whole * self.size + self.rest


def request_of(layout: Layout, work: Workload) -> Request | None:
    """Translate the wish of a workload; None if it names a level that does not exist."""
    wish = work.topology
    required, level, size = WHOLE_POOL, len(layout.levels) - 1, 1
    if wish.required is not None:
        if wish.required not in layout.levels:
            return None
        required = layout.levels.index(wish.required)
    if wish.segment is not None:
        if wish.segment.level not in layout.levels:
            return None
        asked = layout.levels.index(wish.segment.level)
        # Inside one domain of a level as fine as the segment's, any number is a multiple and a remainder.
        if asked > required:
            level, size = asked, wish.segment.tasks
    whole, rest = divmod(work.tasks, size)
    return Request(required, level, size, whole, rest)


class Offer(NamedTuple):
    """What groups of segment domains can take: whole segments, the largest remainder, tasks. Shape (num_groups,) each."""

    whole: IntArray
    rest: IntArray
    tasks: IntArray

    def holds(self, whole: int, rest: int) -> BoolArray:
        """Which groups can take that many whole segments and that remainder, shape (num_groups,)."""
        more: BoolArray = self.whole > whole
        exactly: BoolArray = (self.whole == whole) & (self.rest >= rest)
        return more | exactly


def offer_of(segment: IntArray, group: IntArray, room: IntArray, size: int, num_segments: int, num_groups: int) -> Offer:
    """Add up the room of nodes by segment domain, and what segment domains offer by group.

    `segment` and `group` number the segment domain and the group of each node, `room` its tasks, shape (num_nodes,); a
    segment domain lies inside one group.
    """
    if size == 1:
        tasks = sum_by(group, room, num_groups)
        return Offer(tasks, np.zeros(num_groups, dtype=np.int64), tasks)
    room_by_segment = sum_by(segment, room, num_segments)
    segment2group = np.zeros(num_segments, dtype=np.int64)
    segment2group[segment] = group
    whole, rest = np.divmod(room_by_segment, size)
    largest = np.zeros(num_groups, dtype=np.int64)
    np.maximum.at(largest, segment2group, rest)
    return Offer(sum_by(segment2group, whole, num_groups), largest, sum_by(segment2group, room_by_segment, num_groups))


def sum_by(group: IntArray, values: IntArray, num_groups: int) -> IntArray:
    """Sum of the values by group, shape (num_groups,). Exact: counts of tasks and GPUs stay far below 2**53."""
    return np.bincount(group, weights=values, minlength=num_groups).astype(np.int64)


def group_nodes(layout: Layout, level: int) -> tuple[IntArray, int]:
    """Number the pairs (domain of that level, pool): the pair of each node, and how many there are."""
    num_pools = len(layout.pools)
    if level == WHOLE_POOL:
        return layout.pool, num_pools
    pairs = layout.remembered(("pairs", level), lambda: layout.domain[level] * num_pools + layout.pool)
    return pairs, len(layout.domain_paths[level]) * num_pools
