"""What a real schedule makes of a fleet: a measured curve over the load, which is demand over installed GPUs.

Up to some load what is lost is everybody's: work comes too late, or does not fit at the moment. Beyond, the fleet is the
bottleneck, and shares decide who goes without.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

EVEN_UP_TO = 0.9
"""The load up to which losses hit everybody alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Utilisation:
    """`delivered[i]` of the demand is delivered at `loads[i]`; loads rise, `delivered` does not."""

    loads: tuple[float, ...]
    delivered: tuple[float, ...]

    def served(self, load: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Part of the whole demand that gets done: linear between what was measured; beyond, no more GPUs are busy."""
        last = self.loads[-1]
        return np.interp(load, self.loads, self.delivered) * np.minimum(1.0, last / np.maximum(load, last))

    def most(self, load: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Part of its demand that a project gets done at most."""
        return self.served(np.minimum(load, EVEN_UP_TO))


MEASURED = Utilisation(loads=(0.7, 0.8, 0.9, 1.0, 1.1), delivered=(1.0, 0.996, 0.972, 0.928, 0.876))
"""Of `budgets_greedy` and the jobs of the synthetic organisation: the mean of pools of 128 and 256 GPUs (docs/planning.md)."""
