"""Where counting GPUs decides whether a stop needs a licence."""

from __future__ import annotations

import numpy as np

from allocator.epoch.problem import EpochProblem, holdings
from allocator.topology.layout import CPUS, GPUS, MEMORY, BoolArray


def gpus_decide(problem: EpochProblem) -> BoolArray:
    """Nodes on which what fits by GPUs fits, shape (num_nodes,).

    So it is where all that is kept, may be stopped or may start in the express lane takes no more CPUs and GiB per GPU than the
    node has.
    """
    held, stopped = holdings(problem.victims), np.zeros_like(problem.free)
    held.add_to(stopped)
    kept = problem.capacity - problem.free - problem.late - stopped
    gpus = problem.capacity[GPUS]
    found = np.ones(len(gpus), dtype=np.bool_)
    for resource in (CPUS, MEMORY):
        own = problem.capacity[resource]
        found &= kept[resource] * gpus <= own * kept[GPUS]
        more = held.need[resource] * gpus[held.node] > own[held.node] * held.need[GPUS]
        found[held.node[more]] = False
        for s in np.flatnonzero(problem.shapes.express).tolist():
            need, open_to = problem.shapes.need[:, s], problem.shapes.open_to[s]
            found[open_to] &= need[resource] * gpus[open_to] <= own[open_to] * need[GPUS]
    return found
