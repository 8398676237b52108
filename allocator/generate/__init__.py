"""Snapshots from a seed, from a fabric dump or Slurm topology, and from public job traces."""

from allocator.generate.families import FAMILIES, Family, generate_snapshot
from allocator.generate.on_topology import generate_on_topology
from allocator.generate.params import SnapshotParams
from allocator.generate.topology_file import read_topology
from allocator.generate.trace_snapshot import snapshot_from_trace

__all__ = [
    "FAMILIES",
    "Family",
    "SnapshotParams",
    "generate_on_topology",
    "generate_snapshot",
    "read_topology",
    "snapshot_from_trace",
]
