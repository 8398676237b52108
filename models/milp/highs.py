"""HiGHS as PuLP calls it: silent, with options that are checked, and without threads that are left behind."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import highspy
import numpy as np
import numpy.typing as npt
import pulp

INFEASIBLE = (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnboundedOrInfeasible)

BROKEN = (
    highspy.HighsModelStatus.kNotset,
    highspy.HighsModelStatus.kLoadError,
    highspy.HighsModelStatus.kModelError,
    highspy.HighsModelStatus.kPresolveError,
    highspy.HighsModelStatus.kSolveError,
    highspy.HighsModelStatus.kPostsolveError,
    highspy.HighsModelStatus.kUnbounded,
)
"""Nothing that HiGHS says afterwards counts. Every other status is an optimum or a limit."""


Heard = Callable[[float, npt.NDArray[np.float64] | None], None]
"""Takes the dual bound, and the columns of a solution that is better than all before, if there is one."""


def solve_rows(
    rows: pulp.LpProblem, options: Mapping[str, float | bool], values: Mapping[pulp.LpVariable, int], heard: Heard | None = None
) -> None:
    """Let HiGHS work on rows, from values of some variables if they are given; what it finds on the way is told to `heard`.

    Raises
    ------
    ValueError
        If HiGHS refuses an option.
    """
    # HiGHS refuses to run with other threads than whoever ran it first in this process: no pool is found, and none left.
    highspy.Highs.resetGlobalScheduler(True)
    try:
        rows.solve(_Solver(options, values, heard))
    finally:
        highspy.Highs.resetGlobalScheduler(True)


def has_solution(rows: pulp.LpProblem) -> bool:
    """Whether HiGHS has found a solution."""
    solver = rows.solverModel
    if solver.getModelStatus() == highspy.HighsModelStatus.kModelEmpty:
        return True
    return bool(solver.getInfo().primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible)


class _QuietHighs(highspy.Highs):
    """HiGHS that prints nothing: its banner appears with the callbacks, before PuLP could set an option."""

    def enableCallbacks(self) -> None:  # noqa: N802
        """Set up callbacks, silently."""
        self.setOptionValue("output_flag", False)
        super().enableCallbacks()  # type: ignore[no-untyped-call]


class _Solver(pulp.HiGHS):  # type: ignore[misc]  # PuLP has no types
    """PuLP's interface to HiGHS, with values to start from, and options that are checked: PuLP passes over refused ones."""

    def __init__(self, options: Mapping[str, float | bool], values: Mapping[pulp.LpVariable, int], heard: Heard | None) -> None:
        super().__init__()
        self._own_options, self._values, self._heard = options, values, heard

    def createAndConfigureSolver(self, lp: pulp.LpProblem) -> None:  # noqa: N802
        """Called by PuLP before it hands over the rows."""
        lp.solverModel = _QuietHighs()  # type: ignore[no-untyped-call]
        for name, value in self._own_options.items():
            if lp.solverModel.setOptionValue(name, value) != highspy.HighsStatus.kOk:
                raise ValueError(f"HiGHS refuses {value!r} for its option {name}")
        if self._heard is not None:
            heard = self._heard
            lp.solverModel.cbMipInterrupt.subscribe(lambda event: heard(event.data_out.mip_dual_bound, None))
            lp.solverModel.cbMipImprovingSolution.subscribe(
                lambda event: heard(event.data_out.mip_dual_bound, np.array(event.data_out.mip_solution))
            )

    def callSolver(self, lp: pulp.LpProblem) -> None:  # noqa: N802
        """Called by PuLP once HiGHS has the rows; variables that occur in none of them have no column."""
        columns = {variable.index: value for variable, value in self._values.items() if hasattr(variable, "index")}
        if columns:
            index = np.array(list(columns), dtype=np.int32)
            lp.solverModel.setSolution(len(index), index, np.array(list(columns.values()), dtype=np.float64))
        super().callSolver(lp)
