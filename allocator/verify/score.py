"""The score of a decision, recomputed from the state after it, and whether the solver's report agrees."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import NoneType

import numpy as np

from allocator.domain import SolverReport
from allocator.entitlement.costs import Score, express_cost, fragmentation_cost, idle_cost, spread_costs, whole_before
from allocator.topology import GPUS, IntArray
from allocator.verify.after import AfterState
from allocator.verify.case import Case
from allocator.verify.verdict import Violation

_GAP_TOLERANCE = 1e-9
"""The gap is the one float of a decision; nothing is decided by it."""


def score_of(after: AfterState) -> Score:
    """The terms of the objective in 1/1000 GPU-second."""
    works, waits = after.ent.works, ~after.running
    gpus = works.gpus[works.express & waits].tolist()
    return Score(
        unfairness=_unfairness(after),
        express=sum(express_cost(after.ent.snapshot.policy, size) for size in gpus),
        idle=_idle(after),
        lost_work=int(works.lost_cost[after.stopped].sum()),
        spread=_spread(after),
        fragmentation=_fragmentation(after),
        order=int(works.order_cost[waits].sum()),
    )


def _unfairness(after: AfterState) -> int:
    """The deviation curves at the charged GPUs of each vertex."""
    held = after.held_charged
    return sum(curve.value(int(held[place])) for place, curve in after.ent.market.curves.items())


def _idle(after: AfterState) -> int:
    """GPUs of accepting nodes that no task uses."""
    idle = np.maximum(after.free[GPUS], 0)[after.ent.layout.accepting]
    return idle_cost(after.ent.snapshot.policy) * int(idle.sum())


def _spread(after: AfterState) -> int:
    """Domains that gangs touch beyond the fewest possible."""
    total, domain = 0, after.ent.layout.domain
    for row, placement in after.placement.items():
        if len(placement) < 2 or after.pool[row] < 0:
            continue
        costs = spread_costs(after.ent, row, int(after.pool[row]))
        if not costs.per_domain.any():
            continue
        where = domain[:, list(placement)]
        for level in np.flatnonzero(costs.per_domain).tolist():
            more = len(set(where[level].tolist())) - int(costs.fewest[level])
            total += int(costs.per_domain[level]) * max(0, more)
    return total


def _fragmentation(after: AfterState) -> int:
    """GPUs placed in, or left free of, what was wholly free just before now: the smaller number of the two."""
    layout, total = after.ent.layout, 0
    used = after.used[GPUS]
    for level, whole in enumerate(whole_before(after.ent)):
        shape = whole.shape
        place = layout.domain[level], layout.pool
        placed = _sum_at(place, used, shape)
        left = _sum_at(place, layout.capacity[GPUS], shape) - placed
        total += int(np.maximum(np.minimum(placed, left), 0)[whole].sum())
    return fragmentation_cost(after.ent.snapshot.policy) * total


def _sum_at(place: tuple[IntArray, IntArray], values: IntArray, shape: tuple[int, ...]) -> IntArray:
    total = np.zeros(shape, dtype=np.int64)
    np.add.at(total, place, values)
    return total


def score(case: Case) -> Iterator[Violation]:
    """Ensures that objective, terms, bound and gap, and the lost work of every stop, are what snapshot and decision give."""
    for row, stop in case.rows.stops.items():
        lost = int(case.ent.works.lost_gpu_seconds[row])
        if stop.lost_gpu_seconds != lost:
            yield Violation("score", case.id(row), f"loses {lost} GPU-seconds, not {stop.lost_gpu_seconds}")
    report, true = case.decision.solver, score_of(case.after)
    wrong = _malformed(report)
    if wrong:
        yield Violation("score", "solver", wrong)
        return
    if report.objective != true.total:
        yield Violation("score", "objective", f"is {true.total}, not {report.objective} (1/1000 GPU-second)")
    said, terms = dict(report.terms), true.as_dict()
    for name in sorted(terms.keys() | said.keys(), key=str):
        if said.get(name) != terms.get(name):
            yield Violation("score", f"terms.{name}", f"is {terms.get(name)}, not {said.get(name)}")
    yield from _proof(case, report)


def _malformed(report: object) -> str:
    """What keeps the solver's report from being read; empty if nothing does."""
    if not isinstance(report, SolverReport):
        return f"a report is expected, not {type(report).__name__}"
    kinds = {"objective": (int,), "bound": (int, NoneType), "gap": (float, int, NoneType)}
    wrong = [key for key, kind in kinds.items() if type(getattr(report, key)) not in kind]
    terms: object = report.terms
    wrong += [] if isinstance(terms, Mapping) else ["terms"]
    return f"{', '.join(wrong)} of the report cannot be read" if wrong else ""


def _proof(case: Case, report: SolverReport) -> Iterator[Violation]:
    """Ensures that the bound does not exceed the objective and that the gap follows from both."""
    if report.bound is None:
        if report.gap is not None:
            yield Violation("score", "gap", f"is {report.gap} without a bound")
        return
    if report.bound > report.objective:
        yield Violation("score", "bound", f"{report.bound} exceeds the objective {report.objective}")
    step = case.ent.snapshot.policy.planning_step
    worth = 1000 * step * int(case.ent.market.schedulable.sum())
    gap = (report.objective - report.bound) / worth if worth else 0.0
    if report.gap is None or not math.isclose(report.gap, gap, rel_tol=_GAP_TOLERANCE, abs_tol=_GAP_TOLERANCE):
        yield Violation("score", "gap", f"is {gap}, not {report.gap}")
