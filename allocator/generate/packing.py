"""Places running work on the nodes of one pool: gangs compactly, small work packed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from allocator.domain import Node

IntArray = npt.NDArray[np.int64]


class Packer:
    """Free GPUs of one pool while it is filled.

    Only GPUs are counted: the classes ask for no more CPUs and memory than a GPU's part of the node. Domains are taken
    from coarse to fine without the first level, which is the whole cluster.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.names = [node.name for node in nodes]
        self._index = {name: index for index, name in enumerate(self.names)}
        self.free: IntArray = np.array([node.gpus for node in nodes], dtype=np.int64)
        self.domains = [_number(nodes, level) for level in range(1, len(nodes[0].domains))] if nodes else []

    def block(self, index: int) -> None:
        """Take a node out, for instance a dead one."""
        self.free[index] = 0

    def release(self, placement: Mapping[str, int], gpus_per_task: int) -> None:
        """Give back what a workload held."""
        for name, tasks in placement.items():
            self.free[self._index[name]] += tasks * gpus_per_task

    def place(self, tasks: int, gpus_per_task: int) -> dict[str, int] | None:
        """Place a workload and return tasks by node, or None where it does not fit."""
        if tasks == 1:
            return self._place_task(gpus_per_task)
        return self._place_gang(tasks, gpus_per_task)

    def _place_task(self, gpus: int) -> dict[str, int] | None:
        """Best fit: the fullest node that still has room, so that whole nodes stay whole."""
        fits = np.flatnonzero(self.free >= gpus)
        if not fits.size:
            return None
        best = int(fits[np.argmin(self.free[fits])])
        self.free[best] -= gpus
        return {self.names[best]: 1}

    def _place_gang(self, tasks: int, gpus_per_task: int) -> dict[str, int] | None:
        """The finest, then fullest domain with room for all; across domains of the pool, the emptiest first."""
        room = self.free // gpus_per_task
        if int(room.sum()) < tasks:
            return None
        for domain in reversed(self.domains):
            totals = np.bincount(domain, weights=room).astype(np.int64)
            enough = np.flatnonzero(totals >= tasks)
            if enough.size:
                chosen = int(enough[np.argmin(totals[enough])])
                return self._take(np.flatnonzero(domain == chosen), room, tasks, gpus_per_task)
        if not self.domains:
            return self._take(np.arange(len(room)), room, tasks, gpus_per_task)
        finest = self.domains[-1]
        totals = np.bincount(finest, weights=room)
        order = np.lexsort((np.arange(len(room)), finest, -totals[finest]))
        return self._take(order, room, tasks, gpus_per_task)

    def _take(self, order: IntArray, room: IntArray, tasks: int, gpus_per_task: int) -> dict[str, int]:
        placement: dict[str, int] = {}
        for index in order.tolist():
            taken = min(int(room[index]), tasks)
            if taken:
                placement[self.names[index]] = taken
                self.free[index] -= taken * gpus_per_task
                tasks -= taken
            if not tasks:
                break
        return placement


def _number(nodes: Sequence[Node], level: int) -> IntArray:
    """Domain number of each node at a level; a domain is its whole path."""
    numbers: dict[tuple[str, ...], int] = {}
    return np.array([numbers.setdefault(node.domains[: level + 1], len(numbers)) for node in nodes], dtype=np.int64)
