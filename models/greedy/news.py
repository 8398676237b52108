"""What HiGHS finds on the way to an optimum, told as it is found."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from highspy import cb
from highspy._core import _Highs

FloatArray = npt.NDArray[np.float64]

INTERRUPT = cb.HighsCallbackType.kCallbackMipInterrupt
IMPROVING = cb.HighsCallbackType.kCallbackMipImprovingSolution

TIGHTER = 0.05
"""Part of the gap at which to stop by which a bound has to be tighter to be worth telling."""


@dataclass(frozen=True, slots=True)
class WholeAnswer:
    """The best values of the first columns, None where none were found, and a bound that no tolerance makes wrong."""

    values: FloatArray | None
    bound: float


Heard = Callable[[WholeAnswer], bool]
"""Takes each bound that is tighter, and each answer that is better than all before; whether that is enough."""


class News:
    """Hears of answers and bounds, of those too that HiGHS would forget if it were killed.

    Parameters
    ----------
    num_columns
        The first columns are told of.
    gap, tolerance
        At which distance the search ends, and how far above the truth a bound may lie; in units of the objective.
    seconds
        When to end: HiGHS looks at its own clock more rarely than it calls.
    heard
        Told each answer that is better, with the bound at that time, and each bound that is a good deal tighter; ends the run
        by saying that this is enough.
    """

    def __init__(self, num_columns: int, gap: float, tolerance: float, seconds: float, heard: Heard) -> None:
        self._num_columns, self._step, self._tolerance, self._heard = num_columns, gap * TIGHTER, tolerance, heard
        self._deadline = time.monotonic() + seconds
        self._tightest = -np.inf
        self._enough = False
        self._error: Exception | None = None

    def run(self, solver: _Highs) -> None:
        """Let a loaded solver run. What `heard` raises ends the run, and is raised here: it must not pass through HiGHS."""
        solver.setCallback(self._hear, None)
        for kind in (INTERRUPT, IMPROVING):
            solver.startCallback(kind)
        solver.run()
        solver.setCallback(None, None)
        self._heard = _over  # what HiGHS was to call stays alive: it must not lead back to the model, which would stay too
        if self._error is not None:
            raise self._error

    def _hear(self, kind: Any, message: str, found: Any, orders: Any, context: object) -> None:
        """Called by HiGHS some fifty times in a second, and with every answer."""
        try:
            self._tell(kind == int(IMPROVING), found)
            orders.user_interrupt = self._enough or time.monotonic() > self._deadline
        except Exception as error:
            self._error = error
            orders.user_interrupt = True

    def _tell(self, better: bool, found: Any) -> None:
        bound = float(found.mip_dual_bound)
        if better or bound > self._tightest + self._step:
            self._tightest = max(self._tightest, bound)
            values = np.array(found.mip_solution[: self._num_columns]) if better else None
            self._enough = self._heard(WholeAnswer(values, bound - self._tolerance)) or self._enough


def _over(answer: WholeAnswer) -> bool:
    """Heard by nobody."""
    return True
