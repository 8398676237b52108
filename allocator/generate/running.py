"""The work that runs: placed until the pool is nearly full, each in one of the states that a running workload can be in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from allocator.domain import Policy, Run, TopologyWish, Unfunded, Workload
from allocator.generate.classes import EXPERIMENT
from allocator.generate.demand import Crowd, Draft, PoolView, build_workload, draw_run_time
from allocator.generate.ledger import Ledger
from allocator.generate.packing import Packer
from allocator.generate.params import DAY, HOUR, NOW
from allocator.generate.recipe import Recipe, States

EARLY_CHARGE = 1.05
"""A project may have come to stand a little over its budget since its work was promised its time."""


@dataclass(slots=True)
class Limits:
    """GPUs held under each limited leaf, and express work by pool and user, while the pools are filled."""

    gpu_limit: dict[str, int]
    held: dict[str, int] = field(default_factory=dict)
    express_gpus: dict[str, int] = field(default_factory=dict)
    express_users: dict[str, int] = field(default_factory=dict)

    def admits(self, leaf: str, gpus: int) -> bool:
        """Whether the leaf may hold this much more."""
        return leaf not in self.gpu_limit or self.held.get(leaf, 0) + gpus <= self.gpu_limit[leaf]

    def take_lane(self, pool: str, draft: Draft) -> None:
        """Book an express workload."""
        self.express_gpus[pool] = self.express_gpus.get(pool, 0) + draft.gpus
        self.express_users[draft.leaf] = self.express_users.get(draft.leaf, 0) + 1


def place_running(
    rng: np.random.Generator,
    crowd: Crowd,
    pool: PoolView,
    packer: Packer,
    limits: Limits,
    target: int,
    recipe: Recipe,
) -> list[tuple[Draft, dict[str, int]]]:
    """Drafts with placements that hold `target` GPUs, or as many as fit."""
    drafts = recipe.draw_running(rng, crowd, pool, target)
    # Large gangs first, or fragments would keep them out of a full pool; equal sizes keep the order of drawing.
    drafts.sort(key=lambda draft: -draft.gpus)
    placed = list(_place_all(drafts, pool, packer, limits))
    left = target - sum(draft.gpus for draft, _ in placed)
    attempts = 0
    while recipe.fill_up and left > 0 and attempts < 200:
        size = min(left, pool.gpus_per_node, int(packer.free.max()))
        if size < 1:
            break
        filler = Draft(job_class=EXPERIMENT, leaf=crowd.pick(rng, EXPERIMENT), gpus=size, burst=-1)
        added = list(_place_all([filler], pool, packer, limits))
        attempts += not added
        left -= sum(draft.gpus for draft, _ in added)
        placed.extend(added)
    return placed


def _place_all(
    drafts: Iterable[Draft], pool: PoolView, packer: Packer, limits: Limits
) -> Iterable[tuple[Draft, dict[str, int]]]:
    for draft in drafts:
        if not limits.admits(draft.leaf, draft.gpus):
            continue
        placement = packer.place(draft.shape_on(pool.gpus_per_node))
        if placement is not None:
            limits.held[draft.leaf] = limits.held.get(draft.leaf, 0) + draft.gpus
            yield draft, placement


@dataclass(frozen=True, slots=True, kw_only=True)
class Starter:
    """What decides in which state work of one pool runs. `ledger` and `limits` are written to."""

    pool: PoolView
    ledger: Ledger
    limits: Limits
    policy: Policy
    states: States

    def start_all(self, rng: np.random.Generator, placed: Sequence[tuple[Draft, dict[str, int]]]) -> list[Workload]:
        """Give every placed draft its state. Old charged runs are booked first: their usage is spent, promises are not."""
        chances = self.states.draw(rng, len(placed))
        order = np.argsort(chances < self.states.fresh, kind="stable")
        return [self._start(rng, placed[index][0], placed[index][1], float(chances[index])) for index in order.tolist()]

    def _start(self, rng: np.random.Generator, draft: Draft, placement: dict[str, int], chance: float) -> Workload:
        """One running workload: its age, whether it is charged, and its promise."""
        promise = min(draft.job_class.min_runtime, self.policy.protection_cap)
        run_time = draw_run_time(rng, draft.job_class, running=True)
        fresh = promise > 0 and chance < self.states.fresh
        age = rng.uniform(60, promise) if fresh else promise + rng.random() * min(run_time, 2 * DAY) + 60
        start = NOW - int(age)
        express = self._takes_lane(draft, int(age))
        run = self._charged_run(rng, draft, placement, start, promise, express=express)
        charged_part = self.states.fresh + (self.states.gangs_kept if draft.gpus >= 64 else self.states.kept)
        if run is None or promise == 0 or (chance >= charged_part and not express):
            run = Run(placement=placement, charged=False, start_time=start)
        else:
            until = run.protected_until or 0
            self.ledger.book(draft.leaf, self.pool.name, self._used(draft, run), draft.gpus * max(0, until - NOW))
        if run.express:
            self.limits.take_lane(self.pool.name, draft)
        wait = int(rng.exponential(2 * HOUR if draft.gpus > 8 else HOUR / 2))
        declared = build_workload(rng, draft, self.pool, start - wait, max(run_time, age))
        workload = _agree(declared, placement, self.pool)
        return replace(
            workload,
            unfunded=workload.unfunded if run.charged else Unfunded.RUN,
            preempted=int(rng.choice([0, 0, 0, 0, 1, 1, 2])) if draft.gpus >= 4 else 0,
            run=replace(run, last_checkpoint=_checkpoint(rng, workload, start)),
        )

    def _charged_run(
        self, rng: np.random.Generator, draft: Draft, placement: dict[str, int], start: int, promise: int, *, express: bool
    ) -> Run | None:
        """The run with its promise, or None where the budget does not carry it. Some were promoted after their start."""
        granted = start
        if not express and rng.random() < self.states.promoted:
            granted = start + int(rng.uniform(0.1, 0.9) * (NOW - start))
        until = granted + promise
        used = draft.gpus * min(NOW - granted, 7 * DAY)
        open_promise = draft.gpus * max(0, until - NOW)
        tolerance = 1.0 if open_promise else EARLY_CHARGE
        if not express and not self.ledger.fits(draft.leaf, self.pool.name, used, open_promise, tolerance=tolerance):
            return None
        return Run(
            placement=placement,
            charged=True,
            start_time=start,
            charged_since=granted,
            granted_at=granted,
            protected_until=until,
            express=express,
        )

    def _takes_lane(self, draft: Draft, age: int) -> bool:
        """Whether the express lane carries this workload: small, short, and within its room and its user's part."""
        lane = self.policy.express
        room = max(8, int(lane.pool_share * self.pool.gpus))
        return (
            0 < draft.job_class.min_runtime <= lane.min_runtime
            and draft.gpus <= lane.gpus
            and age < 8 * HOUR
            and self.limits.express_gpus.get(self.pool.name, 0) + draft.gpus <= room
            and self.limits.express_users.get(draft.leaf, 0) < lane.per_user
        )

    def _used(self, draft: Draft, run: Run) -> int:
        """Charged GPU-seconds of the run inside the window."""
        since = run.charged_since if run.charged_since is not None else NOW
        return draft.gpus * min(NOW - since, self.policy.window)


def _agree(workload: Workload, placement: dict[str, int], pool: PoolView) -> Workload:
    """Let a workload ask for no more than it has: it runs, so its required level and exclusions were met."""
    excluded = tuple(name for name in workload.exclude_nodes if name not in placement)
    wish = workload.topology
    if wish.required is not None and not pool.inside_one(placement, wish.required):
        wish = TopologyWish(preferred=wish.required)
    return replace(workload, topology=wish, exclude_nodes=excluded)


def _checkpoint(rng: np.random.Generator, workload: Workload, start: int) -> int | None:
    """The last checkpoint that the launcher reported; one launcher in five reports none."""
    if workload.checkpoint_interval is None or rng.random() < 0.2:
        return None
    return start + (NOW - start) // workload.checkpoint_interval * workload.checkpoint_interval
