"""Flagship campaigns: a gang that runs for days in segments, after some failed attempts to bring it up.

In a trace of four weeks there are four, of a fleet of three pools: one takes the whole second pool for most of the time,
one a quarter of the first, one all of the smallest pool for some days, and one half of it. On one pool they take a quarter,
an eighth, an eighth and a sixteenth. Their order is that of the workload model; when they begin and how long they last is
drawn around it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from allocator.domain import TopologyWish, Workload
from allocator.domain.trace import Job
from allocator.generate.classes import FLAGSHIP, MINUTE
from allocator.generate.demand import split_tasks
from allocator.generate.flow import SEGMENT
from allocator.generate.params import DAY, HOUR

BRING_UP_LIMIT, SEGMENT_LIMIT = 4 * HOUR, 168 * HOUR
BRING_UP_PROMISE = 30 * MINUTE
SHORTEST_SEGMENT = 20 * MINUTE
GAP_MEAN, GAP_LEAST = 25 * MINUTE, 4 * MINUTE
FAILS = 0.5
"""Part of the segments that an error or their owner ends; the next one begins from the last checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A campaign of the model.

    `pool` counts the pools by size; `part` is its part of that pool, `alone` of the only one. `begins` and `lasts` are parts
    of the trace.
    """

    name: str
    project: str
    pool: int
    part: float
    alone: float
    begins: float
    lasts: float


PLANS = (
    Plan(name="flag7b", project="base/pretrain", pool=1, part=1.0, alone=0.25, begins=0.05, lasts=0.64),
    Plan(name="flag32b", project="base/pretrain", pool=0, part=0.25, alone=0.125, begins=0.16, lasts=0.71),
    Plan(name="mm", project="multimodal/train", pool=2, part=0.5, alone=0.0625, begins=0.30, lasts=0.45),
    Plan(name="mid7b", project="base/pretrain", pool=2, part=1.0, alone=0.125, begins=0.82, lasts=0.15),
)


def draw_campaigns(
    rng: np.random.Generator, pools: Mapping[str, int], leaves: Mapping[str, str], start: int, end: int
) -> Iterator[Job]:
    """The segments of all campaigns.

    Parameters
    ----------
    pools
        GPUs of each pool.
    leaves
        By project, the researcher who runs its campaigns.
    """
    by_size = sorted(pools, key=lambda pool: (-pools[pool], pool))
    for plan in PLANS:
        pool = by_size[plan.pool] if len(by_size) > plan.pool else by_size[0]
        gpus = max(8, int(pools[pool] * (plan.part if len(by_size) > 1 else plan.alone)) // 8 * 8)
        leaf = leaves.get(plan.project) or min(leaves.values())
        begins = start + int((end - start) * plan.begins * rng.uniform(0.85, 1.15))
        lasts = int((end - start) * plan.lasts * rng.uniform(0.85, 1.15))
        accepted = (pool,) if len(pools) > 1 else ()
        wish = TopologyWish(preferred=FLAGSHIP.preferred if 8 < gpus <= 256 else None)
        declared = _workload(plan, leaf, gpus, accepted, wish)
        yield from _draw_segments(rng, plan.name, declared, begins, min(begins + lasts, end))


def _workload(plan: Plan, leaf: str, gpus: int, pools: tuple[str, ...], wish: TopologyWish) -> Workload:
    tasks, gpus_per_task = split_tasks(gpus, 8)
    return Workload(
        id=plan.name,
        allocation=leaf,
        user=leaf.rsplit("/", 1)[-1],
        job_class=FLAGSHIP.name,
        submit_time=0,
        tasks=tasks,
        gpus_per_task=gpus_per_task,
        pools=pools,
        topology=wish,
        min_runtime=FLAGSHIP.min_runtime,
        resumable=True,
        checkpoint_interval=FLAGSHIP.checkpoint_interval,
        checkpoint_on_notice=True,
        restart_time=FLAGSHIP.restart_time,
        priority=FLAGSHIP.priority,
        max_runtime=SEGMENT_LIMIT,
    )


def _draw_segments(rng: np.random.Generator, name: str, declared: Workload, begins: int, ends: int) -> Iterator[Job]:
    """Attempts that die within minutes, then segments until the campaign is over. Each begins after the one before."""
    attempts = int(rng.integers(3, 9))
    at, before, number = begins, None, 0
    while at < ends:
        bring_up = number < attempts
        work = _draw_work(rng, bring_up=bring_up, most=max(SHORTEST_SEGMENT, ends - at))
        key = f"{name}-{'try' if bring_up else 'seg'}{number:03d}"
        fails = bring_up or rng.random() < FAILS
        yield Job(
            workload=_submitted(declared, key, at, bring_up=bring_up),
            work=BRING_UP_LIMIT if bring_up else work,
            checkpoint_cost=FLAGSHIP.checkpoint_cost,
            fails_after=work if fails else None,
            after=before,
        )
        before, number = key, number + 1
        at += work + GAP_LEAST + int(rng.exponential(GAP_MEAN))


def _draw_work(rng: np.random.Generator, *, bring_up: bool, most: int) -> int:
    if bring_up:
        return max(10, int(min(30 * MINUTE, 5 * MINUTE * np.exp(rng.normal(0.0, 1.0)))))
    return min(most, max(SHORTEST_SEGMENT, SEGMENT.draw_work(rng, 1)), 7 * DAY)


def _submitted(declared: Workload, key: str, at: int, *, bring_up: bool) -> Workload:
    promise, limit = (BRING_UP_PROMISE, BRING_UP_LIMIT) if bring_up else (declared.min_runtime, SEGMENT_LIMIT)
    return replace(declared, id=key, submit_time=at, min_runtime=promise, max_runtime=limit)
