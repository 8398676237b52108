"""Where counting GPUs decides whether a stop needs a licence."""

from __future__ import annotations

import numpy as np

from allocator.epoch.problem import EpochProblem
from allocator.topology.layout import CPUS, GPUS, MEMORY, BoolArray


def gpus_decide(problem: EpochProblem) -> BoolArray:
    """Nodes on which what fits by GPUs fits, shape (num_nodes,).

    So it is where all that is kept, may be stopped or may start in the express lane takes no more CPUs and GiB per GPU than the
    node has.
    """
    kept = problem.capacity - problem.free - problem.late
    for nodes, need in zip(problem.victims.nodes, problem.victims.need, strict=True):
        kept[:, nodes] -= need
    gpus = problem.capacity[GPUS]
    found = np.ones(len(gpus), dtype=np.bool_)
    for resource in (CPUS, MEMORY):
        own = problem.capacity[resource]
        found &= kept[resource] * gpus <= own * kept[GPUS]
        for nodes, need in zip(problem.victims.nodes, problem.victims.need, strict=True):
            found[nodes] &= need[resource] * gpus[nodes] <= own[nodes] * need[GPUS]
        for s in np.flatnonzero(problem.shapes.express).tolist():
            need, open_to = problem.shapes.need[:, s], problem.shapes.open_to[s]
            found[open_to] &= need[resource] * gpus[open_to] <= own[open_to] * need[GPUS]
    return found
