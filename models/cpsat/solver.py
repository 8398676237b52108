"""Builds the reference model, solves it and reads the answer."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from ortools.sat.python import cp_model

from allocator.epoch.decode import decode_counts
from allocator.epoch.problem import EpochProblem
from allocator.epoch.solution import EpochSolution, value_of
from allocator.models.cpsat.constraints import Constraints
from allocator.models.cpsat.objective import Objective
from allocator.models.cpsat.variables import Variables
from allocator.models.protocol import EngineResult, Limits, Report, Status, unheard
from allocator.models.rounds import solve_in_rounds

NAME = "cp-sat"

_STATUS = {
    cp_model.OPTIMAL: Status.OPTIMAL,
    cp_model.FEASIBLE: Status.FEASIBLE,
    cp_model.UNKNOWN: Status.UNKNOWN,
    cp_model.INFEASIBLE: Status.INFEASIBLE,
    cp_model.MODEL_INVALID: Status.INVALID,
}

UNBOUNDED = 1 << 60
"""Beyond all values of the objective."""

DETERMINISTIC_RATE = 1.0
"""Deterministic time units allowed per second of the limit; generous, so that the wall clock is only a backstop."""


def build(
    problem: EpochProblem, guess: EpochSolution | None = None, claims: Sequence[int] = (), displaced: Sequence[int] = ()
) -> tuple[cp_model.CpModel, Variables]:
    """The whole model and its variables.

    `unallocated_last` is stated for the offers in `claims`, `charged_first` for the victims in `displaced`.
    """
    model = cp_model.CpModel()
    variables = Variables(model, problem, guess)
    Constraints(model, problem, variables, claims, displaced).add_all()
    Objective(model, problem, variables).minimise()
    return model, variables


def solve(problem: EpochProblem, limits: Limits, guess: EpochSolution | None = None, report: Report = unheard) -> EngineResult:
    """Solve to optimality or to the limits; afterthoughts that the answer breaks are added and the model is solved again.

    The guess tells which afterthoughts to begin with. It is no hint: measured, hints make this model slower, and the
    portfolio keeps the better of the two answers. Of the answers on the way only those are reported that are better.
    """
    known = limits.upper if guess is None or limits.upper is not None else value_of(problem, guess)
    floor = math.inf if known is None else known

    def once(problem: EpochProblem, limits: Limits, claims: Sequence[int], displaced: Sequence[int]) -> EngineResult:
        return _solve_once(problem, limits, claims, displaced, floor, report)

    return solve_in_rounds(once, problem, limits, guess, report)


class _Answers(cp_model.CpSolverSolutionCallback):
    """Reports each answer that is better than all before."""

    def __init__(self, problem: EpochProblem, variables: Variables, floor: float, report: Report) -> None:
        super().__init__()
        self._problem, self._variables, self._floor, self._report = problem, variables, floor, report

    def on_solution_callback(self) -> None:
        """Called by CP-SAT in the middle of the search."""
        if self.objective_value < self._floor:
            self._floor = self.objective_value
            solution = _read(self._problem, self._variables, self)
            value = value_of(self._problem, solution)
            self._report(EngineResult(NAME, Status.FEASIBLE, solution, value, None))


def _report_bound(report: Report, bound: float) -> None:
    """A bound of 0 or more says no more than that keep is always possible."""
    if math.isfinite(bound) and bound < 0:
        report(EngineResult(NAME, Status.UNKNOWN, None, None, _rounded_up(bound)))


def _solve_once(
    problem: EpochProblem,
    limits: Limits,
    claims: Sequence[int],
    displaced: Sequence[int],
    floor: float,
    report: Report,
) -> EngineResult:
    """One worker: strong with the linear relaxation, and deterministic.

    It looks for values only where the optimum is known to lie, and everywhere if there is none.
    """
    begun = time.monotonic()
    model, variables = build(problem, None, claims, displaced)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.linearization_level = 2
    solver.parameters.add_lp_constraints_lazily = False  # measured: halves the time to prove
    solver.parameters.max_presolve_iterations = 1  # this and what follows, measured: half of the time less (record 0060)
    solver.parameters.cp_model_probing_level = 0
    solver.parameters.symmetry_level = 0
    solver.parameters.use_sat_inprocessing = False
    solver.parameters.random_seed = limits.seed
    solver.parameters.max_time_in_seconds = max(0.001, limits.seconds)
    solver.parameters.max_deterministic_time = max(0.001, limits.seconds * DETERMINISTIC_RATE)
    solver.parameters.absolute_gap_limit = float(max(limits.gap, 0))
    solver.best_bound_callback = partial(_report_bound, report)
    narrowed = _narrow(model, limits)
    status = _STATUS[solver.solve(model, _Answers(problem, variables, floor, report))]
    if narrowed and status is Status.INFEASIBLE:
        left = limits.seconds - (time.monotonic() - begun)
        return _solve_once(problem, replace(limits, seconds=left, lower=None, upper=None), claims, displaced, floor, report)
    if status is Status.OPTIMAL or status is Status.FEASIBLE:
        solution = _read(problem, variables, solver)
        # Short of an optimum, what only measures (steps, broken nodes) may stand higher than it has to. With a gap CP-SAT calls
        # an answer optimal that is as near as that.
        exact = status is Status.OPTIMAL and limits.gap <= 0
        value = round(solver.objective_value) if exact else value_of(problem, solution)
        return EngineResult(NAME, status, solution, value, _bound(solver))
    # Before the search begins the solver's bound is 0 whatever the objective: a 0 without an answer proves nothing.
    return EngineResult(NAME, status, None, None, (_bound(solver) or None) if status is Status.UNKNOWN else None)


def _narrow(model: cp_model.CpModel, limits: Limits) -> bool:
    """Leave only values between which the optimum is known to lie; whether any were taken away."""
    lower = -UNBOUNDED if limits.lower is None else limits.lower
    upper = UNBOUNDED if limits.upper is None else limits.upper
    if lower > upper or (limits.lower is None and limits.upper is None):
        return False
    constant = round(model.proto.objective.offset)  # a domain is one of the sum of all terms but this
    model.proto.objective.domain.extend([lower - constant, upper - constant])
    return True


def _bound(solver: cp_model.CpSolver) -> int:
    return _rounded_up(solver.best_objective_bound)


def _rounded_up(bound: float) -> int:
    """Objectives are integers: a bound may be rounded up, past the noise of the solver's floating point."""
    return math.ceil(bound - 1e-6)


def _read(problem: EpochProblem, variables: Variables, solver: cp_model.CpSolver | _Answers) -> EpochSolution:
    def chosen(row: list[cp_model.IntVar]) -> np.ndarray:
        return np.array([solver.value(variable) for variable in row], dtype=np.int64)

    start, stop = chosen(variables.start), chosen(variables.stop)
    counts = {key: solver.value(variable) for key, variable in variables.count.items()}
    units = {(j, c): solver.value(v) for j, cells in enumerate(variables.units) for c, v in cells.items() if start[j]}
    return EpochSolution(
        starts=decode_counts(problem, start, stop, counts, units),
        stops=frozenset(np.flatnonzero(stop).tolist()),
        promotions=frozenset(np.flatnonzero(chosen(variables.promote)).tolist()),
    )
