"""Nodes from the reference architectures.

An HGX scalable unit of H100 or B200 has 32 nodes behind one group of leaf switches, so that unit and leaf group coincide;
a B300 unit has 64 nodes in two leaf groups of 32. An NVL72 rack has 18 trays of four GPUs and is its own leaf group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from allocator.domain import Cluster, Issue, Node, SnapshotError

CLUSTER_NAME = "east"
HGX_LEVELS = ("cluster", "su", "leaf", "node")
NVL72_LEVELS = ("cluster", "su", "nvlink", "node")
SLOWDOWN = {"su": Fraction(1, 100), "leaf": Fraction(1, 100)}
"""One to three per cent across two leaf groups and three to six across four: per further domain, unit and leaf together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """One reference architecture: what a node holds, and how many nodes share a leaf group (called `leaf`) and a unit."""

    pool: str
    gpus_per_node: int
    cpus: int
    memory_gib: int
    nodes_per_leaf: int
    leaves_per_su: int
    arch: str = "x86_64"
    leaf: str = "leaf"


H100 = Architecture(pool="h100", gpus_per_node=8, cpus=112, memory_gib=2048, nodes_per_leaf=32, leaves_per_su=1)
B200 = Architecture(pool="b200", gpus_per_node=8, cpus=120, memory_gib=1792, nodes_per_leaf=32, leaves_per_su=1)
B300 = Architecture(pool="b300", gpus_per_node=8, cpus=128, memory_gib=2048, nodes_per_leaf=32, leaves_per_su=2)
GB200 = Architecture(
    pool="gb200", gpus_per_node=4, cpus=144, memory_gib=960, nodes_per_leaf=18, leaves_per_su=8, arch="aarch64", leaf="rack"
)

GB300 = Architecture(
    pool="gb300", gpus_per_node=4, cpus=144, memory_gib=960, nodes_per_leaf=18, leaves_per_su=8, arch="aarch64", leaf="rack"
)

ARCHITECTURES = {architecture.pool: architecture for architecture in (H100, B200, B300, GB200, GB300)}
"""By the name of the pool that they make."""

POOL_PARTS = {"h100": 4, "b200": 2, "b300": 1}
"""Relative sizes of three pools: 128, 64 and 32 nodes in the fleet of the workload model."""


def build_nodes(architecture: Architecture, num_nodes: int) -> list[Node]:
    """Nodes of one pool, units filled one after the other; the last unit may be partial."""
    pool = architecture.pool
    width = max(3, len(str(num_nodes)))
    nodes = []
    for number in range(num_nodes):
        leaf = number // architecture.nodes_per_leaf
        unit = leaf // architecture.leaves_per_su
        su_name = f"{pool}-su{unit + 1}"
        leaf_name = f"{su_name}/{architecture.leaf}{leaf % architecture.leaves_per_su + 1}"
        nodes.append(
            Node(
                name=f"{pool}-{number + 1:0{width}d}",
                pool=pool,
                gpus=architecture.gpus_per_node,
                domains=(CLUSTER_NAME, su_name, leaf_name),
                cpus=architecture.cpus,
                memory_gib=architecture.memory_gib,
                labels={"arch": architecture.arch},
            )
        )
    return nodes


def build_cluster(
    sizes: Sequence[tuple[Architecture, int]],
    *,
    levels: tuple[str, ...] = HGX_LEVELS,
    slowdown: Mapping[str, Fraction] | None = None,
) -> Cluster:
    """A cluster of several pools, each given by its architecture and its number of nodes."""
    nodes = [node for architecture, num_nodes in sizes for node in build_nodes(architecture, num_nodes)]
    return Cluster(levels=levels, nodes=tuple(nodes), slowdown=SLOWDOWN if slowdown is None else slowdown)


def split_nodes(gpus: int, pools: int) -> list[tuple[Architecture, int]]:
    """Nodes of each pool for a fleet of `gpus` GPUs: all H100, or H100, B200 and B300 as 4 : 2 : 1."""
    if gpus % 8:
        below, above = gpus // 8 * 8, (gpus // 8 + 1) * 8
        raise SnapshotError(
            [Issue(path="gpus", problem=f"{gpus} GPUs are not whole 8-GPU nodes", remedy=f"give {below or 8} or {above}")]
        )
    total = gpus // 8
    if pools == 1:
        return [(H100, total)]
    if total < 3:
        raise SnapshotError([Issue(path="gpus", problem=f"{gpus} GPUs in three pools", remedy="give at least 24")])
    b200 = max(1, round(total * 2 / 7))
    b300 = max(1, round(total / 7))
    return [(H100, total - b200 - b300), (B200, b200), (B300, b300)]
