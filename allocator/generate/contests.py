"""Families whose difficulty lies in who may take from whom: a giant, hopeless gangs, many victims, a long queue."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from allocator.domain import Issue, Snapshot, SnapshotError, TopologyWish, Unfunded
from allocator.generate.classes import (
    ABLATION,
    EVAL,
    EXPERIMENT,
    FLAGSHIP,
    POST_TRAINING,
    RL,
    sizes_in_pool,
)
from allocator.generate.demand import Crowd, Draft, PoolView, burst_size, draw_drafts
from allocator.generate.disturb import leave_well
from allocator.generate.ledger import Ledger
from allocator.generate.mixed import hgx
from allocator.generate.organisation import Project
from allocator.generate.params import SnapshotParams
from allocator.generate.recipe import Recipe, States
from allocator.generate.table import Entry, draft_of, from_table

GIANT_GPUS = HOPELESS_GPUS = 500 * 8
VICTIMS_GPUS, NUM_VICTIMS = 2_000 * 8, 700
QUEUE_GPUS, WAITING_PER_GPU = 1_000 * 8, 40

GIANT_PROGRAM, OVER_PROGRAM = "base", "adapt"
SMALL_SHARE = 1.0 / 16

VICTIMS = (
    Entry(job_class=EXPERIMENT, gpus=4, part=0.12),
    Entry(job_class=EXPERIMENT, gpus=8, part=0.32),
    Entry(job_class=POST_TRAINING, gpus=16, part=0.2),
    Entry(job_class=RL, gpus=32, part=0.16),
    Entry(job_class=ABLATION, gpus=128, part=0.2),
)

TOO_LARGE = Entry(job_class=FLAGSHIP, gpus=512, part=0.3, wish=TopologyWish(required="leaf"))
BLOCKED = (
    Entry(job_class=ABLATION, gpus=256, part=0.3, wish=TopologyWish(required="leaf")),
    Entry(job_class=FLAGSHIP, gpus=2048, part=0.3),
)
OVER_BUDGET = (
    Entry(job_class=RL, gpus=64, part=0.15, unfunded=Unfunded.WAIT),
    Entry(job_class=POST_TRAINING, gpus=128, part=0.15, unfunded=Unfunded.WAIT),
)

QUEUE_MIX = ((EVAL, 0.7), (EXPERIMENT, 0.25), (POST_TRAINING, 0.04), (RL, 0.008), (ABLATION, 0.002))
"""Parts of the jobs, not of the GPUs."""


def generate_giant(params: SnapshotParams, seed: int) -> Snapshot:
    """500 nodes full of work whose promises are kept; a gang of all 4,000 GPUs, long unserved, reclaims them."""
    recipe = Recipe(
        draw_running=_draw_beside_giant,
        draw_waiting=_draw_giant,
        states=States(fresh=0.0, kept=0.85, gangs_kept=1.0, promoted=0.0),
        set_targets=_starve_giant,
        sick_nodes=False,
        disturb=leave_well,
    )
    return hgx(params, seed, recipe, GIANT_GPUS)


def _draw_beside_giant(rng: np.random.Generator, crowd: Crowd, pool: PoolView, target: int) -> list[Draft]:
    """Work of everybody else."""
    return draw_drafts(rng, crowd.only(GIANT_PROGRAM, inside=False), pool, target, SMALL_SHARE)


def _draw_giant(rng: np.random.Generator, crowd: Crowd, pool: PoolView, target: int) -> list[Draft]:
    """The gang, and small work of everybody else."""
    leaf = crowd.only(GIANT_PROGRAM, inside=True).leaves[0]
    giant = Draft(job_class=FLAGSHIP, leaf=leaf, gpus=pool.gpus, burst=-1, unfunded=Unfunded.WAIT)
    return [giant, *_draw_beside_giant(rng, crowd, pool, max(0, target - pool.gpus))]


def _starve_giant(rng: np.random.Generator, ledger: Ledger, projects: Sequence[Project], pool: str, capacity: int) -> None:
    """The giant's program has used nothing, the others nearly all that they may."""
    for project in projects:
        part = 0.0 if project.program == GIANT_PROGRAM else float(rng.uniform(0.85, 0.97))
        ledger.set_target(project.id, pool, int(part * ledger.budget(project.id, pool)))


def generate_hopeless(params: SnapshotParams, seed: int) -> Snapshot:
    """500 nodes full of promises; gangs too large for the domain that they require, blocked by promises, or over budget."""
    recipe = Recipe(
        draw_running=_draw_protected,
        draw_waiting=_draw_hopeless,
        states=States(fresh=1.0, kept=0.0, gangs_kept=0.0),
        set_targets=_exhaust_program,
    )
    return hgx(params, seed, recipe, HOPELESS_GPUS)


def _draw_protected(rng: np.random.Generator, crowd: Crowd, pool: PoolView, target: int) -> list[Draft]:
    """Work with promises, of those whose budget carries them."""
    return from_table(VICTIMS)(rng, crowd.only(OVER_PROGRAM, inside=False), pool, target)


def _draw_hopeless(rng: np.random.Generator, crowd: Crowd, pool: PoolView, target: int) -> list[Draft]:
    """The three kinds of gangs, the large ones at least once, and a little ordinary work."""
    over = crowd.only(OVER_PROGRAM, inside=True)
    drafts: list[Draft] = []
    for entry, leaves in (
        (TOO_LARGE, crowd),
        *((entry, crowd) for entry in BLOCKED),
        *((entry, over) for entry in OVER_BUDGET),
    ):
        if entry.gpus > pool.gpus or (entry is TOO_LARGE and entry.gpus <= pool.domain_gpus["leaf"]):
            continue
        count = max(1, round(target * entry.part / entry.gpus))
        drafts.extend(draft_of(rng, leaves, pool, entry, burst=-len(drafts) - number - 1) for number in range(count))
    return [*drafts, *draw_drafts(rng, crowd, pool, target // 10, SMALL_SHARE)]


def _exhaust_program(rng: np.random.Generator, ledger: Ledger, projects: Sequence[Project], pool: str, capacity: int) -> None:
    """One program is over its budget, the others have room for the promises of what runs."""
    for project in projects:
        part = float(rng.uniform(1.03, 1.1) if project.program == OVER_PROGRAM else rng.uniform(0.4, 0.7))
        ledger.set_target(project.id, pool, int(part * ledger.budget(project.id, pool)))


def generate_victims(params: SnapshotParams, seed: int) -> Snapshot:
    """2,000 nodes; 700 of the running workloads may be stopped for the sake of others, the rest is protected."""
    gpus = VICTIMS_GPUS if params.gpus is None else params.gpus
    recipe = Recipe(
        draw_running=from_table(VICTIMS),
        draw_waiting=from_table(VICTIMS),
        states=States(num_stoppable=round(NUM_VICTIMS * gpus / VICTIMS_GPUS), promoted=0.0),
        set_targets=_leave_room,
        fill_up=False,
    )
    return hgx(params, seed, recipe, VICTIMS_GPUS)


def _leave_room(rng: np.random.Generator, ledger: Ledger, projects: Sequence[Project], pool: str, capacity: int) -> None:
    """Everybody's budget carries the promises of what runs."""
    for project in projects:
        ledger.set_target(project.id, pool, int(float(rng.uniform(0.3, 0.6)) * ledger.budget(project.id, pool)))


def generate_queue(params: SnapshotParams, seed: int) -> Snapshot:
    """1,000 nodes and 320,000 waiting workloads, most of them evals in bursts."""
    if params.queue is not None:
        remedy = f"leave it out: {WAITING_PER_GPU} workloads wait per GPU"
        raise SnapshotError([Issue(path="queue", problem="the family `queue` counts workloads, not GPUs", remedy=remedy)])
    return hgx(params, seed, Recipe(draw_waiting=_draw_long_queue), QUEUE_GPUS)


def _draw_long_queue(rng: np.random.Generator, crowd: Crowd, pool: PoolView, target: int) -> list[Draft]:
    """A number of jobs instead of a number of GPUs."""
    count = WAITING_PER_GPU * pool.gpus
    drafts: list[Draft] = []
    burst = 0
    parts = np.cumsum([part for _, part in QUEUE_MIX])
    for (job_class, _), part in zip(QUEUE_MIX, parts.tolist(), strict=True):
        sizes, weights = sizes_in_pool(job_class, pool.gpus, 0.25)
        upto = round(part * count)
        while len(drafts) < upto:
            leaf, size = crowd.pick(rng, job_class), int(rng.choice(sizes, p=weights))
            draft = Draft(job_class=job_class, leaf=leaf, gpus=size, burst=burst)
            drafts.extend([draft] * min(burst_size(rng, job_class), upto - len(drafts)))
            burst += 1
    return drafts
