"""Segments as whole blocks: where a domain takes 16 nodes of a gang or none, the two that are left of 18 are no part of 16."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from allocator.epoch.problem import EpochProblem
from allocator.epoch.solution import EpochSolution
from allocator.topology.layout import IntArray


class Kind(NamedTuple):
    """Blocks of `size` units of a form, each of them inside one domain of the level."""

    level: int
    form: int
    size: int


class Segments:
    """What segmented gangs are made of. Segments of one unit may lie anywhere, and are not counted.

    In all domains but one the units of such a gang are whole segments; so it consists of ⌊units / segment⌋ blocks of that size,
    and of one of what is left, wherever they lie.

    Attributes
    ----------
    level
        The finest level with segments; -1 if there are none.
    kinds
        Kinds of blocks; entry i says that offer `offer[i]` has `number[i]` of kind `kind[i]`.
    """

    def __init__(self, problem: EpochProblem, form: IntArray) -> None:
        offers = problem.offers
        self._problem, self._form = problem, form
        segmented = np.flatnonzero((offers.segment_level >= 0) & (offers.segment_units > 1) & (offers.units > 1))
        self.level = int(offers.segment_level[segmented].max(initial=-1))
        entries = [(j, *block) for j in segmented.tolist() for block in self._blocks(j, int(offers.units[j]))]
        self.kinds = sorted({kind for _, kind, _ in entries})
        index = {kind: i for i, kind in enumerate(self.kinds)}
        rows = np.array([(j, index[kind], number) for j, kind, number in entries], dtype=np.int64)
        self.offer, self.kind, self.number = rows.reshape(-1, 3).T

    @property
    def num_places(self) -> int:
        """Domains of the finest level times kinds."""
        return len(np.unique(self._problem.cell_domain[self.level])) * len(self.kinds)

    def domains(self, kind: Kind, cells: IntArray) -> IntArray:
        """The domain of each cell in which blocks of a kind are counted."""
        return np.asarray(self._problem.cell_domain[kind.level, cells])

    def blocks_of(self, solution: EpochSolution) -> Counter[tuple[Kind, int]]:
        """Blocks of each kind in each domain, in a decision."""
        found: Counter[tuple[Kind, int]] = Counter()
        for j in set(self.offer.tolist()) & solution.starts.keys():
            domain = self._problem.node_domain[int(self._problem.offers.segment_level[j])]
            units: Counter[int] = Counter()
            for node, number in solution.starts[j].items():
                units[int(domain[node])] += number
            for here, number in units.items():
                found.update({(kind, here): blocks for kind, blocks in self._blocks(j, number)})
        return found

    def _blocks(self, j: int, units: int) -> list[tuple[Kind, int]]:
        """So many units of an offer as whole segments and a rest."""
        offers = self._problem.offers
        level, size, form = int(offers.segment_level[j]), int(offers.segment_units[j]), int(self._form[offers.shape[j]])
        whole, rest = divmod(units, size)
        parts = ((size, whole), (rest, int(rest > 0)))
        return [(Kind(level, form, own), number) for own, number in parts if number]
