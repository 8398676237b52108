"""The shape of a job: how many tasks of how many GPUs. A task is the job's part on one node.

What leaves open how its GPUs are split gets the fewest nodes on which they split evenly. Slurm gives each node of a job one
part, so two parts on one node would be another job: parts that could share a node are made to need more than half of its CPUs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from allocator.dispatch.facts import JobFact, NodeFact


@dataclass(frozen=True, slots=True)
class Shape:
    """A gang of `tasks` x `gpus`; CPUs and GiB of memory of one task. `placement` where it runs, tasks by node."""

    tasks: int
    gpus: int
    cpus: int
    memory_gib: int
    placement: Mapping[str, int] | None = None


def shape_of(job: JobFact, nodes: Sequence[NodeFact]) -> Shape:
    """The shape of a job on nodes of the pools that it accepts."""
    if job.nodes:
        tasks, gpus, placement = _running(job)
        shown: Mapping[str, int] | None = placement
    else:
        tasks, gpus = _waiting(job, max((node.gpus for node in nodes), default=0))
        shown = None
    cpus = -(-job.cpus // tasks)
    if tasks > 1 and any(2 * gpus <= node.gpus for node in nodes):
        cpus = max(cpus, max(node.cpus for node in nodes) // 2 + 1)
    return Shape(tasks, gpus, cpus, -(-job.memory_mib // (1024 * tasks)), shown)


def _waiting(job: JobFact, largest: int) -> tuple[int, int]:
    if job.gpus_per_node:
        return job.num_nodes, job.gpus_per_node
    for tasks in range(job.num_nodes, job.gpus + 1):
        if job.gpus % tasks == 0 and job.gpus // tasks <= largest:
            return tasks, job.gpus // tasks
    return job.num_nodes, -(-job.gpus // job.num_nodes)


def _running(job: JobFact) -> tuple[int, int, dict[str, int]]:
    """One task per node where the GPUs are split evenly; else one task per GPU, as even as can be."""
    number = len(job.nodes)
    if job.gpus % number == 0:
        return number, job.gpus // number, dict.fromkeys(job.nodes, 1)
    base, more = divmod(job.gpus, number)
    return job.gpus, 1, {name: base + (index < more) for index, name in enumerate(job.nodes) if base + (index < more)}
