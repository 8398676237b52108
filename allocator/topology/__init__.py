"""The cluster as arrays, and which gangs fit where."""

from allocator.topology.build import build_layout
from allocator.topology.fit import (
    Shape,
    can_place,
    eligible,
    fewest_domains,
    largest_by_pool,
    largest_gang,
    shape_of,
    suitable,
    tasks_per_node,
)
from allocator.topology.layout import CPUS, GPUS, MEMORY, MOST_ANSWERS, NEVER, UNLIMITED, BoolArray, IntArray, Layout
from allocator.topology.once import once
from allocator.topology.place import place_tasks, pool_order

__all__ = [
    "CPUS",
    "GPUS",
    "MEMORY",
    "MOST_ANSWERS",
    "NEVER",
    "UNLIMITED",
    "BoolArray",
    "IntArray",
    "Layout",
    "Shape",
    "build_layout",
    "can_place",
    "eligible",
    "fewest_domains",
    "largest_by_pool",
    "largest_gang",
    "once",
    "place_tasks",
    "pool_order",
    "shape_of",
    "suitable",
    "tasks_per_node",
]
