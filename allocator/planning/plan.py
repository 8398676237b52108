"""A plan, and what comes of it: computed from the question and the plan alone, without a solver."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd

import numpy as np
import numpy.typing as npt

from allocator.planning.costs import keep_cost, order_cost
from allocator.planning.promise import delivered_share, needed
from allocator.planning.question import Floats, Ints, Question


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is decided. K units, E existing ones.

    Attributes
    ----------
    orders
        Units ordered, shape (K, T).
    kept
        Existing units in service, shape (E, T).
    course
        Index of the course.
    """

    orders: Ints
    kept: Ints
    course: int


def needs_of(question: Question) -> Ints:
    """GPUs that each pool needs in each scenario, shape (A, S, T, P): enough for every project, in steps in which they can
    be had."""
    demand, owed = question.demand, question.owed
    found = np.zeros((*demand.shape[:3], len(question.pools)), dtype=np.int64)
    for p in range(len(question.pools)):
        least = needed(demand[..., p], owed[..., p], question.shares[:, p], question.required, question.utilisation)
        step = gcd(*(row.gpus for row in question.hardware if row.pool == p)) or 1
        found[..., p] = -(-least // step) * step
    return found


def fleet_of(question: Question, plan: Plan) -> Ints:
    """GPUs in service, shape (T, P)."""
    fleet = np.zeros((len(question.quarters), len(question.pools)), dtype=np.int64)
    for pool, gpus, _, counts in _in_service(question, plan):
        fleet[:, pool] += gpus * counts
    return fleet


def nodes_of(question: Question, plan: Plan) -> Ints:
    """Nodes in service, shape (T, P)."""
    nodes = np.zeros((len(question.quarters), len(question.pools)), dtype=np.int64)
    for pool, _, per_unit, counts in _in_service(question, plan):
        nodes[:, pool] += per_unit * counts
    return nodes


def used_of(question: Question, plan: Plan, resource: str) -> Floats:
    """What is used of a resource, shape (T,)."""
    bought = (unit.uses.get(resource, 0.0) * in_service(question, plan, k) for k, unit in enumerate(question.units))
    there = (row.uses.get(resource, 0.0) * plan.kept[e] for e, row in enumerate(question.existing))
    return sum((*bought, *there), np.zeros(len(question.quarters)))


def in_service(question: Question, plan: Plan, k: int) -> Ints:
    """Units of a kind that were bought and serve, shape (T,)."""
    unit, quarters = question.units[k], range(len(question.quarters))
    serving = np.array([[unit.serves(order, quarter) for order in quarters] for quarter in quarters], dtype=np.int64)
    return np.asarray(serving @ plan.orders[k])


def cost_of(question: Question, plan: Plan) -> int:
    """Discounted cost."""
    orders = sum(order_cost(question, question.units[k], t) * int(plan.orders[k, t]) for k, t in np.argwhere(plan.orders))
    kept = sum(keep_cost(question, question.existing[e], t) * int(plan.kept[e, t]) for e, t in np.argwhere(plan.kept))
    return orders + kept


def met_in(question: Question, plan: Plan, needs: Ints) -> npt.NDArray[np.bool_]:
    """The scenarios in which every pool has what it needs in every quarter, shape (S,)."""
    return np.asarray(np.all(fleet_of(question, plan) >= needs[plan.course], axis=(1, 2)))


def promised_of(question: Question, plan: Plan) -> Floats:
    """Delivered share of what is owed by the fleet of the plan, shape (S, T, V, P)."""
    fleet = fleet_of(question, plan)[None]
    demand, owed = question.demand[plan.course], question.owed[plan.course]
    each = [
        delivered_share(fleet[..., p], demand[..., p], owed[..., p], question.shares[:, p], question.utilisation)
        for p in range(len(question.pools))
    ]
    return np.stack(each, axis=-1)


def broken_rules(question: Question, plan: Plan, needs: Ints) -> Iterator[str]:
    """Names of the rules that a plan breaks, each with the place; nothing for a plan that holds."""
    for k, unit in enumerate(question.units):
        for t in np.flatnonzero(plan.orders[k]):
            if plan.orders[k, t] < 0 or not np.isfinite(unit.prices[t]) or plan.orders[k, t] > (unit.most or np.inf):
                yield f"on_sale: {plan.orders[k, t]} of {unit.name} in {question.quarters[t]}"
    for e, row in enumerate(question.existing):
        there = np.where(np.arange(len(question.quarters)) < row.quarters, row.count, 0)
        least = np.zeros_like(there) if row.early else there
        if np.any(plan.kept[e] > there) or np.any(plan.kept[e] < least) or np.any(np.diff(plan.kept[e]) > 0):
            yield f"leaving: {row.name}"
    for name, limits in question.limits.items():
        for t in np.flatnonzero(used_of(question, plan, name) > np.array(limits) * (1 + 1e-9)):
            yield f"limit: {name} in {question.quarters[t]}"
    if met_in(question, plan, needs).sum() < question.num_met:
        yield f"fraction: fewer than {question.num_met} scenarios are met"


def _in_service(question: Question, plan: Plan) -> Iterator[tuple[int, int, int, Ints]]:
    """Pool, GPUs and nodes of a unit, and how many are in service, shape (T,); for each kind of unit."""
    for k, unit in enumerate(question.units):
        yield unit.pool, unit.gpus, unit.nodes, in_service(question, plan, k)
    for e, row in enumerate(question.existing):
        yield row.pool, row.gpus, row.nodes, plan.kept[e]
