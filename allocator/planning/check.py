"""Plays a plan, and shows what is delivered beside what was promised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from allocator.domain.trace import Job, Trace
from allocator.generate.params import HOUR
from allocator.planning.plan import Plan, fleet_of, met_in
from allocator.planning.played import asked_of, play_trace, with_failures
from allocator.planning.question import Question
from allocator.planning.scenarios import Key
from allocator.planning.solver import Answer
from allocator.planning.stage import Stage, set_stage
from allocator.planning.templates import Templates
from allocator.replay.options import ReplayOptions
from allocator.replay.registry import make_policy
from allocator.replay.simulator import Simulator

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
        stage = set_stage(question, plan, t, _scenario(question, plan, t, met))
        found += _comparisons(stage, _replayed(question, stage, templates))
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


def _replayed(question: Question, stage: Stage, templates: Templates) -> dict[Key, float]:
    """Delivered share of what is owed, cut at 1; of all draws of jobs together."""
    how, parts = question.replay, stage.parts
    span = how.hours * HOUR
    shares = {key: part.share for key, part in parts.items()}
    asked = {key: part.asked for key, part in parts.items()}
    promised = {key: part.promised for key, part in parts.items()}
    ran: Counter[Key] = Counter()
    owed: Counter[Key] = Counter()
    for draw in range(how.draws):
        trace = play_trace(question.title, stage.pools, shares, asked, templates, promised, span, draw)
        ran.update(ran_of(with_failures(trace, how.failures, draw), how.policy, how.tick))
        owed.update({key: round(min(parts[key].pledged * span, seconds)) for key, seconds in asked_by_key(trace).items()})
    return {key: min(1.0, ran[key] / seconds) for key, seconds in owed.items() if seconds}


def _comparisons(stage: Stage, replayed: Mapping[Key, float]) -> Iterator[Comparison]:
    """What can be compared, pool by pool: whoever asks for something."""
    for (project, pool), part in stage.parts.items():
        if (project, pool) in replayed:
            yield Comparison(
                quarter=stage.quarter,
                scenario=stage.scenario,
                pool=pool,
                project=project,
                gpus=part.gpus,
                owed=part.owed,
                promised=min(1.0, part.promised / min(part.pledged, part.asked)),
                replayed=replayed[project, pool],
            )
