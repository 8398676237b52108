"""Builds the MILP with PuLP, solves it with HiGHS and reads the answer.

HiGHS computes in floating point. What it answers is made exact again here: integers are rounded and every row is checked,
the value is computed from the decoded solution, and the bound gives way by all that the tolerances could add up to.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pulp

from allocator.epoch.decode import decode_counts
from allocator.epoch.problem import EpochProblem
from allocator.epoch.solution import EpochSolution, value_of
from allocator.models.milp.constraints import Constraints
from allocator.models.milp.highs import BROKEN, INFEASIBLE, Heard, has_solution, solve_rows
from allocator.models.milp.objective import Objective
from allocator.models.milp.variables import Variables, range_of
from allocator.models.protocol import EngineResult, Limits, Report, Status, unheard
from allocator.models.rounds import solve_in_rounds

NAME = "milp"

PRIMAL_TOLERANCE = 1e-9
"""`mip_feasibility_tolerance`: how far HiGHS lets integers and rows be off."""

DUAL_TOLERANCE = PRIMAL_TOLERANCE / 10
"""How far reduced costs may be off in the relaxations of HiGHS, which derives it from the other."""


@dataclass(frozen=True, slots=True)
class Model:
    """The model, and how to read it."""

    rows: pulp.LpProblem
    variables: Variables
    objective: Objective


def build(problem: EpochProblem, claims: Sequence[int] = (), displaced: Sequence[int] = ()) -> Model:
    """The whole model.

    `unallocated_last` is stated for the offers in `claims`, `charged_first` for the victims in `displaced`.
    """
    rows = pulp.LpProblem("epoch", pulp.LpMinimize)
    variables = Variables(rows, problem)
    Constraints(rows, problem, variables, claims, displaced).add_all()
    objective = Objective(rows, problem, variables)
    objective.minimise()
    return Model(rows, variables, objective)


def solve(problem: EpochProblem, limits: Limits, guess: EpochSolution | None = None, report: Report = unheard) -> EngineResult:
    """Solve to optimality or to the limits, from a guess if there is one; afterthoughts that guess or answer break are stated.

    Measured, a good guess halves the time: HiGHS spends much of it looking for a first good answer.
    """

    def once(problem: EpochProblem, limits: Limits, claims: Sequence[int], displaced: Sequence[int]) -> EngineResult:
        return _solve_once(problem, limits, claims, displaced, guess, report)

    return solve_in_rounds(once, problem, limits, guess, report)


def _solve_once(
    problem: EpochProblem,
    limits: Limits,
    claims: Sequence[int],
    displaced: Sequence[int],
    guess: EpochSolution | None,
    report: Report,
) -> EngineResult:
    started = time.monotonic()
    model = build(problem, claims, displaced)
    seconds = limits.seconds - (time.monotonic() - started)
    if seconds <= 0:
        return EngineResult(NAME, Status.UNKNOWN, None, None, None, note="no time left once the model was built")
    values = model.variables.values_of(guess) if guess is not None else None
    run(model, seconds, limits.gap, limits.seed, values, _on_the_way(problem, model, report))
    status = model.rows.solverModel.getModelStatus()
    if status in INFEASIBLE:
        return EngineResult(NAME, Status.INFEASIBLE, None, None, None)
    if status in BROKEN:
        return EngineResult(NAME, Status.INVALID, None, None, None, note=f"HiGHS ends with {status.name}")
    return _result(problem, model, limits)


def _on_the_way(problem: EpochProblem, model: Model, report: Report) -> Heard:
    """Reports bounds that are tighter than before, and answers once they are exact."""
    tightest = -math.inf

    def heard(dual: float, columns: npt.NDArray[np.float64] | None) -> None:
        nonlocal tightest
        if columns is not None:
            report(_answer_in(problem, model, columns))
        elif dual > tightest:
            tightest = dual
            report(EngineResult(NAME, Status.UNKNOWN, None, None, _exact_bound(model, dual)))

    return heard


def _answer_in(problem: EpochProblem, model: Model, columns: npt.NDArray[np.float64]) -> EngineResult:
    """The answer that columns of HiGHS stand for, if it keeps all rows."""
    for variable in model.rows.variables():
        if hasattr(variable, "index"):
            variable.varValue = columns[variable.index]
    _round(model)
    if not _keeps_all_rows(model):
        return EngineResult(NAME, Status.UNKNOWN, None, None, None)
    solution = _read(problem, model.variables)
    return EngineResult(NAME, Status.FEASIBLE, solution, value_of(problem, solution), None)


def run(
    model: Model,
    seconds: float,
    gap: int = 0,
    seed: int = 0,
    values: Mapping[pulp.LpVariable, int] | None = None,
    heard: Heard | None = None,
) -> None:
    """Let HiGHS work on a model, from values of some variables if they are given; `heard` is told what it finds on the way.

    One thread, so that the same seed gives the same answer.
    """
    # Stop where the bound, once it has given way and is rounded up, lies within the gap.
    enough = max(gap, 0) + max(Fraction(0), 1 - 2 * tolerance(model))
    options = {
        "time_limit": max(0.001, seconds), "threads": 1, "random_seed": seed, "mip_allow_restart": False, "mip_rel_gap": 0.0,
        "mip_abs_gap": float(enough / model.objective.unit), "mip_feasibility_tolerance": PRIMAL_TOLERANCE,
    }  # fmt: skip
    solve_rows(model.rows, options, values or {}, heard)


def tolerance(model: Model) -> Fraction:
    """How far above the truth HiGHS' dual bound may lie, in 1/1000 GPU-second.

    A relaxation is taken for solved where every reduced cost and every dual has the right sign but for the dual tolerance,
    which counts once for each unit that its variable or row can move. A node is cut off a primal tolerance too early.
    """
    moves = sum(variable.upBound - variable.lowBound for variable in model.rows.variables())
    for row in model.rows.constraints():
        if row.sense != pulp.LpConstraintEQ:
            low, high = range_of(row)
            moves += high - low
    return model.objective.unit * (Fraction(PRIMAL_TOLERANCE) + Fraction(DUAL_TOLERANCE) * Fraction(moves))


def _bound(model: Model) -> int | None:
    """A bound on the value relative to keep. Values are integers, so it may be rounded up."""
    info = model.rows.solverModel.getInfo()
    return _exact_bound(model, info.mip_dual_bound if model.rows.isMIP() else info.objective_function_value)


def _exact_bound(model: Model, dual: float) -> int | None:
    """The dual bound of HiGHS, less what its tolerances could add up to."""
    if not math.isfinite(dual):
        return None
    return math.ceil(Fraction(dual) * model.objective.unit + model.objective.constant - tolerance(model))


def _result(problem: EpochProblem, model: Model, limits: Limits) -> EngineResult:
    """The answer with its exact value. It is optimal only if that value is within the gap of the bound."""
    bound = _bound(model)
    if not has_solution(model.rows):
        return EngineResult(NAME, Status.UNKNOWN, None, None, bound)
    _round(model)
    if not _keeps_all_rows(model):
        return EngineResult(NAME, Status.UNKNOWN, None, None, bound, note="rounded to integers, the answer breaks a row")
    solution = _read(problem, model.variables)
    value = value_of(problem, solution)
    if bound is not None and bound > value:
        note = f"the bound {bound} of HiGHS lies above the value {value}"
        return EngineResult(NAME, Status.FEASIBLE, solution, value, None, note=note)
    proven = bound is not None and value - bound <= max(limits.gap, 0)
    return EngineResult(NAME, Status.OPTIMAL if proven else Status.FEASIBLE, solution, value, bound)


def _round(model: Model) -> None:
    for variable in model.rows.variables():
        if variable.cat == pulp.LpInteger:
            variable.varValue = round(variable.varValue)


def _keeps_all_rows(model: Model) -> bool:
    """Whether the integers satisfy, exactly, every row that has no other variables. The others only measure costs."""
    exact = (row for row in model.rows.constraints() if all(variable.cat == pulp.LpInteger for variable in row))
    return all(row.valid(0) for row in exact)


def _read(problem: EpochProblem, variables: Variables) -> EpochSolution:
    start, stop, promote = (
        np.array([_value(variable) for variable in row], dtype=np.int64)
        for row in (variables.start, variables.stop, variables.promote)
    )
    counts = {key: _value(variable) for key, variable in variables.count.items()}
    units = {(j, c): _value(v) for j, cells in enumerate(variables.units) for c, v in cells.items() if start[j]}
    return EpochSolution(
        starts=decode_counts(problem, start, stop, counts, units),
        stops=frozenset(np.flatnonzero(stop).tolist()),
        promotions=frozenset(np.flatnonzero(promote).tolist()),
    )


def _value(variable: pulp.LpVariable) -> int:
    # A variable that neither a row nor the objective knows never reaches the solver.
    return int(variable.varValue or 0)
