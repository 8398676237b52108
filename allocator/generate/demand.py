"""Who asks for what: jobs of the classes, drawn for the leaves of an organisation in the bursts in which they arrive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from allocator.domain import Node, Segment, TopologyWish, Unfunded, Workload
from allocator.generate.classes import (
    ABLATION,
    CLASSES,
    DEBUG,
    EVAL,
    EXPERIMENT,
    FLAGSHIP,
    POST_TRAINING,
    RL,
    JobClass,
    sizes_in_pool,
    time_limit,
)
from allocator.generate.organisation import AFFINITY, Organisation

LARGE_FIRST = (FLAGSHIP, ABLATION, RL, POST_TRAINING)
SMALL = (DEBUG, EVAL)
ZIPF = 1.1


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolView:
    """What drawing needs to know of one pool. `domain_gpus` gives the GPUs of the largest domain of each level,
    coarse to fine; `node_labels` are what work must ask for to run here."""

    name: str
    gpus: int
    gpus_per_node: int
    domain_gpus: Mapping[str, int]
    nodes: tuple[Node, ...]
    paths: Mapping[str, tuple[str, ...]]
    others: tuple[str, ...] = ()
    node_labels: Mapping[str, str] = field(default_factory=dict)

    def level_for(self, wanted: str) -> str:
        """The level that plays the part of `leaf` or `su` here: the finest above the node, or the one above that."""
        levels = list(self.domain_gpus)
        if wanted in levels or len(levels) == 1:
            return wanted if wanted in levels else levels[0]
        return levels[-1] if wanted == "leaf" else levels[max(0, len(levels) - 2)]

    def inside_one(self, placement: Mapping[str, int], level: str) -> bool:
        """Whether a placement lies inside one domain of a level."""
        depth = list(self.domain_gpus).index(level) + 1
        return len({self.paths[name][:depth] for name in placement}) == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Tasks and what each needs. `segment` tasks at a time share a domain of the finest level; 0: no segments."""

    tasks: int
    gpus_per_task: int
    cpus_per_task: int
    memory_gib_per_task: int
    segment: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A job before it has a place or times. Jobs of one burst share `burst`.

    `shape`, `wish` and `unfunded` override what the class and the dice would give.
    """

    job_class: JobClass
    leaf: str
    gpus: int
    burst: int
    shape: Shape | None = None
    wish: TopologyWish | None = None
    unfunded: Unfunded | None = None

    def shape_on(self, gpus_per_node: int) -> Shape:
        """The shape on nodes of this size: given, or whole nodes with the class's CPUs and memory by GPU."""
        if self.shape is not None:
            return self.shape
        tasks, gpus_per_task = split_tasks(self.gpus, gpus_per_node)
        return Shape(
            tasks=tasks,
            gpus_per_task=gpus_per_task,
            cpus_per_task=self.job_class.cpus_per_gpu * gpus_per_task,
            memory_gib_per_task=self.job_class.memory_gib_per_gpu * gpus_per_task,
        )


@dataclass(slots=True)
class Crowd:
    """The leaves with their weight in every class: the project's part, its appetite and affinity, and Zipf inside it."""

    leaves: tuple[str, ...]
    cumulative: dict[str, npt.NDArray[np.float64]] = field(default_factory=dict)

    def pick(self, rng: np.random.Generator, job_class: JobClass) -> str:
        """One leaf that asks for a job of this class."""
        cumulative = self.cumulative[job_class.name]
        index = int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right"))
        return self.leaves[min(index, len(self.leaves) - 1)]

    def only(self, program: str, *, inside: bool) -> Crowd:
        """The leaves inside or outside a program, with their weights; all where that leaves nobody."""
        rows = [row for row, leaf in enumerate(self.leaves) if leaf.startswith(f"{program}/") == inside]
        if not rows:
            return self
        part = Crowd(leaves=tuple(self.leaves[row] for row in rows))
        for name, cumulative in self.cumulative.items():
            total = np.cumsum(np.diff(cumulative, prepend=0.0)[rows])
            part.cumulative[name] = total if total[-1] > 0 else np.arange(1.0, len(rows) + 1)
        return part


def build_crowd(organisation: Organisation) -> Crowd:
    """Prepare the weights of all leaves for all classes."""
    crowd = Crowd(leaves=tuple(leaf for project in organisation.projects for leaf in project.researchers))
    for job_class in CLASSES:
        weights = []
        for project in organisation.projects:
            zipf = np.arange(1, len(project.researchers) + 1, dtype=np.float64) ** -ZIPF
            appetite = project.part * project.appetite * AFFINITY[project.kind][job_class.name]
            weights.append(zipf / zipf.sum() * appetite)
        total = np.cumsum(np.concatenate(weights))
        # An organisation without the kinds that ask for a class (a tiny tree) spreads it evenly.
        crowd.cumulative[job_class.name] = total if total[-1] > 0 else np.arange(1.0, len(crowd.leaves) + 1)
    return crowd


def view_pool(nodes: Sequence[Node], levels: Sequence[str], others: Sequence[str]) -> PoolView:
    """The nodes of one pool as the drawing steps see them."""
    domain_gpus = {}
    for depth, level in enumerate(levels[:-1]):
        totals: dict[tuple[str, ...], int] = {}
        for node in nodes:
            path = node.domains[: depth + 1]
            totals[path] = totals.get(path, 0) + node.gpus
        domain_gpus[level] = max(totals.values())
    return PoolView(
        name=nodes[0].pool,
        gpus=sum(node.gpus for node in nodes),
        gpus_per_node=nodes[0].gpus,
        domain_gpus=domain_gpus,
        nodes=tuple(nodes),
        paths={node.name: node.domains for node in nodes},
        others=tuple(others),
        # Images built for x86 do not run on Arm, so work that runs here has asked for it.
        node_labels=dict(nodes[0].labels) if nodes[0].labels.get("arch") == "aarch64" else {},
    )


def draw_drafts(
    rng: np.random.Generator,
    crowd: Crowd,
    pool: PoolView,
    target: int,
    largest_share: float = 0.25,
    given: Sequence[Draft] = (),
) -> list[Draft]:
    """Jobs that together ask for `target` GPUs, in the mix of the classes; those `given` count and come first.

    Large gangs are drawn first, without taking the part of the small work, and small experiments make up what their uneven
    sizes leave, so that the total is met.
    """
    drafts = list(given)
    bursts = iter(range(1 << 40))
    quotas = _quotas(target)
    reserve = sum(quotas[job_class.name] for job_class in (*SMALL, EXPERIMENT))
    for job_class in (*LARGE_FIRST, *SMALL):
        if job_class in SMALL:
            reserve = 0
        left = target - sum(draft.gpus for draft in drafts)
        quota = quotas[job_class.name] - sum(draft.gpus for draft in given if draft.job_class is job_class)
        sizes = sizes_in_pool(job_class, pool.gpus, largest_share)
        drafts.extend(_fill(rng, crowd, job_class, sizes, min(quota, left - reserve), left - reserve, bursts))
    sizes = sizes_in_pool(EXPERIMENT, pool.gpus, largest_share)
    left = target - sum(draft.gpus for draft in drafts)
    drafts.extend(_fill(rng, crowd, EXPERIMENT, sizes, left, left, bursts, exactly=True))
    return drafts


def _quotas(target: int) -> dict[str, int]:
    """GPUs that each class asks for."""
    scale = sum(job_class.demand for job_class in CLASSES)
    return {job_class.name: round(target * job_class.demand / scale) for job_class in CLASSES}


def _fill(
    rng: np.random.Generator,
    crowd: Crowd,
    job_class: JobClass,
    sizes: tuple[Sequence[int], Sequence[float]],
    quota: int,
    room: int,
    bursts: Iterator[int],
    *,
    exactly: bool = False,
) -> Iterator[Draft]:
    """Bursts of one class until the quota is met.

    The job that would exceed it is taken, if it fits the room, with a probability that keeps the mean; with `exactly`
    smaller ones are drawn.
    """
    menu, cumulative = sizes[0], np.cumsum(sizes[1])
    beyond = room - quota
    left = quota
    while left > 0:
        leaf = crowd.pick(rng, job_class)
        size = menu[min(int(np.searchsorted(cumulative, rng.random(), side="right")), len(menu) - 1)]
        if exactly and size > left:
            size = max((other for other in menu if other <= left), default=left)
        draft = Draft(job_class=job_class, leaf=leaf, gpus=size, burst=next(bursts))
        for _ in range(burst_size(rng, job_class)):
            if size > left and exactly:
                break
            if size > left:
                if size <= left + beyond and rng.random() < left / size:
                    yield draft
                return
            yield draft
            left -= size
            if not left:
                return


def burst_size(rng: np.random.Generator, job_class: JobClass) -> int:
    """Evals come in heavy-tailed bursts, the other classes in geometric ones."""
    if job_class is EVAL:
        return max(1, round(float(rng.lognormal(np.log(12.0), 1.1))))
    return int(rng.geometric(1.0 / job_class.burst))


def build_workload(rng: np.random.Generator, draft: Draft, pool: PoolView, submit_time: int, run_time: float) -> Workload:
    """What the job declares, without an id and without a run."""
    job_class = draft.job_class
    shape = draft.shape_on(pool.gpus_per_node)
    resumable = rng.random() < job_class.resumable
    return Workload(
        id="",
        allocation=draft.leaf,
        user=draft.leaf.rsplit("/", 1)[-1],
        job_class=job_class.name,
        submit_time=submit_time,
        tasks=shape.tasks,
        gpus_per_task=shape.gpus_per_task,
        cpus_per_task=shape.cpus_per_task,
        memory_gib_per_task=shape.memory_gib_per_task,
        pools=_accepted_pools(rng, draft.gpus, pool),
        topology=_wish(rng, job_class, shape, draft, pool),
        exclude_nodes=_excluded(rng, shape.tasks, pool),
        node_labels=pool.node_labels,
        min_runtime=job_class.min_runtime,
        resumable=resumable,
        checkpoint_interval=job_class.checkpoint_interval if resumable else None,
        checkpoint_on_notice=resumable and rng.random() < 0.6,
        restart_time=job_class.restart_time,
        unfunded=_unfunded(rng, draft),
        priority=job_class.priority,
        max_runtime=time_limit(run_time, float(rng.uniform(1.1, 4.0))),
    )


def split_tasks(gpus: int, gpus_per_node: int) -> tuple[int, int]:
    """Tasks and GPUs per task: one task where a node holds it, whole nodes otherwise."""
    if gpus <= gpus_per_node:
        return 1, gpus
    per_task = next(size for size in range(gpus_per_node, 0, -1) if gpus % size == 0)
    return gpus // per_task, per_task


def _accepted_pools(rng: np.random.Generator, gpus: int, pool: PoolView) -> tuple[str, ...]:
    """Small work runs anywhere, or prefers one pool; gangs name theirs. The first is the pool it was drawn for."""
    if not pool.others:
        return () if rng.random() < 0.5 else (pool.name,)
    chance = rng.random()
    if gpus <= 16 and chance < 0.4:
        return ()
    if chance < 0.6:
        return (pool.name, *pool.others)
    return (pool.name,)


def _unfunded(rng: np.random.Generator, draft: Draft) -> Unfunded:
    """Some users would rather wait than run without a promise, more so with gangs."""
    waits = rng.random() < (0.25 if draft.gpus >= 64 else 0.08)
    if draft.unfunded is not None:
        return draft.unfunded
    return Unfunded.WAIT if waits else Unfunded.RUN


def _wish(rng: np.random.Generator, job_class: JobClass, shape: Shape, draft: Draft, pool: PoolView) -> TopologyWish:
    """The class's level, preferred; one gang in ten that fits half of such a domain insists on it."""
    if draft.wish is not None:
        return draft.wish
    if shape.segment:
        return TopologyWish(segment=Segment(level=list(pool.domain_gpus)[-1], tasks=shape.segment))
    if shape.tasks == 1 or job_class.preferred is None or not pool.domain_gpus:
        return TopologyWish()
    level = pool.level_for(job_class.preferred)
    if 2 * draft.gpus <= pool.domain_gpus[level] and rng.random() < 0.1:
        return TopologyWish(required=level)
    return TopologyWish(preferred=level)


def _excluded(rng: np.random.Generator, tasks: int, pool: PoolView) -> tuple[str, ...]:
    """A few users of gangs avoid nodes that they distrust."""
    if tasks < 2 or len(pool.nodes) < 16 or rng.random() >= 0.03:
        return ()
    chosen = rng.choice(len(pool.nodes), size=int(rng.integers(1, 3)), replace=False)
    return tuple(sorted(pool.nodes[int(index)].name for index in chosen))


def draw_run_time(rng: np.random.Generator, job_class: JobClass, *, running: bool) -> float:
    """Seconds that the job takes; what is seen running at a random moment is drawn by length."""
    shift = job_class.sigma**2 if running else 0.0
    return float(min(job_class.cap, job_class.median * np.exp(rng.normal(shift, job_class.sigma))))
