"""A decision by workload rows: what engines answer, what the last pass mends, what becomes the rows of the decision."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from allocator.entitlement import Entitlement
from allocator.entitlement.forced import UNFORCED
from allocator.epoch import EpochProblem, EpochSolution
from allocator.verify.after import AfterState, Placed, build_after

LAST_PLANS = 3
"""Plans of an epoch of which the state is kept."""


@dataclass(frozen=True, slots=True)
class Plan:
    """`starts` by workload row; `stops` by choice and `promotions` as workload rows. Forced stops, and starts of gangs
    whose reservation is due, are in every plan."""

    starts: Mapping[int, Placed]
    stops: frozenset[int]
    promotions: frozenset[int]


def forced_rows(ent: Entitlement) -> frozenset[int]:
    """Running work that must stop."""
    return frozenset((ent.works.forced != UNFORCED).nonzero()[0].tolist())


def plan_of(problem: EpochProblem, solution: EpochSolution) -> Plan:
    """An engine's answer in rows of the work table, units turned back into tasks."""
    offers, victims, promotions = problem.offers, problem.victims, problem.promotions
    starts = {}
    for j, placement in solution.starts.items():
        tasks = {node: units * int(offers.unit_tasks[j]) for node, units in sorted(placement.items())}
        starts[int(offers.work[j])] = Placed(tasks, charged=bool(offers.charged[j]), express=bool(offers.express[j]))
    return Plan(
        starts=starts,
        stops=frozenset(int(victims.work[r]) for r in solution.stops),
        promotions=frozenset(int(promotions.work[u]) for u in solution.promotions),
    )


def due_starts(ent: Entitlement) -> dict[int, Placed]:
    """Gangs whose reservation is due, where they start."""
    return {one.row: Placed(dict(sorted(one.placement.items())), charged=True) for one in ent.reserved if one.due}


def after_plan(ent: Entitlement, plan: Plan) -> AfterState:
    """The state once the plan is carried out."""
    return build_after(ent, plan.stops | forced_rows(ent), {**plan.starts, **due_starts(ent)}, plan.promotions)


class States:
    """The states after the plans of one call. The last few are kept, for most are asked for again."""

    def __init__(self, ent: Entitlement) -> None:
        self.ent = ent
        self._known: deque[tuple[Plan, AfterState]] = deque(maxlen=LAST_PLANS)

    def after(self, plan: Plan) -> AfterState:
        """The state once a plan is carried out."""
        found = next((state for known, state in self._known if known == plan), None)
        if found is None:
            found = after_plan(self.ent, plan)
            self._known.append((plan, found))
        return found
