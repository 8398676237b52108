"""What could start at all: what fits once every victim has gone. Nothing else can be part of any decision."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from allocator.epoch.offers import Batch, Draft
from allocator.epoch.problem import Victims, holdings
from allocator.topology.fit import tasks_per_node
from allocator.topology.layout import IntArray, Layout


class Reach:
    """Room that free nodes and victims have together.

    Parameters
    ----------
    free
        GPUs, CPUs and GiB left on each node while every victim stays, shape (3, num_nodes).
    """

    def __init__(self, layout: Layout, free: IntArray, victims: Victims) -> None:
        self._layout = layout
        room = free.copy()
        holdings(victims).add_to(room)
        self._room = np.maximum(room, 0)
        self._units: dict[tuple[tuple[int, int, int], bytes], IntArray] = {}
        self._most: dict[tuple[tuple[int, int, int], bytes, int], int] = {}

    def units(self, draft: Draft) -> int:
        """Units of an offer that could be started at most, wherever they lie."""
        return self._of(draft, -1)

    def holds(self, draft: Draft) -> bool:
        """Whether all units of an offer fit, in one domain where that is required. Segments are not looked at."""
        return self._of(draft, draft.required) >= draft.units

    def _of(self, draft: Draft, level: int) -> int:
        key = (draft.need, draft.open_to, level)
        if key not in self._most:
            units = self._by_node(draft)
            together = units.sum() if level < 0 else np.bincount(self._layout.domain[level], weights=units).max(initial=0)
            self._most[key] = int(together)
        return self._most[key]

    def _by_node(self, draft: Draft) -> IntArray:
        key = (draft.need, draft.open_to)
        if key not in self._units:
            open_to = np.frombuffer(draft.open_to, dtype=np.bool_)
            self._units[key] = np.where(open_to, tasks_per_node(self._room, draft.need), 0)
        return self._units[key]


def within_reach(batches: Sequence[Batch], reach: Reach) -> list[Batch]:
    """Without the offers that fit in no decision."""
    held: dict[int, tuple[Draft, ...]] = {}  # by the drafts, which many batches share
    for batch in batches:
        if id(batch.drafts) not in held:
            held[id(batch.drafts)] = tuple(filter(reach.holds, batch.drafts))
    return [Batch(batch.rows, drafts) for batch in batches if (drafts := held[id(batch.drafts)])]
