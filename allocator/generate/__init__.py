"""Snapshots from a seed, from a fabric dump or Slurm topology, and from public job traces."""

from allocator.generate.families import FAMILIES, Family, generate_snapshot
from allocator.generate.params import SnapshotParams

__all__ = ["FAMILIES", "Family", "SnapshotParams", "generate_snapshot"]
