"""What becomes free when, as far as time limits tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from allocator.topology import IntArray
from allocator.topology.layout import GPUS


class Releases(NamedTuple):
    """An entry for each node of each gang, in the order in which they become free.

    Attributes
    ----------
    ends
        When; shape (num_entries,), ascending.
    cells
        Where, as places in the flat array of what is free by resource and node; shape (3, num_entries).
    amounts
        How much; shape (3, num_entries).
    """

    ends: IntArray
    cells: IntArray
    amounts: IntArray

    def after(self, free: IntArray, count: int) -> IntArray:
        """What is free once the first `count` entries have come free as well; shape (3, num_nodes), as `free`."""
        released = np.bincount(self.cells[:, :count].ravel(), self.amounts[:, :count].ravel(), free.size)
        return free + released.astype(np.int64).reshape(free.shape)

    def enough(self, free: IntArray, gpus: int) -> int:
        """How many entries it takes at least until so many GPUs are free, wherever they are; one too many: all do not do."""
        missing = gpus - int(np.maximum(free[GPUS], 0).sum())
        return int(self.amounts[GPUS].cumsum().searchsorted(missing)) + 1 if missing > 0 else 0

    def merged(self, other: Releases) -> Releases:
        """These and others."""
        ends = np.concatenate([self.ends, other.ends])
        order = np.argsort(ends, kind="stable")
        cells, amounts = (np.concatenate(both, axis=1)[:, order] for both in zip(self[1:], other[1:], strict=True))
        return Releases(ends[order], cells, amounts)


def releases_of(rows: Sequence[tuple[int, Sequence[int] | IntArray, IntArray]], num_nodes: int) -> Releases:
    """Entries of gangs in the order of their ends, each given by its end, its nodes, and amounts, shape (3, its nodes)."""
    nodes = np.concatenate([np.empty(0, dtype=np.int64), *(where for _, where, _ in rows)])
    return Releases(
        ends=np.repeat(np.array([end for end, _, _ in rows], dtype=np.int64), [len(where) for _, where, _ in rows]),
        cells=nodes + num_nodes * np.arange(3)[:, np.newaxis],
        amounts=np.concatenate([np.empty((3, 0), dtype=np.int64), *(amounts for _, _, amounts in rows)], axis=1),
    )
