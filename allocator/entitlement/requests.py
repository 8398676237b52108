"""What is asked of the nodes: thousands of workloads ask for the same, so that questions about places are asked once."""

from __future__ import annotations

from collections.abc import Hashable

from allocator.domain import Workload


def request_of(work: Workload) -> Hashable:
    """Equal where the same is asked: tasks and their shape, pools, topology, labels and exclusions."""
    wish = work.topology
    plain = wish.required is None and wish.preferred is None and wish.segment is None
    return (
        work.tasks, work.gpus_per_task, work.cpus_per_task, work.memory_gib_per_task, work.pools,
        None if plain else wish, tuple(sorted(work.node_labels.items())) if work.node_labels else (),
        work.exclude_nodes,
    )  # fmt: skip
