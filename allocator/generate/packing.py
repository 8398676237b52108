"""Places running work on the nodes of one pool: gangs compactly, small work packed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from allocator.domain import Node
from allocator.generate.demand import Shape

IntArray = npt.NDArray[np.int64]
UNLIMITED = 1 << 40


class Packer:
    """Free GPUs of one pool while it is filled.

    GPUs, CPUs and memory are the rows of `free`. Domains are taken from coarse to fine without the first level, which is
    the whole cluster.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.names = [node.name for node in nodes]
        self._index = {name: index for index, name in enumerate(self.names)}
        self._free: IntArray = np.array([_capacity(node) for node in nodes], dtype=np.int64).reshape(-1, 3).T.copy()
        self.domains = [_number(nodes, level) for level in range(1, len(nodes[0].domains))] if nodes else []

    @property
    def free(self) -> IntArray:
        """Free GPUs of each node, shape (num_nodes,)."""
        gpus: IntArray = self._free[0]
        return gpus

    def block(self, index: int) -> None:
        """Take a node out, for instance a dead one."""
        self._free[:, index] = 0

    def release(self, placement: Mapping[str, int], shape: Shape) -> None:
        """Give back what a workload held."""
        for name, tasks in placement.items():
            self._free[:, self._index[name]] += tasks * _needs(shape)

    def place(self, shape: Shape) -> dict[str, int] | None:
        """Place a workload and return tasks by node, or None where it does not fit."""
        if shape.tasks == 1:
            return self._place_task(shape)
        return self._place_segments(shape) if shape.segment else self._place_gang(shape)

    def _place_task(self, shape: Shape) -> dict[str, int] | None:
        """Best fit: the fullest node that still has room, so that whole nodes stay whole."""
        needs = _needs(shape)
        fits = np.flatnonzero((self._free >= needs[:, None]).all(axis=0))
        if not fits.size:
            return None
        best = int(fits[np.argmin(self.free[fits])])
        self._free[:, best] -= needs
        return {self.names[best]: 1}

    def _room(self, shape: Shape) -> IntArray:
        """Tasks that each node has room for."""
        needs = _needs(shape)
        wanted = np.flatnonzero(needs)
        room: IntArray = (self._free[wanted] // needs[wanted, None]).min(axis=0)
        return room

    def _place_segments(self, shape: Shape) -> dict[str, int] | None:
        """Whole segments in the emptiest domains of the finest level, and the remainder in the fullest that holds it."""
        room = self._room(shape)
        finest = self.domains[-1]
        totals = np.bincount(finest, weights=room).astype(np.int64)
        parts: dict[int, int] = {}
        left = shape.tasks
        for chosen in np.argsort(-totals, kind="stable").tolist():
            taken = min(left // shape.segment, int(totals[chosen]) // shape.segment) * shape.segment
            if taken:
                totals[chosen] -= taken
                parts[chosen] = taken
                left -= taken
        fits = np.flatnonzero(totals >= left)
        if left >= shape.segment or not fits.size:
            return None
        last = int(fits[np.argmin(totals[fits])])
        parts[last] = parts.get(last, 0) + left
        placement: dict[str, int] = {}
        for chosen, tasks in parts.items():
            if tasks:
                placement |= self._take(np.flatnonzero(finest == chosen), room, tasks, shape)
        return placement

    def _place_gang(self, shape: Shape) -> dict[str, int] | None:
        """The finest, then fullest domain with room for all; across domains of the pool, the emptiest first."""
        room, tasks = self._room(shape), shape.tasks
        if int(room.sum()) < tasks:
            return None
        for domain in reversed(self.domains):
            totals = np.bincount(domain, weights=room).astype(np.int64)
            enough = np.flatnonzero(totals >= tasks)
            if enough.size:
                chosen = int(enough[np.argmin(totals[enough])])
                return self._take(np.flatnonzero(domain == chosen), room, tasks, shape)
        if not self.domains:
            return self._take(np.arange(len(room)), room, tasks, shape)
        finest = self.domains[-1]
        totals = np.bincount(finest, weights=room)
        order = np.lexsort((np.arange(len(room)), finest, -totals[finest]))
        return self._take(order, room, tasks, shape)

    def _take(self, order: IntArray, room: IntArray, tasks: int, shape: Shape) -> dict[str, int]:
        placement: dict[str, int] = {}
        for index in order.tolist():
            taken = min(int(room[index]), tasks)
            if taken:
                placement[self.names[index]] = taken
                self._free[:, index] -= taken * _needs(shape)
                tasks -= taken
            if not tasks:
                break
        return placement


def _capacity(node: Node) -> tuple[int, int, int]:
    return node.gpus, UNLIMITED if node.cpus is None else node.cpus, UNLIMITED if node.memory_gib is None else node.memory_gib


def _needs(shape: Shape) -> IntArray:
    return np.array([shape.gpus_per_task, shape.cpus_per_task, shape.memory_gib_per_task], dtype=np.int64)


def _number(nodes: Sequence[Node], level: int) -> IntArray:
    """Domain number of each node at a level; a domain is its whole path."""
    numbers: dict[tuple[str, ...], int] = {}
    return np.array([numbers.setdefault(node.domains[: level + 1], len(numbers)) for node in nodes], dtype=np.int64)
