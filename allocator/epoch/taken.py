"""What work takes of the nodes whatever is decided."""

from __future__ import annotations

import numpy as np

from allocator.entitlement import Entitlement
from allocator.entitlement.forced import UNFORCED
from allocator.topology.fit import shape_of
from allocator.topology.layout import BoolArray, IntArray


def taken(ent: Entitlement, rows: BoolArray) -> IntArray:
    """GPUs, CPUs and GiB on each node that these runs take, unless they must stop, and gangs whose reservation is due.

    `rows` has shape (num_workloads,), the answer (3, num_nodes).
    """
    works, num_nodes = ent.works, len(ent.layout.names)
    stay = rows & works.running & (works.forced == UNFORCED)
    found = ent.placements.in_turn(stay, works.terminating, works.ordered, ent.columns.shape, num_nodes)
    for one in ent.reserved:
        for node, tasks in one.placement.items():
            found[:, node] += np.array(shape_of(ent.snapshot.workloads[one.row])) * tasks
    return found
