"""An answer as a document: `plan.json`, and what is printed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from allocator.models.protocol import Status
from allocator.planning.check import Comparison
from allocator.planning.plan import Plan, fleet_of, met_in, promised_of, used_of
from allocator.planning.question import Question
from allocator.planning.shortage import shortages
from allocator.planning.solver import Answer


def plan_view(question: Question, answer: Answer, played: Sequence[Comparison] | None = None) -> dict[str, Any]:
    """The whole answer. `played` None: it was not replayed."""
    plan, needs = answer.plan, answer.needs
    solved = plan is not None and answer.status is not Status.INFEASIBLE
    view: dict[str, Any] = {
        "version": 1,
        "title": question.title,
        "status": str(answer.status),
        "currency": question.currency,
        "cost": answer.cost,
        "bound": answer.bound,
        "gap": answer.gap,
        "note": answer.note,
        "scenarios": len(question.scenarios),
        "scenarios_required": question.num_met,
        "utilisation": {
            "loads": list(question.utilisation.loads),
            "delivered": list(question.utilisation.delivered),
        },
    }
    if plan is not None and solved:
        met = met_in(question, plan, needs)
        view |= {
            "course": question.courses[plan.course],
            "scenarios_met": [name for name, is_met in zip(question.scenarios, met, strict=True) if is_met],
            "orders": list(_orders(question, plan)),
            "kept": list(_kept(question, plan)),
            "fleet": list(_fleet(question, answer, plan, met.tolist())),
            "delivered": list(_delivered(question, plan, met.tolist())),
        }
    elif plan is not None:
        view["missing"] = [row.as_dict() for row in shortages(question, plan, needs)]
    if played is not None:
        view["replay"] = {
            "policy": question.replay.policy,
            "gpus": question.replay.gpus,
            "hours": question.replay.hours,
            "draws": question.replay.draws,
            "failures": question.replay.failures,
            "rows": [row.as_dict() for row in played],
        }
    return view


def _orders(question: Question, plan: Plan) -> Iterator[dict[str, Any]]:
    """Orders by quarter."""
    for t, k in np.argwhere(plan.orders.T):
        unit, count = question.units[k], int(plan.orders[k, t])
        yield {
            "quarter": question.quarters[t],
            "unit": unit.name,
            "pool": question.pools[unit.pool],
            "units": count,
            "gpus": count * unit.gpus,
            "in_service": question.quarters[t + unit.lead],
            "price": round(count * unit.prices[t]),
        }


def _kept(question: Question, plan: Plan) -> Iterator[dict[str, Any]]:
    """How many existing units are in service, quarter by quarter."""
    for e, row in enumerate(question.existing):
        yield {"name": row.name, "pool": question.pools[row.pool], "units": plan.kept[e].tolist()}


def _fleet(question: Question, answer: Answer, plan: Plan, met: Sequence[bool]) -> Iterator[dict[str, Any]]:
    """GPUs there are, and the most that a scenario needs which is met; resources used."""
    fleet, needs = fleet_of(question, plan), answer.needs[plan.course][np.array(met, dtype=bool)]
    used = {name: used_of(question, plan, name) for name in question.limits}
    for t, quarter in enumerate(question.quarters):
        yield {
            "quarter": quarter,
            "gpus": dict(zip(question.pools, fleet[t].tolist(), strict=True)),
            "needed": dict(zip(question.pools, needs[:, t].max(axis=0, initial=0).tolist(), strict=True)),
            "used": {name: round(float(amounts[t]), 3) for name, amounts in used.items()},
        }


def _delivered(question: Question, plan: Plan, met: Sequence[bool]) -> Iterator[dict[str, Any]]:
    """By project and pool: the lowest share of what is owed over all quarters and scenarios that are met, and the mean."""
    owed = question.owed[plan.course]
    promised = promised_of(question, plan)
    mask = np.array(met, dtype=bool)
    for v, project in enumerate(question.projects):
        for p, pool in enumerate(question.pools):
            if np.any(owed[:, :, v, p] > 0) and mask.any():
                shares = promised[mask][:, :, v, p]
                s, t = np.unravel_index(int(np.argmin(shares)), shares.shape)
                yield {
                    "project": project,
                    "pool": pool,
                    "required": float(question.required[v]),
                    "lowest": round(float(shares[s, t]), 6),
                    "quarter": question.quarters[int(t)],
                    "scenario": np.array(question.scenarios)[mask][int(s)].item(),
                    "mean": round(float(shares.mean()), 6),
                }
