"""What a real schedule makes of a fleet: measured, as figures that depend on the load.

Load is demand over installed GPUs. Below saturation some of what is asked for comes too late or does not fit at the moment,
whoever asks for it; in saturation some GPUs are idle between gangs, and shares decide who goes without.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, kw_only=True)
class Utilisation:
    """Figures of a policy, as `measure_utilisation` finds them.

    Attributes
    ----------
    loads, delivered
        `delivered[i]` of the demand is delivered at `loads[i]`; loads rise, `delivered` does not.
    busy
        The part of a fleet that works where as much is asked for as there is.
    """

    loads: tuple[float, ...]
    delivered: tuple[float, ...]
    busy: float

    def served(self, load: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Part of the demand that a schedule gets done at a load: linear between what was measured, constant outside."""
        return np.interp(load, self.loads, self.delivered)


MEASURED = Utilisation(loads=(0.7, 0.8, 0.9), delivered=(1.0, 0.995, 0.98), busy=0.96)
"""Of `budgets_greedy` on 256 GPUs of one pool and the jobs of the synthetic organisation; see `measure_utilisation`."""
