"""What a family may choose: the work, its states, what the projects have used, and which nodes are not well."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from allocator.domain import Node, Workload
from allocator.generate.classes import FLAGSHIP
from allocator.generate.demand import Crowd, Draft, PoolView, draw_drafts
from allocator.generate.disturb import disturb
from allocator.generate.ledger import Ledger, draw_targets
from allocator.generate.organisation import Project

DrawDrafts = Callable[[np.random.Generator, Crowd, PoolView, int], list[Draft]]
"""Jobs of a pool that ask for a number of GPUs."""

SetTargets = Callable[[np.random.Generator, Ledger, Sequence[Project], str, int], None]
"""Fixes what each project has used of a pool, given the GPU-seconds that the pool gave away."""

Disturb = Callable[[np.random.Generator, PoolView, Sequence[int], Sequence[Workload]], tuple[Node, ...]]
"""The nodes of a pool after some were marked, given those that were dead before and what runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class States:
    """Parts of the running work with a min runtime whose promise is open (`fresh`) and whose promise is kept (`kept`, for
    gangs of 64 GPUs and more `gangs_kept`). The rest runs uncharged, as does what its budget does not carry. `promoted` of
    the charged runs were so only some time after their start.

    `num_stoppable` fixes how many are not fresh; which, is drawn.
    """

    fresh: float = 0.43
    kept: float = 0.38
    gangs_kept: float = 0.49
    promoted: float = 0.05
    num_stoppable: int | None = None

    def draw(self, rng: np.random.Generator, count: int) -> npt.NDArray[np.float64]:
        """A number between 0 and 1 for each workload, by which its state is chosen."""
        chances = rng.random(count)
        if self.num_stoppable is None:
            return chances
        order = np.argsort(chances, kind="stable")
        chances[order] = np.linspace(0.0, self.fresh, count, endpoint=False)
        stoppable = order[max(0, count - self.num_stoppable) :]
        chances[stoppable] = self.fresh + rng.random(len(stoppable)) * (1.0 - self.fresh)
        return chances


def draw_queue(rng: np.random.Generator, crowd: Crowd, pool: PoolView, target: int) -> list[Draft]:
    """Jobs of all classes up to half of the pool, a gang of a quarter of it among them where there is room."""
    given = []
    quarter = pool.gpus // 4 // 8 * 8
    if quarter >= 16 and target >= 2 * quarter:
        given.append(Draft(job_class=FLAGSHIP, leaf=crowd.pick(rng, FLAGSHIP), gpus=quarter, burst=-1))
    return draw_drafts(rng, crowd, pool, target, 0.5, given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a cluster is filled. `fill_up` closes the gaps that gangs leave with small work; without `sick_nodes` no node is
    dead before work is placed."""

    draw_running: DrawDrafts = draw_drafts
    draw_waiting: DrawDrafts = draw_queue
    states: States = field(default_factory=States)
    set_targets: SetTargets = draw_targets
    disturb: Disturb = disturb
    sick_nodes: bool = True
    fill_up: bool = True
    queue: float = 2.5
    occupancy: float = 0.975
