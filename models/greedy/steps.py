"""The curves of the shares as steps between the numbers of GPUs that a decision can leave there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from allocator.entitlement.curve import CurveTable
from allocator.epoch.problem import EpochProblem, ShareTerm
from allocator.topology.layout import IntArray

MOST_MEMBERS = 200
"""With more workloads under a vertex nearly every number of GPUs can be reached."""


class Steps(NamedTuple):
    """`number` equal steps of `gpus` GPUs on the curve of share `term`; each costs `rise`, in 1/1000 GPU-second.

    Arrays of one shape, by term and then from the fewest GPUs to the most.
    """

    term: IntArray
    gpus: IntArray
    rise: IntArray
    number: IntArray


def steps_of(problem: EpochProblem) -> Steps:
    """The steps of all curves, from the fewest GPUs that a decision can leave under a vertex to the most.

    A vertex holds a sum of whole workloads. Between two neighbours among these sums the line is as good as the curve: the same
    for every decision, still convex, and above the curve for fractions of workloads. So the relaxation is tighter with it.
    """
    held = [_held(problem, term) for term in problem.shares]
    term = np.repeat(np.arange(len(held)), [len(own) for own in held])
    gpus = np.concatenate([*held, np.zeros(0, dtype=np.int64)])
    cost = CurveTable([share.curve for share in problem.shares]).values(term, gpus)
    inside = np.diff(term) == 0
    term, gpus, rise = term[1:][inside], np.diff(gpus)[inside], np.diff(cost)[inside]
    alike = (np.diff(term, prepend=-1) == 0) & (np.diff(gpus, prepend=0) == 0) & (np.diff(rise, prepend=0) == 0)
    first = np.flatnonzero(~alike)
    return Steps(term[first], gpus[first], rise[first], np.diff(first, append=len(term)))


def _held(problem: EpochProblem, term: ShareTerm) -> IntArray:
    """The GPUs that a decision can leave under a vertex; of many workloads the ends, and where the curve bends."""
    leaving = problem.victims.gpus[term.victims]
    low = term.base - int(leaving.sum())
    sizes = np.concatenate([leaving, problem.offers.gpus[term.offers], problem.promotions.gpus[term.promotions]])
    if len(sizes) <= MOST_MEMBERS:
        return low + sums_of(sizes.tolist())
    high = low + int(sizes.sum())
    return np.array([low, *(point for point in term.curve.points if low < point < high), high])


def sums_of(sizes: Iterable[int]) -> IntArray:
    """All sums of some of these numbers, ascending, 0 among them."""
    reached = 1
    for size in sizes:
        reached |= reached << size
    digits = np.frombuffer(f"{reached:b}".encode(), dtype=np.uint8)
    return np.flatnonzero(digits[::-1] == ord("1"))
