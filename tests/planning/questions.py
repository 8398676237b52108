"""Small planning questions, and every plan of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import inf, isfinite
from typing import Any

import numpy as np

from allocator.planning.document import ReplayDoc
from allocator.planning.plan import Plan
from allocator.planning.question import Existing, Question, Unit
from allocator.planning.utilisation import Utilisation

IDEAL = Utilisation(loads=(1.0,), delivered=(1.0,))
"""A schedule that loses nothing."""


def unit(name: str = "rack", **changes: Any) -> Unit:
    made = Unit(
        name=name, pool=0, gpus=8, nodes=1, running=0.0, uses={}, lead=0, life=20, most=None, prices=(100.0,) * 8
    )  # fmt: skip
    return replace(made, **changes)


def there(name: str = "old", **changes: Any) -> Existing:
    made = Existing(name=name, pool=0, gpus=8, nodes=1, running=0.0, uses={}, count=1, quarters=2, early=False)
    return replace(made, **changes)


def question(demand: Any, **changes: Any) -> Question:
    """`demand` has the shape (A, S, T, V, P)."""
    asked = np.array(demand, dtype=np.float64)
    courses, scenarios, quarters, projects, pools = asked.shape
    made = Question(
        title="tiny",
        currency="EUR",
        quarters=tuple(f"2027Q{t + 1}" for t in range(quarters)),
        pools=tuple(f"pool{p}" for p in range(pools)),
        projects=tuple(f"project{v}" for v in range(projects)),
        scenarios=tuple(f"scenario{s}" for s in range(scenarios)),
        courses=tuple(f"course{a}" for a in range(courses)),
        units=(unit(),),
        existing=(),
        limits={},
        discount=0.0,
        residual=0.0,
        shares=np.full((projects, pools), 1 / projects),
        pledged=np.full((quarters, pools), inf),
        demand=asked,
        required=np.ones(projects),
        fraction=1.0,
        utilisation=IDEAL,
        replay=ReplayDoc(),
    )
    return replace(made, **changes)


def every_plan(asked: Question, most: int) -> Iterator[Plan]:
    """All plans with at most so many units of a kind in each order, whether they keep the rules or not."""
    quarters = len(asked.quarters)
    orders = [
        range(most + 1) if t + sold.lead < quarters and isfinite(sold.prices[t]) else range(1)
        for sold in asked.units
        for t in range(quarters)
    ]
    kept = [
        range(0 if row.early else row.count, row.count + 1) if t < row.quarters else range(1)
        for row in asked.existing
        for t in range(quarters)
    ]
    for chosen in product(range(len(asked.courses)), *orders, *kept):
        counts = np.array(chosen[1 : len(orders) + 1], dtype=np.int64).reshape(len(asked.units), quarters)
        keeps = np.array(chosen[len(orders) + 1 :], dtype=np.int64).reshape(len(asked.existing), quarters)
        yield Plan(orders=counts, kept=keeps, course=int(chosen[0]))
