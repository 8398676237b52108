"""Families whose difficulty lies in the shape of the work: odd gangs, CPUs and memory, single GPUs, NVL72 racks."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from allocator.domain import Issue, Snapshot, SnapshotError
from allocator.generate.classes import ABLATION, DEBUG, EVAL, EXPERIMENT, FLAGSHIP, POST_TRAINING, RL
from allocator.generate.demand import Crowd, Draft, PoolView
from allocator.generate.disturb import leave_well
from allocator.generate.fleet import GB200, NVL72_LEVELS, build_cluster
from allocator.generate.mixed import hgx
from allocator.generate.params import SnapshotParams
from allocator.generate.populate import generate_on
from allocator.generate.recipe import Recipe, States
from allocator.generate.table import Entry, from_table

ODD = (
    Entry(job_class=EXPERIMENT, gpus=3, part=0.14),
    Entry(job_class=EXPERIMENT, gpus=6, part=0.14),
    Entry(job_class=POST_TRAINING, gpus=24, part=0.1),
    Entry(job_class=POST_TRAINING, gpus=24, gpus_per_task=3, part=0.08),
    Entry(job_class=RL, gpus=48, part=0.12),
    Entry(job_class=RL, gpus=48, gpus_per_task=6, part=0.08),
    Entry(job_class=FLAGSHIP, gpus=504, part=0.34),
)
"""Of the gangs of 24 and 48 GPUs some come in whole nodes, some in tasks of 3 and 6, of which a node holds two and one."""

BOUND = (
    Entry(job_class=EVAL, gpus=1, cpus=40, part=0.12),
    Entry(job_class=EXPERIMENT, gpus=1, cpus=28, memory_gib=100, part=0.12),
    Entry(job_class=EXPERIMENT, gpus=1, cpus=8, memory_gib=600, part=0.12),
    Entry(job_class=EXPERIMENT, gpus=2, cpus=64, part=0.1),
    Entry(job_class=EXPERIMENT, gpus=4, cpus=72, memory_gib=1100, part=0.12),
    Entry(job_class=POST_TRAINING, gpus=16, gpus_per_task=4, cpus=60, memory_gib=512, part=0.12),
    Entry(job_class=RL, gpus=32, cpus=112, memory_gib=2048, part=0.15),
    Entry(job_class=ABLATION, gpus=64, cpus=100, part=0.15),
)
"""On nodes of 8 GPUs, 112 CPUs and 2,048 GiB most of these run out of CPUs or memory before the GPUs are used."""

NVL72 = (
    Entry(job_class=DEBUG, gpus=1, part=0.02),
    Entry(job_class=EVAL, gpus=1, part=0.04),
    Entry(job_class=EXPERIMENT, gpus=4, part=0.1),
    Entry(job_class=EXPERIMENT, gpus=8, segment=1, part=0.08),
    Entry(job_class=POST_TRAINING, gpus=16, segment=1, part=0.08),
    Entry(job_class=POST_TRAINING, gpus=32, segment=4, part=0.12),
    Entry(job_class=RL, gpus=64, segment=4, part=0.14),
    Entry(job_class=ABLATION, gpus=128, segment=16, part=0.16),
    Entry(job_class=ABLATION, gpus=256, segment=16, part=0.12),
    Entry(job_class=FLAGSHIP, gpus=512, segment=16, part=0.14),
)
"""Segments of 16 trays for gangs of 128 GPUs and more, of 4 for 32 and 64, of 1 below."""

TRAYS_PER_RACK, RACKS, TRAY_GPUS = 18, 32, 4
ODD_GPUS, ONES_GPUS = 2_048, 500 * 8


def generate_odd(params: SnapshotParams, seed: int) -> Snapshot:
    """Gangs of 3, 6, 24, 48 and 504 GPUs, some in tasks of 3 and 6: counts alone do not pack them; 2,048 GPUs."""
    table = from_table(ODD)
    return hgx(params, seed, Recipe(draw_running=table, draw_waiting=table, fill_up=False), ODD_GPUS)


def generate_bound(params: SnapshotParams, seed: int) -> Snapshot:
    """Work that runs out of CPUs or memory before GPUs; 1,024 GPUs."""
    table = from_table(BOUND)
    return hgx(params, seed, Recipe(draw_running=table, draw_waiting=table, fill_up=False))


def generate_ones(params: SnapshotParams, seed: int) -> Snapshot:
    """500 nodes with 4,000 one-GPU workloads running and 4,000 waiting."""
    recipe = Recipe(
        draw_running=_draw_ones,
        draw_waiting=_draw_ones,
        states=States(fresh=0.4, kept=0.35),
        sick_nodes=False,
        disturb=leave_well,
        queue=2.0,
        occupancy=1.0,
    )
    return hgx(params, seed, recipe, ONES_GPUS)


def _draw_ones(rng: np.random.Generator, crowd: Crowd, pool: PoolView, target: int) -> list[Draft]:
    """As many one-GPU jobs as there are GPUs to ask for: experiments, and one eval in five."""
    classes = [EVAL if eval_ else EXPERIMENT for eval_ in rng.random(target) < 0.2]
    return [
        Draft(job_class=job_class, leaf=crowd.pick(rng, job_class), gpus=1, burst=number // 4)
        for number, job_class in enumerate(classes)
    ]


def generate_nvl72(params: SnapshotParams, seed: int) -> Snapshot:
    """32 NVL72 racks of 18 trays with 4 GPUs, gangs in segments of 16, 4 and 1 trays; 2,304 GPUs."""
    trays = TRAYS_PER_RACK * RACKS if params.gpus is None else params.gpus // TRAY_GPUS
    if params.gpus is not None and params.gpus % TRAY_GPUS:
        remedy = f"give {trays * TRAY_GPUS} or {(trays + 1) * TRAY_GPUS}"
        raise SnapshotError([Issue(path="gpus", problem=f"{params.gpus} GPUs are not whole 4-GPU trays", remedy=remedy)])
    if params.pools not in (None, 1):
        raise SnapshotError([Issue(path="pools", problem="NVL72 racks are one pool", remedy="give 1, or another family")])
    # Leaving a rack costs more than leaving a unit.
    slowdown = {"su": Fraction(1, 100), "nvlink": Fraction(1, 50)}
    cluster = build_cluster([(GB200, trays)], levels=NVL72_LEVELS, slowdown=slowdown)
    table = from_table(NVL72, largest_share=0.5)
    return generate_on(cluster, params, seed, Recipe(draw_running=table, draw_waiting=table))
