"""What is asked of the nodes: thousands of workloads ask for the same, so that questions about places are asked once."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from allocator.domain import TopologyWish, Workload
from allocator.topology.layout import IntArray

_NO_WISH = TopologyWish()


def number_requests(works: Sequence[Workload]) -> IntArray:
    """A number for each workload, equal where the same is asked of the nodes, shape (num_workloads,).

    Numbers are given in the order of the rows, so that they are a function of the snapshot alone.
    """
    known: dict[Hashable, int] = {}
    return np.fromiter((known.setdefault(_request(work), len(known)) for work in works), np.int64, len(works))


def _request(work: Workload) -> Hashable:
    """Tasks and their shape, pools, topology, labels and exclusions."""
    wish = work.topology
    return (
        work.tasks, work.gpus_per_task, work.cpus_per_task, work.memory_gib_per_task, work.pools,
        None if wish == _NO_WISH else wish, tuple(sorted(work.node_labels.items())) if work.node_labels else (),
        work.exclude_nodes,
    )  # fmt: skip
