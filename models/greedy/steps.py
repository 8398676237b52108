"""The curve of a share as steps between the numbers of GPUs that a decision can leave there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from allocator.epoch.problem import EpochProblem, ShareTerm
from allocator.epoch.solution import steps_between
from allocator.topology.layout import IntArray

MOST_MEMBERS = 200
"""With more workloads under a vertex nearly every number of GPUs can be reached."""


class Steps(NamedTuple):
    """`number` equal steps of `gpus` GPUs; each costs `rise`, in 1/1000 GPU-second."""

    gpus: int
    rise: int
    number: int


def steps_of(problem: EpochProblem, term: ShareTerm) -> Iterator[Steps]:
    """The steps of a curve, from the fewest GPUs that a decision can leave under the vertex to the most.

    A vertex holds a sum of whole workloads. Between two neighbours among these sums the line is as good as the curve: the same
    for every decision, still convex, and above the curve for fractions of workloads. So the relaxation is tighter with it.
    """
    sizes = [
        *problem.victims.gpus[term.victims].tolist(),
        *problem.offers.gpus[term.offers].tolist(),
        *problem.promotions.gpus[term.promotions].tolist(),
    ]
    low = term.base - int(problem.victims.gpus[term.victims].sum())
    if len(sizes) > MOST_MEMBERS:
        for start, stop, slope in steps_between(term.curve, low, low + sum(sizes)):
            yield Steps(1, slope, stop - start)
        return
    sums = sums_of(sizes)
    gpus, rise = np.diff(sums), np.diff(term.curve.values(low + sums))
    first = np.flatnonzero((np.diff(gpus, prepend=0) != 0) | (np.diff(rise, prepend=0) != 0))
    number = np.diff(first, append=len(gpus))
    yield from map(Steps, gpus[first].tolist(), rise[first].tolist(), number.tolist())


def sums_of(sizes: Iterable[int]) -> IntArray:
    """All sums of some of these numbers, ascending, 0 among them."""
    reached = 1
    for size in sizes:
        reached |= reached << size
    digits = np.frombuffer(f"{reached:b}".encode(), dtype=np.uint8)
    return np.flatnonzero(digits[::-1] == ord("1"))
