"""Snapshots from a seed, a fabric dump, Slurm topology and job logs; traces from a seed, a scenario and job logs."""

from allocator.generate.families import FAMILIES, Family, generate_snapshot
from allocator.generate.on_topology import generate_on_topology
from allocator.generate.organisation_trace import TraceParams, generate_trace
from allocator.generate.params import SnapshotParams
from allocator.generate.scenario import generate_scenario, scenarios
from allocator.generate.topology_file import read_topology
from allocator.generate.trace_from import LogOptions, trace_from_log
from allocator.generate.trace_snapshot import snapshot_from_trace

__all__ = [
    "FAMILIES",
    "Family",
    "LogOptions",
    "SnapshotParams",
    "TraceParams",
    "generate_on_topology",
    "generate_scenario",
    "generate_snapshot",
    "generate_trace",
    "read_topology",
    "scenarios",
    "snapshot_from_trace",
    "trace_from_log",
]
