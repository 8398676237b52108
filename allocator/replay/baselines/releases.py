"""What becomes free when, as far as time limits tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from allocator.topology import IntArray
from allocator.topology.layout import GPUS


@dataclass(frozen=True, slots=True, eq=False)
class Releases:
    """An entry for each node of each gang, in the order in which they become free.

    Attributes
    ----------
    table
        Of each entry its end, then for each resource its place in the flat array of what is free by resource and node, then
        for each resource its amount; shape (7, num_entries), read-only. One array, so that many are put together at once.
    """

    table: IntArray

    @classmethod
    def of(cls, end: int, nodes: Sequence[int] | IntArray, amounts: IntArray, num_nodes: int) -> Releases:
        """Those of one gang; `amounts` has shape (3, its nodes)."""
        table = np.empty((7, len(nodes)), dtype=np.int64)
        table[0] = end
        table[1] = nodes
        table[2] = table[1] + num_nodes
        table[3] = table[2] + num_nodes
        table[4:] = amounts
        return cls(table)

    @classmethod
    def all(cls, parts: Sequence[Releases], soonest: int) -> Releases:
        """Those of many, one after the other; what is overdue comes at `soonest`."""
        table = np.concatenate([np.empty((7, 0), dtype=np.int64), *(part.table for part in parts)], axis=1)
        np.maximum(table[0], soonest, out=table[0])
        return cls(table)

    def in_order(self) -> Releases:
        """The same by their ends."""
        return Releases(self.table[:, self.ends.argsort(kind="stable")])

    @property
    def ends(self) -> IntArray:
        """When; shape (num_entries,)."""
        ends: IntArray = self.table[0]
        return ends

    def after(self, free: IntArray, count: int) -> IntArray:
        """What is free once the first `count` entries have come free as well; shape (3, num_nodes), as `free`."""
        released = np.bincount(self.table[1:4, :count].ravel(), self.table[4:, :count].ravel(), free.size)
        return free + released.astype(np.int64).reshape(free.shape)

    def enough(self, free: IntArray, gpus: int) -> int:
        """How many entries it takes at least until so many GPUs are free, wherever they are; one too many: all do not do."""
        missing = gpus - int(np.maximum(free[GPUS], 0).sum())
        return int(self.table[4 + GPUS].cumsum().searchsorted(missing)) + 1 if missing > 0 else 0
