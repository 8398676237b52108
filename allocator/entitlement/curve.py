"""The unfairness term: what it costs that a vertex holds more or fewer charged GPUs than it is owed."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from allocator.domain import Policy
from allocator.entitlement.tree import BudgetTree
from allocator.entitlement.waterfill import FillResult
from allocator.topology.layout import IntArray


@dataclass(frozen=True, slots=True)
class Curve:
    """A convex, piecewise linear function of GPUs with integer breakpoints, in 1/1000 GPU-second.

    Attributes
    ----------
    points
        Breakpoints in GPUs, ascending; the first is 0.
    slopes
        1/1000 GPU-second per GPU, non-decreasing: `slopes[i]` holds from `points[i]` to `points[i + 1]`, the last one for ever.
    base
        Value at 0 GPUs.
    """

    points: tuple[int, ...]
    slopes: tuple[int, ...]
    base: int

    def value(self, gpus: int) -> int:
        """Cost of holding that many GPUs (0 or more)."""
        total = self.base
        last = bisect_right(self.points, gpus) - 1
        for (start, stop), slope in zip(pairwise(self.points[: last + 1]), self.slopes, strict=False):
            total += slope * (stop - start)
        return total + self.slopes[last] * (gpus - self.points[last])


def build_curves(
    tree: BudgetTree,
    policy: Policy,
    capacity: IntArray,
    usage: IntArray,
    held: IntArray,
    demand: IntArray,
    fill: FillResult,
) -> Mapping[tuple[int, int], Curve]:
    """The curve of every vertex and pool that contributes; the others cost nothing whatever they hold."""
    raise NotImplementedError
