"""Quantiles of values that count as often as their days are drawn, without going through all of them for each draw."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

RUNG = 64
"""Values from one rung to the next."""


class Ladder(NamedTuple):
    """Values in ascending order, and how many there are of each day up to every rung.

    Attributes
    ----------
    values, day
        Each value and its day, shape (num_values,).
    rungs
        Values by day up to the end of each rung, shape (num_rungs, num_days).
    """

    values: npt.NDArray[np.int64]
    day: npt.NDArray[np.int64]
    rungs: npt.NDArray[np.float64]

    @classmethod
    def of(cls, values: npt.NDArray[np.int64], day: npt.NDArray[np.int64], num_days: int) -> Ladder:
        """`values` ascend; what is later than the last day counts to it."""
        day = np.minimum(day, num_days - 1)
        num_rungs = -(-len(values) // RUNG)
        cell = np.arange(len(values)) // RUNG * num_days + day
        steps = np.bincount(cell, minlength=num_rungs * num_days).reshape(num_rungs, num_days)
        return cls(values, day, np.cumsum(steps, axis=0).astype(np.float64))

    def quantile(self, counts: npt.NDArray[np.float64], share: float) -> float | None:
        """The smallest value that at least `share` of all do not exceed; each counts as often as its day, whole numbers."""
        reached = self.rungs @ counts
        if not len(reached) or reached[-1] <= 0:
            return None
        wanted = share * reached[-1]
        rung = int(reached.searchsorted(wanted))
        first = rung * RUNG
        below = reached[rung - 1] if rung else 0.0
        weight = below + counts[self.day[first : first + RUNG]].cumsum()
        return float(self.values[first + int(weight.searchsorted(wanted))])
