"""The cluster as arrays: which node lies in which pool and domain, and what a node can hold."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from allocator.domain import Node

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

UNLIMITED = 1 << 40
"""Stands for the CPUs or GiB of a node that states none; larger than any sum of requests."""

NEVER = 1 << 62
"""An instant that does not come: the deadline of a node without one."""

MOST_ANSWERS = 4096
"""Bounds the memory where every workload excludes other nodes."""

Array = TypeVar("Array", IntArray, BoolArray)

GPUS, CPUS, MEMORY = 0, 1, 2
"""Rows of a resource array."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Layout:
    """Nodes in canonical order (by name), all arrays read-only.

    Attributes
    ----------
    names
        Node names; `index` maps back.
    pools
        Pool names, sorted.
    pool
        Pool index of each node, shape (num_nodes,).
    capacity
        GPUs, CPUs and GiB of each node, shape (3, num_nodes); UNLIMITED where a node states none.
    domain
        Domain of each node by level, coarse to fine, shape (num_levels, num_nodes). Ids are dense per level, numbered in
        the order of the sorted paths; the last row numbers the nodes.
    accepting
        True where work may start: up, and no drain deadline has passed. Shape (num_nodes,).
    down
        True where the node is dead. Shape (num_nodes,).
    drain
        True where the state of the node is drain. Shape (num_nodes,).
    leaving
        True where unprotected work must leave: state drain, or a deadline that has passed. Shape (num_nodes,).
    expired
        True where a drain deadline has passed: promises end here. Shape (num_nodes,).
    deadline
        Drain deadline in seconds, NEVER where there is none. Shape (num_nodes,).
    promise_by
        The instant by which a promise made now has to have ended: the drain deadline, or an earlier one for the sake of
        reservations. Shape (num_nodes,).
    overdue
        True where a victim that should have left is still there: nothing new is placed. Shape (num_nodes,).
    labels
        (key, value) -> True where the node carries that label, shape (num_nodes,).
    nodes
        The nodes that it was built from.
    answers
        What depends on nothing that changes with the state of a node: remembered by `remembered`, and shared by all layouts
        of the same nodes.
    """

    names: tuple[str, ...]
    index: Mapping[str, int]
    levels: tuple[str, ...]
    pools: tuple[str, ...]
    pool: IntArray
    capacity: IntArray
    domain: IntArray
    domain_paths: tuple[tuple[tuple[str, ...], ...], ...]
    accepting: BoolArray
    down: BoolArray
    drain: BoolArray
    leaving: BoolArray
    expired: BoolArray
    deadline: IntArray
    promise_by: IntArray
    overdue: BoolArray
    labels: Mapping[tuple[str, str], BoolArray]
    nodes: tuple[Node, ...]
    answers: dict[Hashable, IntArray | BoolArray] = field(default_factory=dict)

    def remembered(self, key: Hashable, ask: Callable[[], Array]) -> Array:
        """The answer to a question about the nodes as they were built: asked once, read-only."""
        known = self.answers.get(key)
        if known is None:
            if len(self.answers) >= MOST_ANSWERS:
                self.answers.clear()
            known = ask()
            known.setflags(write=False)
            self.answers[key] = known
        return known  # type: ignore[return-value]  # of the type that this key stands for
