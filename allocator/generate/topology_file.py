"""A cluster from a topology file: an `ibnetdiscover` dump, or a Slurm topology.conf in tree or block form.

Neither form says what a node holds. GPUs per node come from the number of compute adapters of a host (`ibnetdiscover`),
or from the form (a tree: 8-GPU nodes; blocks: the 4-GPU trays of NVL72 racks), unless the caller knows better. CPUs and
memory stay unlimited.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from allocator.domain import Cluster
from allocator.generate.fabric import looks_like_fabric, read_fabric
from allocator.generate.files import read_text, refuse
from allocator.generate.slurm_topology import looks_like_slurm, read_slurm_topology


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyOptions:
    """What the file does not say. None: the form's default."""

    pool: str | None = None
    gpus_per_node: int | None = None


def read_topology(path: Path, options: TopologyOptions | None = None) -> tuple[Cluster, tuple[str, ...]]:
    """The cluster of a topology file, and notes on what the file leaves open.

    Raises
    ------
    SnapshotError
        Where the file is of no known form or contradicts itself.
    """
    options = TopologyOptions() if options is None else options
    if options.gpus_per_node is not None and not 1 <= options.gpus_per_node <= 64:
        raise refuse("gpus_per_node", f"{options.gpus_per_node} GPUs per node", "give 1 to 64")
    text = read_text(path)
    if looks_like_fabric(text):
        return read_fabric(text, str(path), pool=options.pool, gpus_per_node=options.gpus_per_node)
    if looks_like_slurm(text):
        return read_slurm_topology(text, str(path), pool=options.pool, gpus_per_node=options.gpus_per_node)
    raise refuse(
        str(path),
        "is no topology that is known here",
        "give the output of ibnetdiscover, or a Slurm topology.conf with SwitchName= or BlockName= lines",
    )
