"""A linear model: columns, rows and entries as they are collected, and then a loaded solver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np
import numpy.typing as npt
from highspy._core import _Highs  # `highspy.Highs` sets up callbacks and prints a banner meanwhile

from allocator.models.greedy.news import FloatArray, Heard, News, WholeAnswer
from allocator.topology.layout import BoolArray, IntArray

MOST_ITERATIONS = 200_000
"""Simplex iterations of one solve, many times what 100,000 GPUs take."""

MOST_SECONDS = 60.0
"""A backstop: iterations are what ends a solve, so that it is deterministic."""

_OPTIONS: dict[str, bool | int | float | str] = {
    "output_flag": False, "threads": 1, "presolve": "off", "solver": "simplex",
    "simplex_iteration_limit": MOST_ITERATIONS, "time_limit": MOST_SECONDS,
}  # fmt: skip


SUMMED = 64
"""Roundings that a number goes through when a long array is summed pairwise, with room to spare."""

_NO_SUBPROBLEMS: dict[str, bool | int | float | str] = {
    "mip_heuristic_effort": 0.0, "mip_heuristic_run_rens": False, "mip_heuristic_run_rins": False,
    "mip_heuristic_run_root_reduced_cost": False,
}  # fmt: skip
"""Searches for answers in smaller problems took more than half of the time, measured, and the bound waited for them."""

_NO_RESTARTS: dict[str, bool | int | float | str] = {"mip_allow_restart": False}
"""To presolve again once cuts have decided some columns took a third of the time up to a bound within 0.1 %, measured."""

PRIMAL_TOLERANCE = 1e-9
"""How far whole numbers and rows may be off where columns are whole numbers."""


MOST_NODES = 2**31 - 1
"""No limit, for HiGHS."""


@dataclass(frozen=True, slots=True)
class WholeLimits:
    """`gap` is the distance of value and bound at which to stop, in units of the objective; `nodes` end a search too."""

    seconds: float
    gap: float
    seed: int
    nodes: int = MOST_NODES


class LinearModel:
    """Minimises the cost of columns that start at 0."""

    def __init__(self) -> None:
        self._cost: list[FloatArray] = []
        self._upper: list[FloatArray] = []
        self._whole: list[IntArray] = []
        self._bounds: list[tuple[FloatArray, FloatArray]] = []
        self._entries: list[tuple[IntArray, IntArray, FloatArray]] = []
        self.num_columns, self._num_rows = 0, 0

    def columns(self, cost: FloatArray, upper: npt.NDArray[Any], *, whole: BoolArray | bool = False) -> IntArray:
        """New columns from 0 to `upper`; all or some of them are whole numbers where `solve_whole` solves the model."""
        index = np.arange(self.num_columns, self.num_columns + len(cost))
        self.num_columns += len(cost)
        self._cost.append(cost)
        self._upper.append(upper.astype(np.float64))
        self._whole.append(index[np.broadcast_to(whole, index.shape)])
        return index

    def rows(self, lower: FloatArray | float, upper: npt.NDArray[Any]) -> IntArray:
        """New rows between two bounds."""
        index = np.arange(self._num_rows, self._num_rows + len(upper))
        self._num_rows += len(upper)
        self._bounds.append((np.full(upper.shape, lower), upper))
        return index

    def put(self, row: IntArray, column: IntArray, value: npt.NDArray[Any] | float) -> None:
        """Entries of the matrix: one for each element of `row` and `column`, with one value for all or one for each."""
        self._entries.append((row, column, np.full(row.shape, value, dtype=np.float64)))

    def load(self) -> None:
        """Hand the model to a quiet solver on one thread; nothing is added afterwards."""
        row, column, value = (np.concatenate(parts) for parts in zip(*self._entries, strict=True))
        self._row, self._column, self._value = row, column, value
        place, same = np.unique(column * self._num_rows + row, return_inverse=True)
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = self.num_columns, self._num_rows
        model.col_cost_, model.col_upper_ = np.concatenate(self._cost), np.concatenate(self._upper)
        model.col_lower_ = np.zeros(self.num_columns)
        model.row_lower_ = np.concatenate([lower for lower, _ in self._bounds])
        model.row_upper_ = np.concatenate([upper for _, upper in self._bounds])
        model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        model.a_matrix_.start_ = np.searchsorted(place, np.arange(self.num_columns + 1) * self._num_rows).astype(np.int32)
        model.a_matrix_.index_ = (place % self._num_rows).astype(np.int32)
        model.a_matrix_.value_ = np.bincount(same, weights=value).astype(np.float64)
        self._solver = _Highs()
        for name, setting in _OPTIONS.items():
            self._solver.setOptionValue(name, setting)
        self._solver.passModel(model)

    def bound(self, column: int, lower: float, upper: float) -> None:
        """Change the bounds of a column of the loaded model."""
        self._solver.changeColBounds(column, lower, upper)

    @property
    def whole(self) -> IntArray:
        """The columns that are whole numbers."""
        return np.concatenate(self._whole)

    def solve_whole(
        self,
        num_columns: int,
        whole: IntArray,
        limits: WholeLimits,
        guess: FloatArray | None = None,
        heard: Heard = lambda answer: False,
    ) -> WholeAnswer:
        """The optimum with whole numbers in the columns `whole`, some or all of those, or what is known of it at the limits.

        `num_columns` is the number of those whose values are wanted, the first ones. `guess` are values of the whole ones to
        begin with; it is worth nothing where they are not allowed. `heard` ends the search by saying that this is enough; what
        it raises ends it too, and is raised here.
        """
        solver = self._solver
        for columns, kind in ((self.whole, highspy.HighsVarType.kContinuous), (whole, highspy.HighsVarType.kInteger)):
            for column in columns.tolist():
                solver.changeColIntegrality(column, kind)
        solver.clearSolver()  # what an earlier search has found is no part of this one
        settings: dict[str, bool | int | float | str] = _NO_SUBPROBLEMS | _NO_RESTARTS | {
            "presolve": "on", "solver": "choose", "simplex_iteration_limit": 2**31 - 1, "random_seed": limits.seed,
            "time_limit": max(0.001, limits.seconds), "mip_rel_gap": 0.0, "mip_abs_gap": limits.gap,
            "mip_feasibility_tolerance": PRIMAL_TOLERANCE, "mip_max_nodes": limits.nodes,
        }  # fmt: skip
        for name, setting in settings.items():
            if solver.setOptionValue(name, setting) != highspy.HighsStatus.kOk:
                raise ValueError(f"HiGHS refuses {setting!r} for its option {name}")
        if guess is not None:
            solver.setSolution(len(whole), whole.astype(np.int32), guess)
        News(num_columns, limits.gap, self.tolerance(), limits.seconds, heard).run(solver)
        info = solver.getInfo()
        found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
        values = np.array(solver.getSolution().col_value[:num_columns]) if found else None
        return WholeAnswer(values, float(info.mip_dual_bound) - self.tolerance())

    def proven_bound(self) -> float:
        """What the duals of the last solve prove, however far they are from an optimum: a Lagrangian bound, less what the sums
        could be off by.

        Each column lies between 0 and its upper bound as it was loaded, each row between its bounds; so the cost is at least
        the sum of y_i times the worse bound of row i, and of negative reduced costs times the upper bounds of their columns.
        """
        lower, upper = (np.concatenate(sides) for sides in zip(*self._bounds, strict=True))
        duals = np.array(self._solver.getSolution().row_dual)
        duals = np.where(np.isinf(lower), np.minimum(duals, 0.0), duals)
        duals = np.where(np.isinf(upper), np.maximum(duals, 0.0), duals)
        side = np.where(duals > 0.0, lower, upper)
        rows = duals * np.where(duals == 0.0, 0.0, side)
        cost, most = np.concatenate(self._cost), np.concatenate(self._upper)
        entries = self._value * duals[self._row]
        reduced = cost - np.bincount(self._column, weights=entries, minlength=self.num_columns)
        size = np.abs(rows).sum() + (np.abs(cost) * most).sum() + (np.abs(entries) * most[self._column]).sum()
        terms = int(np.bincount(self._column, minlength=1).max()) + SUMMED
        return float(rows.sum() + (np.minimum(reduced, 0.0) * most).sum() - np.finfo(np.float64).eps * terms * size)

    def reduced_costs(self, num_columns: int) -> FloatArray:
        """Of the first columns, where the last solve of the linear model has ended."""
        return np.array(self._solver.getSolution().col_dual[:num_columns])

    def tolerance(self) -> float:
        """How far above the truth a bound may lie: a reduced cost or a dual may be off by a tenth of the primal tolerance,
        which counts once for each unit that its column or row can move; a node may be cut off a primal tolerance too early.
        """
        moves = sum(float(upper.sum()) for upper in self._upper)
        for low, high in self._bounds:
            span = high - low
            moves += float(span[np.isfinite(span)].sum())
        moves += self._largest_activity()
        return PRIMAL_TOLERANCE + PRIMAL_TOLERANCE / 10 * moves

    def _largest_activity(self) -> float:
        """The largest sums of the entries of all rows: none moves further. Equalities, which do not move, only add caution."""
        upper = np.concatenate(self._upper)
        return float(np.abs(self._value * upper[self._column]).sum())

    def solve(self, num_columns: int) -> tuple[float, FloatArray] | None:
        """The optimum and the first columns there; None if there is none. Starts from where the last solve ended."""
        self._solver.run()
        if self._solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        found = np.array(self._solver.getSolution().col_value[:num_columns])
        return float(self._solver.getInfo().objective_function_value), found
