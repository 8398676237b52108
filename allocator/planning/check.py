"""Plays a plan: the fleet of a quarter against the demand of a scenario, and what is delivered beside what was promised.

Large fleets are played small: fleet, demand and pledges of a pool by the same factor, which changes no share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from allocator.domain.trace import Job, Trace
from allocator.planning.plan import Plan, fleet_of, met_in, nodes_of
from allocator.planning.played import PoolPlan, asked_of, play_trace
from allocator.planning.promise import delivered
from allocator.planning.question import Question
from allocator.planning.scenarios import Key
from allocator.planning.solver import Answer
from allocator.planning.templates import Templates
from allocator.replay.options import ReplayOptions
from allocator.replay.registry import make_policy
from allocator.replay.simulator import Simulator

HOUR = 3600
DRIFT_TICKS = 3
"""While work waits, a decision every so many ticks at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One project in one pool: what was promised and what the replay delivered, as shares of what is owed, cut at 1.

    `owed`, `gpus` (the pool's): of the fleet of the plan.
    """

    quarter: str
    scenario: str
    pool: str
    project: str
    gpus: int
    owed: float
    promised: float
    replayed: float

    @property
    def difference(self) -> float:
        """In parts of 1; negative where the replay delivers less than was promised."""
        return self.replayed - self.promised

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        shares = {"owed": self.owed, "promised": self.promised, "replayed": self.replayed, "difference": self.difference}
        return asdict(self) | {name: round(value, 6) for name, value in shares.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What is played in one quarter and scenario, already small. GPUs by project and pool: asked for, most that is owed,
    promised."""

    pools: tuple[PoolPlan, ...]
    shares: Mapping[Key, Fraction]
    wanted: Mapping[Key, float]
    pledged: Mapping[Key, float]
    promised: Mapping[Key, float]


def replay_plan(question: Question, answer: Answer, templates: Templates) -> list[Comparison]:
    """Play the chosen quarters, each in the scenario that is owed most of those that are met.

    Raises
    ------
    ValueError
        If there is no plan.
    """
    plan = answer.plan
    if plan is None:
        raise ValueError("there is no plan to replay")
    met = met_in(question, plan, answer.needs).tolist()
    found: list[Comparison] = []
    for t in _quarters(question, plan):
        s = _scenario(question, plan, t, met)
        stage = _stage(question, plan, t, s)
        replayed = _replayed(question, stage, templates)
        found += list(_rows(question, plan, (t, s), stage, replayed))
    return found


def ran_of(trace: Trace, policy: str, tick: int) -> dict[Key, int]:
    """GPU-seconds that work with a min runtime has in a replay, charged or not, by project and pool."""
    drift = DRIFT_TICKS * tick
    simulator = Simulator(trace, make_policy(policy, drift=drift), ReplayOptions(tick=tick, drift=drift))
    simulator.run()
    found: dict[Key, int] = {}
    for row in simulator.world.hours:
        if row.project:
            key = (row.allocation, row.pool)
            found[key] = found.get(key, 0) + row.charged + row.unfunded
    return found


def asked_by_key(trace: Trace) -> dict[Key, int]:
    """GPU-seconds that a trace which was drawn asks for, by project and pool."""
    jobs: dict[Key, list[Job]] = {}
    for job in trace.jobs:
        jobs.setdefault((job.workload.allocation, job.workload.pools[0]), []).append(job)
    return {key: asked_of(own, trace.end) for key, own in jobs.items()}


def _quarters(question: Question, plan: Plan) -> list[int]:
    """Those of the file, or the one with the highest load."""
    if question.replay.quarters:
        return [question.quarters.index(name) for name in question.replay.quarters]
    demand = question.demand[plan.course].mean(axis=0).sum(axis=(1, 2))
    return [int(np.argmax(demand / np.maximum(fleet_of(question, plan).sum(1), 1)))]


def _scenario(question: Question, plan: Plan, t: int, met: Sequence[bool]) -> int:
    owed = question.owed[plan.course][:, t].sum(axis=(1, 2))
    return int(np.argmax(np.where(met, owed, -1.0) if any(met) else owed))


def _stage(question: Question, plan: Plan, t: int, s: int) -> Stage:
    """The fleet and demand of a quarter and scenario, made small."""
    fleet, nodes = fleet_of(question, plan)[t], nodes_of(question, plan)[t]
    pools: list[PoolPlan] = []
    by_key: dict[Key, tuple[float, float, float, float]] = {}
    for p, name in enumerate(question.pools):
        if nodes[p]:
            size = int(fleet[p] // nodes[p])
            pool = PoolPlan(name=name, gpus_per_node=size, num_nodes=min(int(nodes[p]), max(1, question.replay.gpus // size)))
            pools.append(pool)
            by_key |= _by_key(question, plan, (t, s, p), int(fleet[p]), pool)
    columns = [{key: row[at] for key, row in by_key.items()} for at in range(4)]
    shares = {key: Fraction(share).limit_denominator(10**6) for key, share in columns[0].items()}
    return Stage(pools=tuple(pools), shares=shares, wanted=columns[1], pledged=columns[2], promised=columns[3])


def _by_key(
    question: Question, plan: Plan, at: tuple[int, int, int], gpus: int, pool: PoolPlan
) -> dict[Key, tuple[float, float, float, float]]:
    """Share, GPUs asked for, pledged and promised, of every project in a pool, by the size at which it is played."""
    t, s, p = at
    shares, demand = question.shares[:, p], question.demand[plan.course][s, t, :, p]
    got = delivered(np.array(gpus), demand, shares, question.utilisation)
    scale = pool.gpus / gpus
    pledge = question.pledged[t, p]
    return {
        (project, pool.name): (
            float(shares[v]), float(demand[v]) * scale, pledge if np.isinf(pledge) else float(shares[v] * pledge) * scale,
            float(got[v]) * scale,
        )
        for v, project in enumerate(question.projects)
        if shares[v] > 0
    }  # fmt: skip


def _replayed(question: Question, stage: Stage, templates: Templates) -> dict[Key, float]:
    """Delivered share of what is owed, cut at 1; of all draws of jobs together."""
    span = question.replay.hours * HOUR
    ran: Counter[Key] = Counter()
    owed: Counter[Key] = Counter()
    for draw in range(question.replay.draws):
        trace = play_trace(question.title, stage.pools, stage.shares, stage.wanted, templates, stage.promised, span, draw)
        ran.update(ran_of(trace, question.replay.policy, question.replay.tick))
        for key, asked in asked_by_key(trace).items():
            owed[key] += round(min(stage.pledged[key] * span, asked))
    return {key: min(1.0, ran[key] / amount) for key, amount in owed.items() if amount}


def _rows(
    question: Question, plan: Plan, at: tuple[int, int], stage: Stage, replayed: Mapping[Key, float]
) -> Iterator[Comparison]:
    t, s = at
    fleet = fleet_of(question, plan)[t]
    for p, pool in enumerate(question.pools):
        for v, project in enumerate(question.projects):
            key = (project, pool)
            if key in replayed:
                yield Comparison(
                    quarter=question.quarters[t],
                    scenario=question.scenarios[s],
                    pool=pool,
                    project=project,
                    gpus=int(fleet[p]),
                    owed=float(question.owed[plan.course][s, t, v, p]),
                    promised=min(1.0, stage.promised[key] / min(stage.pledged[key], stage.wanted[key])),
                    replayed=replayed[key],
                )
