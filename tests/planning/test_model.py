"""The plan of least cost: against all plans of tiny questions, by hand, and under changes that must not matter."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from allocator.models.protocol import Status
from allocator.planning.model import Constraints, Variables
from allocator.planning.plan import broken_rules, cost_of, fleet_of, met_in, needs_of
from allocator.planning.question import Question
from allocator.planning.shortage import shortages
from allocator.planning.solver import Answer, solve
from allocator.planning.utilisation import MEASURED
from tests.planning.questions import every_plan, question, there, unit


def series(*gpus: float) -> list[Any]:
    """Demand of one project in one pool, one scenario, one course."""
    return [[[[[amount]] for amount in gpus]]]


def orders(answer: Answer) -> list[list[int]]:
    assert answer.plan is not None
    return [[int(count) for count in row] for row in answer.plan.orders]


def test_units_are_bought_when_they_are_needed_and_cheapest() -> None:
    # 8 GPUs are needed at once, 16 in the third quarter; the price falls to 60 in the second and rises to 90 in the third.
    asked = question(series(8, 8, 16), units=(unit(prices=(100.0, 60.0, 90.0)),))
    answer = solve(asked)
    assert (answer.status, answer.cost, orders(answer)) == (Status.OPTIMAL, 160, [[1, 1, 0]])


def test_lead_times_and_discounts() -> None:
    sold = unit(lead=1, prices=(100.0, 110.0, 100.0))
    # What is needed in the third quarter is ordered in the second: at 10 % a year that is less than 100 in the first.
    asked = question(series(0, 0, 8), units=(sold,), discount=0.6)
    answer = solve(asked)
    assert orders(answer) == [[0, 1, 0]]
    assert answer.cost == round(110 * 1.6**-0.25)
    assert orders(solve(replace(asked, discount=0.0))) == [[1, 0, 0]]


def test_old_hardware_leaves_early_for_the_sake_of_power() -> None:
    old = there(count=2, quarters=3, early=True, uses={"power": 10.0})
    new = unit(gpus=32, uses={"power": 15.0})
    asked = question(series(16, 32, 32), units=(new,), existing=(old,), limits={"power": (20.0, 20.0, 20.0)})
    answer = solve(asked)
    assert answer.plan is not None
    assert fleet_of(asked, answer.plan).ravel().tolist() == [16, 32, 32]
    assert answer.plan.kept.tolist() == [[2, 0, 0]]


def test_a_life_ends_and_what_is_left_of_it_is_credited() -> None:
    short, long = unit("short", life=2), unit("long", life=8, prices=(250.0,) * 8)
    asked = question(series(8, 8, 8, 8), units=(short, long))
    assert solve(asked).cost == 200
    # Half of the long life is left, worth 125 at the end.
    assert solve(replace(asked, residual=1.0)).cost == 125


def test_scenarios_may_be_left_out_up_to_the_fraction() -> None:
    asked = question([[[[[8]]], [[[16]]], [[[80]]], [[[8]]]]])
    assert [solve(replace(asked, fraction=part)).cost for part in (1.0, 0.75, 0.5, 0.0)] == [1000, 200, 100, 0]


def test_the_same_scenarios_are_left_out_in_all_quarters_and_pools() -> None:
    # Each scenario is dear in another quarter: leaving one out saves one of the peaks, not both.
    asked = question([[[[[80]], [[8]]], [[[8]], [[40]]]]], units=(unit(life=1, prices=(100.0, 100.0)),), fraction=0.5)
    assert solve(asked).cost == 100 + 500


def test_the_course_is_chosen() -> None:
    stays, moves = [[[[40.0, 0.0]]]], [[[[0.0, 10.0]]]]
    units = (unit("a"), unit("b", pool=1, prices=(150.0,)))
    answer = solve(question([[stays[0]], [moves[0]]], units=units))
    assert answer.plan is not None
    assert (answer.cost, answer.plan.course) == (300, 1)


def test_a_pledge_bounds_what_is_owed() -> None:
    asked = question(series(80), pledged=np.array([[20.0]]), required=np.array([0.8]))
    assert solve(asked).cost == 200


def test_what_is_missing_is_named() -> None:
    asked = question(series(8, 24), units=(unit(most=1, lead=1, uses={"space": 1.0}),), limits={"space": (inf, inf)})
    answer = solve(asked)
    assert (answer.status, answer.cost) == (Status.INFEASIBLE, None)
    assert answer.plan is not None
    rows = list(shortages(asked, answer.plan, answer.needs))
    assert [(row.quarter, row.short, row.needed, row.cause) for row in rows] == [
        ("2027Q1", 8, 8, "nothing that is ordered arrives by then"),
        ("2027Q2", 16, 24, "no more can be had in time"),
    ]
    assert [row.reached for row in rows] == [0, round(1 / 3, 6)]


def test_the_limit_in_the_way_is_named() -> None:
    asked = question(series(24), units=(unit(uses={"space": 1.0}),), limits={"space": (2.0,)})
    answer = solve(asked)
    assert answer.plan is not None
    assert [(row.short, row.cause) for row in shortages(asked, answer.plan, answer.needs)] == [(8, "limit of space")]


def test_no_unit_on_sale_and_no_time() -> None:
    asked = question(series(8), units=())
    answer = solve(asked)
    assert answer.plan is not None
    assert [row.cause for row in shortages(asked, answer.plan, answer.needs)] == ["no unit of this pool is on sale"]
    assert solve(question(series(0))).cost == 0


@st.composite
def tiny(draw: st.DrawFn) -> Question:
    """Two or three quarters, one or two pools with one unit each, up to three scenarios, one old unit, limits."""
    quarters, pools, scenarios = draw(st.integers(2, 3)), draw(st.integers(1, 2)), draw(st.integers(1, 3))
    courses = draw(st.integers(1, 2))
    size = courses * scenarios * quarters * pools
    demand = draw(st.lists(st.integers(0, 16), min_size=size, max_size=size))
    units = tuple(
        unit(
            f"unit{p}", pool=p, gpus=draw(st.sampled_from([8, 12])), lead=draw(st.integers(0, 1)), life=draw(st.integers(1, 3)),
            prices=tuple(float(draw(st.integers(50, 150))) for _ in range(quarters)), most=draw(st.sampled_from([None, 1])),
            uses={"power": float(draw(st.integers(1, 3)))}, running=float(draw(st.integers(0, 9))),
        )
        for p in range(pools)
    )  # fmt: skip
    old = there(quarters=draw(st.integers(1, quarters)), early=draw(st.booleans()), uses={"power": 1.0}, running=7.0)
    return question(
        np.array(demand).reshape(courses, scenarios, quarters, 1, pools),
        units=units,
        existing=(old,),
        limits={"power": tuple(float(draw(st.integers(1, 8))) for _ in range(quarters))},
        discount=draw(st.sampled_from([0.0, 0.3])),
        residual=draw(st.sampled_from([0.0, 0.5])),
        fraction=draw(st.sampled_from([0.4, 0.7, 1.0])),
    )


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(tiny())
def test_no_plan_is_better(asked: Question) -> None:
    needs = needs_of(asked)
    # Two units of 8 GPUs are the 16 that anybody asks for: nobody orders three at once.
    costs = [cost_of(asked, plan) for plan in every_plan(asked, 2) if not any(broken_rules(asked, plan, needs))]
    answer = solve(asked)
    assert answer.status is (Status.OPTIMAL if costs else Status.INFEASIBLE)
    assert answer.cost == min(costs, default=None)
    if costs and answer.plan is not None:
        assert not list(broken_rules(asked, answer.plan, needs))
    elif answer.plan is not None:
        assert list(shortages(asked, answer.plan, needs))


@settings(max_examples=15, deadline=None)
@given(tiny(), st.integers(2, 9), st.permutations(range(3)))
def test_neither_money_nor_names_nor_order_matter(asked: Question, factor: int, order: list[int]) -> None:
    plain = replace(asked, discount=0.0, residual=0.0)
    before = solve(plain)
    dearer = replace(
        plain,
        units=tuple(
            replace(row, prices=tuple(factor * price for price in row.prices), running=factor * row.running)
            for row in plain.units
        ),
        existing=tuple(replace(row, running=factor * row.running) for row in plain.existing),
    )
    chosen = [s for s in order if s < len(asked.scenarios)]
    shuffled = replace(
        plain, demand=plain.demand[:, chosen], units=tuple(replace(row, name=f"new {row.name}") for row in plain.units)
    )
    assert solve(shuffled).cost == before.cost
    assert solve(dearer).cost == (None if before.cost is None else factor * before.cost)


def five_years() -> Question:
    """Three GPU types, twenty quarters, twenty scenarios, five projects; each type as a large unit and as a rack."""
    rng = np.random.Generator(np.random.PCG64(1))
    growth = np.array([-0.03, 0.05, 0.12]) + rng.normal(0, 0.03, (20, 1, 5, 1))
    base = np.array([40, 25, 20, 10, 5])[:, None] / 100 * np.array([1200, 400, 200])
    demand = base * np.exp(growth * np.arange(20)[None, :, None, None])
    prices = 30_000 * 0.97 ** np.arange(20)
    units = tuple(
        unit(f"{size} of {pool}", pool=pool, gpus=size, nodes=size // 8, lead=1 + pool, most=6, running=300.0 * size,
             uses={"power": 1.3 * size}, prices=tuple((1 + pool / 2) * bulk * size * prices))
        for pool in range(3) for size, bulk in ((256, 0.95), (64, 1.0))
    )  # fmt: skip
    old = [there(f"old {pool}", pool=pool, gpus=64, nodes=8, count=count, quarters=12, early=True, running=20_000.0,
                 uses={"power": 90.0}) for pool, count in enumerate((24, 9, 5))]  # fmt: skip
    return question(
        demand[None], units=units, existing=tuple(old), limits={"power": (4000.0,) * 8 + (9000.0,) * 12}, discount=0.08,
        residual=0.5, shares=np.repeat(np.array([[40, 25, 20, 10, 5]]).T / 100, 3, axis=1), required=np.full(5, 0.95),
        fraction=0.9, utilisation=MEASURED, quarters=tuple(f"{2027 + t // 4}Q{t % 4 + 1}" for t in range(20)),
    )  # fmt: skip


def test_three_types_five_years_and_twenty_scenarios_are_solved() -> None:
    asked = five_years()
    answer = solve(asked, seconds=60.0, gap=0.01)
    assert answer.status is Status.OPTIMAL
    assert answer.gap is not None
    assert answer.gap <= 0.01
    assert answer.plan is not None
    assert met_in(asked, answer.plan, answer.needs).sum() >= 18


def test_a_broken_plan_is_recognised() -> None:
    asked = question(
        series(8, 8), existing=(there(),), units=(unit(uses={"power": 1.0}, most=3),), limits={"power": (1.0, 1.0)}
    )
    needs = needs_of(asked)
    answer = solve(asked)
    assert answer.plan is not None
    assert met_in(asked, answer.plan, needs).tolist() == [True]
    for orders_, kept, rule in (
        ([[4, 0]], [[1, 1]], "on_sale"),
        ([[0, 0]], [[0, 1]], "leaving"),
        ([[2, 0]], [[1, 1]], "limit"),
        ([[0, 0]], [[0, 0]], "fraction"),
    ):
        changed = replace(answer.plan, orders=np.array(orders_), kept=np.array(kept))
        assert any(text.startswith(rule) for text in broken_rules(asked, changed, needs)), rule


def test_every_rule_and_variable_is_on_the_page() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "planning.md").read_text(encoding="utf-8")
    rules = re.findall(r"self\._(\w+)\(\)", inspect.getsource(Constraints.add_all))
    variables = re.findall(r"^ +(\w+)\[", str(Variables.__doc__), re.MULTILINE)
    assert (len(rules), len(variables)) == (6, 5)
    assert [name for name in rules if f"\n| `{name}` | " not in page] == []
    assert [name for name in variables if f"\n| `{name}[" not in page] == []
