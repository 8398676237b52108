"""The yardstick: the formulation that one would write down first, solved with the settings of the reference model.

It has the objective of the product and its main rules, but no classes of interchangeable nodes and no queues. `charged_first`,
`minimal`, `work_conservation` and `unallocated_last` are not stated, so that its optimum is a lower bound, and the optimum of
the product where its answer happens to keep them. It knows neither reservations nor victims that are still leaving: where there
are some, it claims no bound. Kept here and only here.
"""

from __future__ import annotations

import math
import time

from ortools.sat.python import cp_model

from allocator.domain import Decision, InfeasibleError, Snapshot, SolverReport
from allocator.engine.plan import Plan, after_plan, forced_rows
from allocator.engine.report import decision_of
from allocator.entitlement import Entitlement, entitle
from allocator.verify import Placed, score_of
from allocator.wire import snapshot_digest
from benchmarks.naive_model import Model, build

NAME = "naive"


def solve_naive(snapshot: Snapshot, budget: float, seed: int, *, gap: float = 0.0) -> Decision:
    """Decide a snapshot with the naive model; the same solver settings as the reference model. It stops at the gap."""
    begun = time.perf_counter()
    snapshot = snapshot.canonical()
    ent = entitle(snapshot)
    entitled = time.perf_counter()
    model = build(ent)
    built = time.perf_counter()
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.linearization_level = 2
    solver.parameters.random_seed = seed
    step = 1000 * snapshot.policy.planning_step * int(ent.market.schedulable.sum())
    solver.parameters.absolute_gap_limit = gap * step
    solver.parameters.max_time_in_seconds = max(0.01, budget - (built - begun))
    status = solver.solve(model.cp)
    timing = {"entitle": entitled - begun, "build": built - entitled, "solve": time.perf_counter() - built}
    if status == cp_model.INFEASIBLE:
        raise InfeasibleError("the naive model admits no decision")
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    report = _report(ent, plan := _read(model, solver) if found else _keep(), solver.best_objective_bound, seed)
    return decision_of(ent, plan, snapshot_digest(snapshot), report, timing)


def _keep() -> Plan:
    return Plan(starts={}, stops=frozenset(), promotions=frozenset())


def _report(ent: Entitlement, plan: Plan, bound: float, seed: int) -> SolverReport:
    score = score_of(after_plan(ent, plan))
    known = score_of(after_plan(ent, _keep())).total + math.ceil(bound - 1e-6)
    proves = not ent.reserved and all(work.run is None or work.run.terminating_until is None for work in ent.snapshot.workloads)
    step = 1000 * ent.snapshot.policy.planning_step * int(ent.market.schedulable.sum())
    return SolverReport(
        rung="exact",
        engine=NAME,
        status="optimal" if proves and score.total <= known else "feasible",
        objective=score.total,
        bound=min(known, score.total) if proves else None,
        gap=max(0, score.total - known) / max(1, step) if proves else None,
        terms=score.as_dict(),
        seed=seed,
    )


def _read(model: Model, solver: cp_model.CpSolver) -> Plan:
    starts = {}
    for work in model.works:
        for (_, charged, express), variable in work.modes.items():
            if solver.value(variable):
                placement = {node: solver.value(tasks) for node, tasks in work.tasks.items() if solver.value(tasks)}
                starts[work.row] = Placed(placement, charged=charged, express=express)
    stops = frozenset(row for row, variable in model.stops.items() if solver.value(variable))
    promotions = frozenset(row for row, variable in model.promotions.items() if solver.value(variable))
    return Plan(starts=starts, stops=stops | forced_rows(model.ent), promotions=promotions)
