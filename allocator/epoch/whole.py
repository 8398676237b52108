"""What was wholly free just before now, and so costs something to break up."""

from __future__ import annotations

import numpy as np

from allocator.entitlement import Entitlement
from allocator.entitlement.costs import whole_before
from allocator.epoch.problem import WholeDomain
from allocator.epoch.taken import taken
from allocator.topology.layout import GPUS, IntArray, Layout


def whole_weight(ent: Entitlement) -> IntArray:
    """How often each node counts as wholly free, shape (num_nodes,): for itself and for every domain that is it alone."""
    layout = ent.layout
    whole = whole_before(ent)
    own = whole[-1][layout.domain[-1], layout.pool].astype(np.int64)
    alone = sum(_members(ent, level) == 1 for level in range(1, len(layout.levels) - 1))
    return np.asarray(own * (1 + alone), dtype=np.int64)


def _members(ent: Entitlement, level: int) -> IntArray:
    """Nodes of its own pool in the domain of each node, shape (num_nodes,)."""
    layout = ent.layout

    def count() -> IntArray:
        part = layout.domain[level] * len(layout.pools) + layout.pool
        return np.asarray(np.bincount(part)[part], dtype=np.int64)

    return layout.remembered(("members", level), count)


def whole_placed(ent: Entitlement) -> IntArray:
    """GPUs of what starts at now whatever is decided, on nodes that were wholly free just before, shape (num_nodes,)."""
    return np.asarray(taken(ent, ent.works.fresh)[GPUS])


def whole_domains(ent: Entitlement, placed: IntArray) -> tuple[WholeDomain, ...]:
    """Domains of several nodes, strictly between the coarsest level and the node, within one pool."""
    layout = ent.layout
    found = []
    for level, whole in enumerate(whole_before(ent)[:-1]):
        for domain, pool in zip(*(index.tolist() for index in whole.nonzero()), strict=True):
            nodes = _nodes_of(layout, level, domain, pool)
            if len(nodes) > 1:
                capacity = int(layout.capacity[GPUS, nodes].sum())
                found.append(WholeDomain(level=level, nodes=nodes, capacity=capacity, placed=int(placed[nodes].sum())))
    return tuple(found)


def _nodes_of(layout: Layout, level: int, domain: int, pool: int) -> IntArray:
    """The nodes of a pool in a domain, ascending."""
    return layout.remembered(
        ("nodes of", level, domain, pool), lambda: ((layout.domain[level] == domain) & (layout.pool == pool)).nonzero()[0]
    )
