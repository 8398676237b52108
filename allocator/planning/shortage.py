"""What cannot be met, for a question without an answer: which requirement, by how much, and what stands in the way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from allocator.planning.plan import Plan, fleet_of, promised_of, used_of
from allocator.planning.question import Ints, Question


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """A pool that is too small in a quarter, and the project that comes off worst.

    `short`: GPUs missing, with as few missing in all quarters together as is possible; `reached`: the share of what it is owed
    that the project would get then, in that scenario.
    """

    quarter: str
    pool: str
    project: str
    scenario: str
    needed: int
    short: int
    required: float
    reached: float
    cause: str

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def shortages(question: Question, plan: Plan, needs: Ints) -> Iterator[Shortage]:
    """Every pool and quarter in which the plan that lacks least still lacks GPUs, in a scenario that has to be met."""
    fleet, promised = fleet_of(question, plan), promised_of(question, plan)
    counted = _counted(question, plan, needs)
    for t, quarter in enumerate(question.quarters):
        for p, pool in enumerate(question.pools):
            s = max(counted, key=lambda s: (int(needs[plan.course, s, t, p]), -s))
            needed = int(needs[plan.course, s, t, p])
            if needed > fleet[t, p]:
                v = int(np.argmin(promised[s, t, :, p] - question.required))
                yield Shortage(
                    quarter=quarter,
                    pool=pool,
                    project=question.projects[v],
                    scenario=question.scenarios[s],
                    needed=needed,
                    short=needed - int(fleet[t, p]),
                    required=float(question.required[v]),
                    reached=round(float(promised[s, t, v, p]), 6),
                    cause=_cause(question, plan, t, p),
                )


def _counted(question: Question, plan: Plan, needs: Ints) -> list[int]:
    """As many scenarios as have to be met: those that lack the fewest GPUs."""
    lack = np.maximum(needs[plan.course] - fleet_of(question, plan)[None], 0).sum(axis=(1, 2))
    return [int(s) for s in np.argsort(lack, kind="stable")[: question.num_met]]


def _cause(question: Question, plan: Plan, t: int, p: int) -> str:
    """Why no unit could be added to a pool in a quarter."""
    sold = [(k, unit) for k, unit in enumerate(question.units) if unit.pool == p]
    if not sold:
        return "no unit of this pool is on sale"
    arriving = [
        (k, unit, order)
        for k, unit in sold
        for order in range(t + 1)
        if unit.serves(order, t) and np.isfinite(unit.prices[order])
    ]
    if not arriving:
        return "nothing that is ordered arrives by then"
    if all(unit.most is not None and plan.orders[k, order] >= unit.most for k, unit, order in arriving):
        return "no more can be had in time"
    full = [
        name
        for name, limits in question.limits.items()
        if all(used_of(question, plan, name)[t] + unit.uses.get(name, 0) > limits[t] * (1 + 1e-9) for _, unit in sold)
    ]
    return f"limit of {', '.join(full)}" if full else "limits of this and later quarters together"
