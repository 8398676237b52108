"""Solves a planning question, and says what is missing where nothing can solve it."""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass

import highspy

from allocator.models.milp.highs import BROKEN, INFEASIBLE, has_solution, solve_rows
from allocator.models.protocol import Status
from allocator.planning.model import Model
from allocator.planning.plan import Plan, broken_rules, cost_of, needs_of
from allocator.planning.question import Ints, Question

logger = logging.getLogger(__name__)

FEASIBILITY = 1e-9
"""`mip_feasibility_tolerance` of HiGHS."""

ROUNDING = 1e-6
"""The bound of HiGHS gives way by this part of it: its relaxations are solved within tolerances."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How a solve ended. `cost` and `bound` in whole units of money; None where there is none.

    Attributes
    ----------
    plan
        For an infeasible question the plan that lacks the fewest GPU-quarters, whatever it costs; `cost` is None then.
    note
        Why there is no answer, if there is none.
    """

    status: Status
    needs: Ints
    plan: Plan | None = None
    cost: int | None = None
    bound: int | None = None
    note: str = ""

    @property
    def gap(self) -> float | None:
        """How much of the cost a better plan could at most save."""
        if self.cost is None or self.bound is None:
            return None
        return max(0.0, (self.cost - self.bound) / abs(self.cost)) if self.cost else 0.0


def solve(question: Question, seconds: float = 60.0, gap: float = 0.0, seed: int = 0) -> Answer:
    """The plan of least cost.

    Parameters
    ----------
    seconds
        Time limit; for an infeasible question once more as much.
    gap
        Part of the cost at which to stop: an answer within it counts as optimal.
    """
    begun = time.monotonic()
    needs = needs_of(question)
    answer = _solve(question, needs, max(0.001, seconds), gap, seed)
    if answer.status is Status.INFEASIBLE:
        answer = _relaxed(question, needs, seconds, seed)
    logger.info("solved in %.2f s", time.monotonic() - begun)
    return answer


def _solve(question: Question, needs: Ints, seconds: float, gap: float, seed: int) -> Answer:
    model = Model(question, needs)
    status = _run(model, seconds, gap, seed)
    if status in INFEASIBLE:
        return Answer(status=Status.INFEASIBLE, needs=needs)
    if status in BROKEN:
        return Answer(status=Status.INVALID, needs=needs, note=f"HiGHS ends with {status.name}")
    bound = _bound(model)
    if not has_solution(model.rows):
        return Answer(status=Status.UNKNOWN, needs=needs, bound=bound, note=f"no plan was found in {seconds:g} s")
    plan = model.read()
    broken = list(broken_rules(question, plan, needs))
    if broken:
        return Answer(status=Status.INVALID, needs=needs, bound=bound, note=f"the plan of HiGHS breaks {broken[0]}")
    answer = Answer(status=Status.FEASIBLE, needs=needs, plan=plan, cost=cost_of(question, plan), bound=bound)
    return answer if answer.gap is None or answer.gap > max(gap, 2 * ROUNDING) else _proven(answer)


def _proven(answer: Answer) -> Answer:
    return Answer(status=Status.OPTIMAL, needs=answer.needs, plan=answer.plan, cost=answer.cost, bound=answer.bound)


def _relaxed(question: Question, needs: Ints, seconds: float, seed: int) -> Answer:
    """The fewest GPUs that are missing, for a question without an answer."""
    model = Model(question, needs, elastic=True)
    _run(model, seconds, 0.0, seed)
    plan = model.read() if has_solution(model.rows) else None
    note = "" if plan else f"what is missing was not found in {seconds:g} s"
    return Answer(status=Status.INFEASIBLE, needs=needs, plan=plan, note=note)


def _run(model: Model, seconds: float, gap: float, seed: int) -> highspy.HighsModelStatus:
    options = {
        "time_limit": seconds, "threads": 1, "random_seed": seed, "mip_rel_gap": gap, "mip_abs_gap": 0.0,
        "mip_feasibility_tolerance": FEASIBILITY,
    }  # fmt: skip
    solve_rows(model.rows, options, {})
    status: highspy.HighsModelStatus = model.rows.solverModel.getModelStatus()
    return status


def _bound(model: Model) -> int | None:
    """A bound on the cost. Costs are integers, so it may be rounded up."""
    info = model.rows.solverModel.getInfo()
    dual = info.mip_dual_bound if model.rows.isMIP() else info.objective_function_value
    return math.ceil(dual * model.unit - ROUNDING * max(1.0, abs(dual * model.unit))) if math.isfinite(dual) else None
