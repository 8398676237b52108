"""The family `contract`: promises nearly everywhere, gangs that are owed a place, and nodes that leave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from allocator.domain import Snapshot
from allocator.generate.classes import FLAGSHIP
from allocator.generate.demand import Crowd, Draft, PoolView, draw_drafts
from allocator.generate.disturb import drain_tenth
from allocator.generate.ledger import Ledger
from allocator.generate.mixed import hgx
from allocator.generate.organisation import Project
from allocator.generate.params import SnapshotParams
from allocator.generate.recipe import Recipe, States

OWED_PROGRAM = "base"
"""The program that has used little, and has the gangs."""

GANGS = (4, 8, 8)
"""Parts of the pool that they ask for: one in so many."""

RESERVE_FROM = Fraction(1, 8)
"""So that all of these gangs may have a reservation."""

OWED_FOR = 600
"""Seconds for which they have been entitled: two epochs of five minutes."""

SMALL_SHARE = 0.25
"""All other waiting work is at most this part of the pool."""


def generate_contract(params: SnapshotParams, seed: int) -> Snapshot:
    """Most runs are protected, one node in ten leaves, and gangs of up to a quarter of the pool have long been owed a place."""
    recipe = Recipe(
        draw_waiting=_draw_gangs,
        states=States(fresh=0.9, kept=0.08, gangs_kept=0.08),
        set_targets=_owe,
        disturb=drain_tenth,
    )
    return _entitled_for_long(hgx(params, seed, recipe))


def _draw_gangs(rng: np.random.Generator, crowd: Crowd, pool: PoolView, target: int) -> list[Draft]:
    """The gangs, and work of everybody."""
    owed = crowd.only(OWED_PROGRAM, inside=True)
    gangs = [
        Draft(job_class=FLAGSHIP, leaf=owed.pick(rng, FLAGSHIP), gpus=max(16, pool.gpus // part // 8 * 8), burst=-1 - number)
        for number, part in enumerate(GANGS)
    ]
    return draw_drafts(rng, crowd, pool, target, SMALL_SHARE, gangs)


def _owe(rng: np.random.Generator, ledger: Ledger, projects: Sequence[Project], pool: str, capacity: int) -> None:
    """The program of the gangs has used little, the others most of what they may."""
    for project in projects:
        part = 0.2 if project.program == OWED_PROGRAM else float(rng.uniform(0.6, 1.0))
        ledger.set_target(project.id, pool, int(part * ledger.budget(project.id, pool)))


def _entitled_for_long(snapshot: Snapshot) -> Snapshot:
    """The snapshot with the moment since when large gangs have been entitled, if they still are."""
    installed = Counter[str]()
    for node in snapshot.cluster.nodes:
        installed[node.pool] += node.gpus
    least = min(installed.values()) * RESERVE_FROM
    works = tuple(
        replace(work, entitled_since=max(work.submit_time, snapshot.now - OWED_FOR))
        if work.run is None and work.gpus >= least
        else work
        for work in snapshot.workloads
    )
    return replace(snapshot, workloads=works, policy=replace(snapshot.policy, reserve_from=RESERVE_FROM))
