"""Cells and classes: the fewest groups of nodes whose counts still decide everything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from allocator.entitlement import Entitlement
from allocator.entitlement.alike import number_classes
from allocator.epoch.problem import Classes, Offers, Resident, Shapes, Victims, WholeDomain
from allocator.topology.layout import CPUS, GPUS, MEMORY, BoolArray, IntArray

MASK_BITS = 40
"""Masks that are told apart by one number."""


@dataclass(frozen=True, slots=True)
class Cells:
    """`of_node` is the cell of each node; `domain[l, c]` the domain of level l that cell c lies in, -1 below the cell level."""

    of_node: IntArray
    domain: IntArray
    pool: IntArray


def cell_level(ent: Entitlement, offers: Offers, whole: Sequence[WholeDomain]) -> int:
    """The finest level that a cost or a rule looks at; -1 if none does and a pool is one cell."""
    gangs = offers.units > 1
    needed = {level for level in range(len(ent.layout.levels)) if np.any(offers.spread[gangs, level] > 0)}
    needed |= {int(level) for level in offers.required[gangs]} | {int(level) for level in offers.segment_level[gangs]}
    levels = [level for level in needed if level >= 0]
    levels += [domain.level for domain in whole]
    return max(levels, default=-1)


def build_cells(ent: Entitlement, level: int) -> Cells:
    """One cell per pool and domain of the given level."""
    layout = ent.layout

    def number() -> IntArray:
        return number_classes(layout.pool, layout.domain[level]) if level >= 0 else number_classes(layout.pool)

    of_node = layout.remembered(("cells", level), number)
    first = layout.remembered(("first of cells", level), lambda: np.unique(of_node, return_index=True)[1])
    cell_domain = layout.domain[:, first]
    cell_domain[level + 1 :] = -1
    return Cells(of_node=of_node, domain=cell_domain, pool=layout.pool[first])


def _divides_all(sizes: Sequence[int]) -> bool:
    """True if each size divides the next larger one: then counts of sizes pack whenever they add up."""
    return all(large % small == 0 for small, large in pairwise(sizes))


def _counts_decode(needs: IntArray, room: IntArray, whole: bool) -> bool:
    """True if any counts of these units that add up in GPUs can be laid on nodes with this room, one by one.

    Needs a chain of divisors in GPUs, and CPUs and memory that no mix of units can exhaust first. On wholly free nodes
    all sizes must divide the node too, so that the count alone tells how many nodes are broken up.
    """
    sizes = sorted({int(size) for size in needs[GPUS] if size <= room[GPUS]})
    if not _divides_all(sizes) or (whole and any(room[GPUS] % size for size in sizes)):
        return False
    fits = needs[GPUS] <= room[GPUS]
    return all(bool(np.all(needs[r, fits] * room[GPUS] <= room[r] * needs[GPUS, fits])) for r in (CPUS, MEMORY))


@dataclass(frozen=True, slots=True)
class Nodes:
    """What tells nodes apart.

    Attributes
    ----------
    free
        GPUs, CPUs and GiB left on each node while every victim stays, shape (3, num_nodes).
    late
        What ordinary work holds there that started at now, shape (3, num_nodes).
    whole, placed
        How often each node counts as wholly free just before now, and the GPUs started there at now, shape (num_nodes,).
    """

    free: IntArray
    late: IntArray
    whole: IntArray
    placed: IntArray


def build_classes(ent: Entitlement, shapes: Shapes, victims: Victims, cells: Cells, state: Nodes) -> tuple[Classes, IntArray]:
    """Group the nodes that can take anything; returns the classes and the class of each node (-1: none)."""
    free, whole, placed = state.free, state.whole, state.placed
    residents: dict[int, list[Resident]] = {}
    if not len(shapes.pool):
        return _as_classes([], cells, free, whole, residents, len(whole))
    for r, (nodes, need) in enumerate(zip(victims.nodes, victims.need, strict=True)):
        for node, (gpus, cpus, memory) in zip(nodes.tolist(), need.T.tolist(), strict=True):
            residents.setdefault(node, []).append((r, (gpus, cpus, memory)))
    usable = shapes.open_to.any(axis=0) & ent.layout.accepting
    own = _number_residents(residents, len(whole))
    nodes = (usable & ((free[GPUS] > 0) | (own > 0))).nonzero()[0]
    late = np.where(own > 0, state.late, 0)
    kind = number_classes(
        cells.of_node[nodes], ent.layout.capacity[GPUS, nodes], *free[:, nodes], whole[nodes], own[nodes], *late[:, nodes],
        *_masks_as_numbers(shapes.open_to[:, nodes]),
    )  # fmt: skip
    members = _split(nodes, kind, placed[nodes] > 0)

    known: dict[tuple[object, ...], bool] = {}

    def stays_together(group: list[int]) -> bool:
        if len(group) == 1:
            return True
        node, here = group[0], residents.get(group[0], ())
        key = (*free[:, node].tolist(), *here, bool(whole[node]), shapes.open_to[:, node].tobytes())
        if key not in known:  # groups that differ in their place alone get the same answer
            known[key] = _mergeable(shapes, node, free, here, bool(whole[node]))
        return known[key]

    members = [part for group in members for part in ([group] if stays_together(group) else [[node] for node in group])]
    members.sort(key=lambda group: group[0])
    return _as_classes(members, cells, free, whole, residents, len(whole))


def _number_residents(residents: dict[int, list[Resident]], num_nodes: int) -> IntArray:
    """Equal numbers for nodes with the same residents, 0 where there are none, shape (num_nodes,)."""
    number: dict[tuple[Resident, ...], int] = {}
    own = np.zeros(num_nodes, dtype=np.int64)
    for node, here in residents.items():
        own[node] = number.setdefault(tuple(here), 1 + len(number))
    return own


def _masks_as_numbers(masks: BoolArray) -> list[IntArray]:
    """Columns of a table of masks, shape (num_masks, num_nodes), as few numbers for each node: as many bits as one holds."""
    parts = (masks[start : start + MASK_BITS].astype(np.int64) for start in range(0, len(masks), MASK_BITS))
    return [(1 << np.arange(len(part))) @ part for part in parts]


def _split(nodes: IntArray, kind: IntArray, alone: BoolArray) -> list[list[int]]:
    """Groups of nodes of one kind, ascending; those that stand alone are groups of their own."""
    code = np.where(alone, int(kind.max(initial=0)) + 1 + np.arange(len(nodes)), kind)
    order = np.argsort(code, kind="stable")
    cuts = np.diff(code[order]).nonzero()[0] + 1
    sorted_nodes, bounds = nodes[order].tolist(), [0, *cuts.tolist(), len(nodes)]
    return [sorted_nodes[start:stop] for start, stop in pairwise(bounds) if stop > start]


def _mergeable(shapes: Shapes, node: int, free: IntArray, own: Sequence[Resident], whole: bool) -> bool:
    if len(own) > 1 or (own and free[GPUS, node] > 0):
        return False
    room = free[:, node] + (np.array(own[0][1]) if own else 0)
    return _counts_decode(shapes.need[:, shapes.open_to[:, node]], room, whole)


def _as_classes(
    members: list[list[int]], cells: Cells, free: IntArray, whole: IntArray,
    residents: dict[int, list[Resident]], num_nodes: int,
) -> tuple[Classes, IntArray]:  # fmt: skip
    first = np.array([nodes[0] for nodes in members], dtype=np.int64)
    node_class = np.full(num_nodes, -1, dtype=np.int64)
    for k, nodes in enumerate(members):
        node_class[nodes] = k
    classes = Classes(
        nodes=tuple(np.array(nodes, dtype=np.int64) for nodes in members),
        size=np.array([len(nodes) for nodes in members], dtype=np.int64),
        cell=cells.of_node[first],
        free=free[:, first],
        whole=whole[first],
        residents=tuple(tuple(residents.get(nodes[0], ())) for nodes in members),
    )
    return classes, node_class
