"""Drawing from a table of jobs instead of the class mix: for families in which every size is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from allocator.domain import TopologyWish, Unfunded
from allocator.generate.classes import JobClass
from allocator.generate.demand import Crowd, Draft, PoolView, Shape, split_tasks
from allocator.generate.recipe import DrawDrafts


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Jobs of one kind: `part` of the demand in GPUs. None and 0 leave a choice to the class.

    `gpus_per_task` 0: whole nodes; `cpus` and `memory_gib` are per task.
    """

    job_class: JobClass
    gpus: int
    part: float
    gpus_per_task: int = 0
    cpus: int = 0
    memory_gib: int = 0
    segment: int = 0
    wish: TopologyWish | None = None
    unfunded: Unfunded | None = None

    def shape(self, gpus_per_node: int) -> Shape:
        """Tasks of one job."""
        tasks, per_task = split_tasks(self.gpus, gpus_per_node)
        if self.gpus_per_task:
            tasks, per_task = self.gpus // self.gpus_per_task, self.gpus_per_task
        return Shape(
            tasks=tasks,
            gpus_per_task=per_task,
            cpus_per_task=self.cpus or self.job_class.cpus_per_gpu * per_task,
            memory_gib_per_task=self.memory_gib or self.job_class.memory_gib_per_gpu * per_task,
            segment=self.segment,
        )


def from_table(table: Sequence[Entry], largest_share: float = 1.0) -> DrawDrafts:
    """A way to draw jobs from a table; entries that exceed a share of the pool are left out, and the others do their part."""

    def draw(rng: np.random.Generator, crowd: Crowd, pool: PoolView, target: int) -> list[Draft]:
        usable = [entry for entry in table if entry.gpus <= largest_share * pool.gpus]
        whole = sum(entry.part for entry in usable)
        drafts: list[Draft] = []
        left = target
        for entry in sorted(usable, key=lambda entry: -entry.gpus):
            wanted = target * entry.part / whole / entry.gpus
            count = min(left // entry.gpus, int(wanted) + int(rng.random() < wanted % 1.0))
            drafts.extend(draft_of(rng, crowd, pool, entry, burst=len(drafts) + number) for number in range(count))
            left -= count * entry.gpus
        return drafts

    return draw


def draft_of(
    rng: np.random.Generator, crowd: Crowd, pool: PoolView, entry: Entry, burst: int, leaf: str | None = None
) -> Draft:
    """One job of an entry, for a leaf or for one that asks for such work."""
    return Draft(
        job_class=entry.job_class,
        leaf=crowd.pick(rng, entry.job_class) if leaf is None else leaf,
        gpus=entry.gpus,
        burst=burst,
        shape=entry.shape(pool.gpus_per_node),
        wish=entry.wish,
        unfunded=entry.unfunded,
    )
