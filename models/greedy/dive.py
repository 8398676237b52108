"""Whole choices from fractions, a few at a time: these are rounded, the linear relaxation is solved again, and so on.

Each solve starts from where the last one ended, and sees what the choices before it are worth to all others, in every pool.
"""

from __future__ import annotations

import math
import time

import numpy as np

from allocator.epoch.problem import EpochProblem
from allocator.models.greedy.news import FloatArray
from allocator.models.greedy.relaxation import INTEGRAL, Fixed, Relaxation, Relaxed, gpus_of_choices
from allocator.topology.layout import IntArray

AT_ONCE = 0.2
"""Part of all fractions that is rounded at once."""

FEWER, MORE = 4.0, 2.0
"""So many times fewer are, where that cost too much, and so many times more after a step that did not."""

MUCH = 3e-4
"""Share of the cluster's time that one step may cost the linear relaxation."""

ALIKE = 2
"""Sizes within so many powers of two are alike: of these the clearest are rounded first."""


class Dive:
    """Rounds the large choices before the small ones, to the nearer whole number, or to the other where that is cheaper.

    Parameters
    ----------
    linear
        Solved with fractions.
    deadline
        When to end, by `time.monotonic`. It ends by itself: each step decides a choice, or takes fewer at once.
    """

    def __init__(self, problem: EpochProblem, linear: Relaxation, deadline: float) -> None:
        gpus = gpus_of_choices(problem)
        self._linear, self._deadline = linear, deadline
        self._much = MUCH * 1000 * problem.step_gpus
        self._size = np.floor(np.log2(np.maximum(gpus, 1))).astype(np.int64) // ALIKE

    def down(self, decided: Fixed) -> FloatArray | None:
        """All choices with some of them decided, shape (num_choices,); fractions where time ended. None if there are none."""
        fixed, found, most = dict(decided), self._linear.solve(decided), float(self._linear.num_choices)
        while found is not None and time.monotonic() < self._deadline:
            fractions = self._fractions(found)
            if not len(fractions):
                break
            most = max(1.0, min(most, AT_ONCE * len(fractions)))
            taken = fractions[: int(most)]
            nearer = self._with(fixed, taken, np.round(found.chosen[taken]))
            if nearer[1] is not None and nearer[1].value - found.value <= self._much:
                fixed, found = nearer
                most *= MORE
            elif len(taken) > 1:
                most /= FEWER
            else:
                other = self._with(fixed, taken, 1.0 - np.round(found.chosen[taken]))
                fixed, found = min(nearer, other, key=_value)
        return None if found is None else found.chosen

    def _fractions(self, found: Relaxed) -> IntArray:
        """Choices that are fractions, in the order in which they are rounded."""
        distance = np.abs(found.chosen - np.round(found.chosen))
        own = np.flatnonzero(distance >= INTEGRAL)
        return np.asarray(own[np.lexsort((distance[own], -self._size[own]))])

    def _with(self, fixed: Fixed, taken: IntArray, values: FloatArray) -> tuple[dict[int, int], Relaxed | None]:
        """The relaxation with more choices fixed, and what is fixed then."""
        more = {**fixed, **dict(zip(taken.tolist(), values.astype(np.int64).tolist(), strict=True))}
        return more, self._linear.solve(more)


def _value(step: tuple[dict[int, int], Relaxed | None]) -> float:
    return math.inf if step[1] is None else step[1].value
