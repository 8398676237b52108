"""Policies to compare with, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from allocator.replay.baselines.drf import Drf
from allocator.replay.baselines.fair_tree import FairTree
from allocator.replay.baselines.fifo_backfill import FifoBackfill
from allocator.replay.baselines.partitions import Partitions
from allocator.replay.baselines.priority_classes import PriorityClasses
from allocator.replay.baselines.priority_optout import PriorityOptOut
from allocator.replay.policy import SchedulingPolicy

BASELINES: Mapping[str, Callable[[], SchedulingPolicy]] = {
    "priority_optout": PriorityOptOut,
    "priority_classes": PriorityClasses,
    "partitions": Partitions,
    "fair_tree": FairTree,
    "drf": Drf,
    "fifo_backfill": FifoBackfill,
}
"""What makes each policy anew, ready for a first decision."""
