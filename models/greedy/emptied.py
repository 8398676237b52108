"""The classes of nodes as they would be if all victims were gone, and those where GPUs alone do not say what fits then."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from allocator.epoch.problem import EpochProblem
from allocator.topology.layout import CPUS, GPUS, UNLIMITED, BoolArray, IntArray

WORTH_WHILE = 0.01
"""Part of all GPUs on offer that is hard to place on a node from which on its patterns are listed: two jobs of 3 GPUs among
hundreds of 1 to 8 made no bound tighter, and greedy slower by a fifth."""


@dataclass(frozen=True, slots=True, eq=False)
class Emptied:
    """The classes as they would be if all victims were gone.

    `room` (3, num_classes) is what one node has then, `units` (num_forms, num_classes) how many of a form fit it. Classes of
    one `kind` have the same room for the same forms in one domain of the level that matters. Victim `victim[i]` holds
    `need[:, i]` of each node of class `held_in[i]`.
    """

    room: IntArray
    units: IntArray
    kind: tuple[Hashable, ...]
    victim: IntArray
    held_in: IntArray
    need: IntArray


def emptied(problem: EpochProblem, first: IntArray, level: int) -> Emptied:
    """Take all victims from the classes; `first` is a shape of each form, domains of `level` stay apart (-1: none)."""
    classes, shapes = problem.classes, problem.shapes
    held = [(k, r, own) for k, residents in enumerate(classes.residents) for r, own in residents]
    held_in, victim = (np.array([row[i] for row in held], dtype=np.int64) for i in (0, 1))
    need = np.array([own for _, _, own in held], dtype=np.int64).reshape(-1, 3).T
    room = classes.free.copy()
    for row, own in zip(room, need, strict=True):
        np.add.at(row, held_in, own)
    node = np.array([nodes[0] for nodes in classes.nodes], dtype=np.int64)
    open_to = shapes.open_to[first][:, node] if len(node) else np.zeros((len(first), 0), dtype=np.bool_)
    wanted = shapes.need[:, first, None]
    units = np.where(wanted > 0, room[:, None, :] // np.maximum(wanted, 1), UNLIMITED).min(axis=0, initial=UNLIMITED)
    units = np.where(open_to, np.maximum(units, 0), 0)
    domain = problem.cell_domain[level, classes.cell].tolist() if level >= 0 else [-1] * len(node)
    kind = tuple((room[:, k].tobytes(), open_to[:, k].tobytes(), domain[k]) for k in range(len(node)))
    return Emptied(room, units, kind, victim, held_in, need)


def is_heavy(need: IntArray, room: IntArray) -> BoolArray:
    """Whether needs take more CPUs or memory per GPU than rooms have; both have GPUs, CPUs and GiB along their first axis."""
    return np.asarray((need[CPUS:] * room[GPUS] > room[CPUS:] * need[GPUS]).any(axis=0))


def hard_classes(problem: EpochProblem, empty: Emptied, need: IntArray, wanted: IntArray) -> BoolArray:
    """Classes on whose nodes GPUs alone do not say what fits, shape (num_classes,).

    So it is where victims, or a good part of what is on offer, takes more CPUs or memory per GPU than the node has, or comes in
    sizes that do not divide one another.

    Parameters
    ----------
    need
        GPUs, CPUs and GiB of a unit of each form, shape (3, num_forms).
    wanted
        Units of each form that are on offer, shape (num_forms,).
    """
    room, fits = empty.room, empty.units > 0
    on_offer = (wanted * need[GPUS])[:, None] * fits
    heavy = is_heavy(need[:, :, None], room[:, None, :])
    hard = (on_offer * heavy).sum(axis=0)
    of_size = {size: on_offer[need[GPUS] == size].sum(axis=0) for size in sorted(set(need[GPUS].tolist()))}
    for small, large in combinations(of_size, 2):
        if large % small:
            hard += np.minimum(of_size[small], of_size[large])
    found = (hard > 0) & (hard >= WORTH_WHILE * (wanted * need[GPUS]).sum())
    found[empty.held_in[is_heavy(empty.need, room[:, empty.held_in])]] = True
    # Nodes that are held beyond their capacity keep what they hold, though it is no pattern.
    return np.asarray(found & fits.any(axis=0) & (problem.classes.free >= 0).all(axis=0))
