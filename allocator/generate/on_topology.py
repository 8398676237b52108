"""The work of a generated organisation on a cluster that was read from a topology file."""

from __future__ import annotations

from pathlib import Path

from allocator.domain import Snapshot
from allocator.generate.files import refuse
from allocator.generate.params import SnapshotParams
from allocator.generate.populate import generate_on
from allocator.generate.topology_file import TopologyOptions, read_topology


def generate_on_topology(
    path: Path,
    options: TopologyOptions | None = None,
    *,
    seed: int = 0,
    queue: float | None = None,
    leaves: int | None = None,
    history: bool = True,
) -> tuple[Snapshot, tuple[str, ...]]:
    """A mixed snapshot on the nodes of a topology file, and notes on what the file leaves open."""
    if seed < 0:
        raise refuse("seed", f"seed {seed} is negative", "give 0 or more")
    params = SnapshotParams(queue=queue, leaves=leaves, history=history)
    cluster, notes = read_topology(path, options)
    return generate_on(cluster, params, seed), notes
