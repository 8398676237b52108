"""Better decisions near a known one: most choices stay as they are, and HiGHS chooses the others anew.

A search of the whole relaxation comes to its first answers late. One of a part takes a tenth of the time, and the part can be
small: where the linear relaxation and the decision differ, and what costs the linear relaxation nothing to choose otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from allocator.epoch.problem import EpochProblem
from allocator.epoch.solution import EpochSolution
from allocator.models.greedy.news import FloatArray
from allocator.models.greedy.relaxation import INTEGRAL, Fixed, Relaxation, Relaxed, gpus_of_choices, values_of
from allocator.topology.layout import BoolArray

LARGE = 64
"""GPUs from which on a choice is looked at apart from the others; eight nodes. They decide what the small ones are worth."""

FREE_OF_COST = 1e-5
"""Share of the cluster's time up to which it costs the linear relaxation nothing to choose otherwise."""

Way = Callable[[FloatArray], Fixed | None]
"""What stays, given the choices of the decision; None if there is nothing to search."""


class Nearby:
    """The parts to search, one after another: in each pool what is small, as if what is large were decided; then what is large.

    If there is time for more, in each pool all that is large, so that a giant may take the place of another; and all again.

    Parameters
    ----------
    linear
        Solved with fractions, for what is clear and what is not.
    first
        The optimum of `linear` with nothing fixed; its last solve.
    answer
        Gives the best decision that is known by now.

    Attributes
    ----------
    left
        Parts of this round that have not been begun.
    """

    def __init__(self, problem: EpochProblem, linear: Relaxation, first: Relaxed, answer: Callable[[], EpochSolution]) -> None:
        offers, victims, promotions = problem.offers, problem.victims, problem.promotions
        self._linear, self._first, self._answer = linear, first, answer
        self._pool = np.concatenate([offers.pool, victims.pool, promotions.pool])
        gpus = gpus_of_choices(problem)
        self._large = gpus >= LARGE
        self._cost_of_nothing = FREE_OF_COST * 1000 * problem.step_gpus
        self._open = self._undecided() & (gpus >= LARGE // 2)
        self._pools = np.unique(self._pool).tolist()
        self.left = len(self._pools) + 1

    def parts(self) -> Iterator[Fixed]:
        """What stays as the decision has it by then, for one part after another; none again near the same decision."""
        small: list[Way] = [partial(self._all_but_small, pool) for pool in self._pools]
        giant: list[Way] = [partial(self._all_but_large_of, pool) for pool in self._pools]
        large: list[Way] = [self._all_but_large]
        near: dict[Way, EpochSolution] = {}
        for ways in (small + large, giant + small + large):
            self.left = len(ways)
            for way in ways:
                self.left -= 1
                answer = self._answer()
                if near.get(way) is not answer and (fixed := way(self._linear.choices_of(answer))) is not None:
                    near[way] = answer
                    yield fixed

    def _all_but_small(self, pool: int, chosen: FloatArray) -> Fixed | None:
        """What is large and what lies in other pools stays, and what is clear then."""
        apart = (self._pool != pool) | self._large
        found = self._linear.solve(values_of(chosen, apart))
        return None if found is None else values_of(chosen, apart | _agree(found, chosen) & ~self._undecided())

    def _all_but_large(self, chosen: FloatArray) -> Fixed:
        """What is clear while nothing is decided stays, and what is small unless it is decided otherwise."""
        return values_of(chosen, _agree(self._first, chosen) & ~self._open)

    def _all_but_large_of(self, pool: int, chosen: FloatArray) -> Fixed:
        """What lies in other pools stays, and what is small unless it is decided otherwise while nothing is."""
        return values_of(chosen, (self._pool != pool) | _agree(self._first, chosen) & ~self._large)

    def _undecided(self) -> BoolArray:
        """What costs nothing to choose otherwise, where the linear relaxation was solved last."""
        return np.abs(self._linear.reduced_costs()) <= self._cost_of_nothing


def _agree(found: Relaxed, chosen: FloatArray) -> BoolArray:
    return np.abs(found.chosen - chosen) < INTEGRAL
