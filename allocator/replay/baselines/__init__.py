"""Policies to compare with, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from allocator.replay.policy import SchedulingPolicy

BASELINES: Mapping[str, Callable[[], SchedulingPolicy]] = {}
"""What makes each policy anew, ready for a first decision."""
