"""Large choices are whole numbers first, while all that is small may be fractions.

A few large choices make nearly all of the difference between the linear relaxation and the optimum. With whole numbers for them
alone HiGHS finds them in a fraction of the time that it takes for all; what is small follows (`Dive`).
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from allocator.epoch.problem import EpochProblem
from allocator.epoch.solution import EpochSolution
from allocator.models.greedy.news import FloatArray
from allocator.models.greedy.relaxation import Relaxation, gpus_of_choices, values_of
from allocator.topology.layout import BoolArray

LARGE_SHARE = 0.6
"""What the search for the large choices gets of the time."""

NODES = 500
"""Nodes of one search, so that it depends on the clock only where time is short."""


def large_ones(problem: EpochProblem, most: int) -> BoolArray:
    """The largest choices, at most so many but all of one size or none, shape (num_choices,)."""
    gpus = gpus_of_choices(problem)
    size, count = np.unique(gpus, return_counts=True)
    few = np.cumsum(count[::-1])[::-1] <= most
    return gpus >= size[few].min() if few.any() else np.zeros(len(gpus), dtype=np.bool_)


class Ladder:
    """Asks whether the large choices are what is missing, and searches for them.

    Parameters
    ----------
    relaxation, linear
        The same model twice: one is searched, the other solved with fractions.
    gap
        Distance of value and bound to which is searched, in 1/1000 GPU-second.
    deadline
        When to end, by `time.monotonic`.
    """

    def __init__(self, relaxation: Relaxation, linear: Relaxation, gap: float, seed: int, deadline: float) -> None:
        self._relaxation, self._linear = relaxation, linear
        self._gap, self._seed, self._deadline = gap, seed, deadline

    def cheap(self, whole: BoolArray, cost: float) -> bool:
        """Whether to round the large choices of the linear relaxation costs it no more than that: then they can wait."""
        found = self._linear.solve({})
        rounded = None if found is None else self._linear.solve(values_of(found.chosen, whole))
        return found is not None and rounded is not None and rounded.value - found.value <= cost

    def large(self, whole: BoolArray, guess: EpochSolution, heard: Callable[[float], bool]) -> FloatArray | None:
        """An optimum in which the large choices alone are whole numbers; None if none was found.

        `heard` is told each bound on all decisions, and ends the search by saying that it is enough.
        """
        seconds = LARGE_SHARE * (self._deadline - time.monotonic())
        choices, bound = self._relaxation.solve_whole(
            seconds, self._gap, self._seed, guess, lambda _, bound: heard(bound), whole=whole, nodes=NODES
        )
        heard(bound)
        return choices
