"""What is played of a plan: the fleet of a quarter and the demand of a scenario, made small.

Fleet, demand and pledges of a pool become smaller by the same factor, which changes no share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from allocator.planning.plan import Plan, fleet_of, nodes_of
from allocator.planning.played import PoolPlan
from allocator.planning.promise import delivered
from allocator.planning.question import Question
from allocator.planning.scenarios import Key


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A project in a pool. `gpus` of the pool and `owed` are those of the plan; the GPUs that are asked for, owed at most and
    promised are those that are played."""

    share: Fraction
    gpus: int
    owed: float
    asked: float
    pledged: float
    promised: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What is played in one quarter and scenario, already small."""

    quarter: str
    scenario: str
    pools: tuple[PoolPlan, ...]
    parts: Mapping[Key, Part]


def set_stage(question: Question, plan: Plan, t: int, s: int) -> Stage:
    """The fleet and demand of a quarter and scenario, made small."""
    fleet, nodes = fleet_of(question, plan)[t], nodes_of(question, plan)[t]
    pools: list[PoolPlan] = []
    parts: dict[Key, Part] = {}
    for p, name in enumerate(question.pools):
        if nodes[p]:
            size = int(fleet[p] // nodes[p])
            pool = PoolPlan(name=name, gpus_per_node=size, num_nodes=min(int(nodes[p]), max(1, question.replay.gpus // size)))
            pools.append(pool)
            parts |= {(project, name): part for project, part in _parts(question, plan, (t, s, p), int(fleet[p]), pool)}
    return Stage(quarter=question.quarters[t], scenario=question.scenarios[s], pools=tuple(pools), parts=parts)


def _parts(question: Question, plan: Plan, at: tuple[int, int, int], gpus: int, pool: PoolPlan) -> Iterator[tuple[str, Part]]:
    """Every project with a share of a pool; `at` is quarter, scenario and pool."""
    t, s, p = at
    shares, demand = question.shares[:, p], question.demand[plan.course][s, t, :, p]
    got = delivered(np.array(gpus), demand, shares, question.utilisation)
    scale = pool.gpus / gpus
    for v in np.flatnonzero(shares > 0):
        yield (
            question.projects[v],
            Part(
                share=Fraction(float(shares[v])).limit_denominator(10**6),
                gpus=gpus,
                owed=float(question.owed[plan.course][s, t, v, p]),
                asked=float(demand[v]) * scale,
                pledged=float(shares[v] * question.pledged[t, p]) * scale,
                promised=float(got[v]) * scale,
            ),
        )
