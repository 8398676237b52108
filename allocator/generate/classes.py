"""The classes of work of a research organisation: how large, how long, and what each declares.

Sizes, run times and declarations are those of the workload model (probabilities by job, spans in seconds). The demand is
the share of the GPU time that a class asks for. Requests for CPUs and memory stay below a GPU's part of the node, so that
GPUs alone decide what fits; the family `bound` is for the opposite.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from allocator.generate.params import HOUR

MINUTE = 60
TIME_LIMIT_MENU_H = (1, 2, 4, 8, 12, 24, 48, 72, 120, 168, 240)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobClass:
    """One class of work.

    `sizes` maps GPUs to probabilities by job; empty: sizes relative to the pool (flagship). `median` and `sigma` describe
    the log-normal run time, cut at `cap`. `burst` is the mean number of jobs that arrive together. `checkpoint_cost` is what
    a checkpoint takes.
    """

    name: str
    demand: float
    sizes: Mapping[int, float]
    median: int
    sigma: float
    cap: int
    burst: float
    min_runtime: int
    resumable: float
    checkpoint_interval: int | None
    restart_time: int
    priority: int
    preferred: str | None
    cpus_per_gpu: int
    memory_gib_per_gpu: int
    checkpoint_cost: int = 0


DEBUG = JobClass(
    name="debug",
    demand=0.015,
    sizes={1: 0.55, 2: 0.12, 4: 0.08, 8: 0.23, 16: 0.02},
    median=15 * MINUTE,
    sigma=1.4,
    cap=8 * HOUR,
    burst=1.3,
    min_runtime=30 * MINUTE,
    resumable=0.0,
    checkpoint_interval=None,
    restart_time=30,
    priority=2,
    preferred=None,
    cpus_per_gpu=12,
    memory_gib_per_gpu=200,
)
EVAL = JobClass(
    name="eval",
    demand=0.03,
    sizes={1: 0.78, 2: 0.06, 4: 0.06, 8: 0.10},
    median=4 * MINUTE,
    sigma=1.7,
    cap=6 * HOUR,
    burst=22.0,
    min_runtime=0,
    resumable=0.0,
    checkpoint_interval=None,
    restart_time=60,
    priority=0,
    preferred=None,
    cpus_per_gpu=8,
    memory_gib_per_gpu=100,
)
EXPERIMENT = JobClass(
    name="experiment",
    demand=0.14,
    sizes={1: 0.52, 2: 0.10, 4: 0.10, 8: 0.25, 16: 0.03},
    median=int(2.5 * HOUR),
    sigma=1.3,
    cap=7 * 24 * HOUR,
    burst=4.0,
    min_runtime=HOUR,
    resumable=0.8,
    checkpoint_interval=30 * MINUTE,
    restart_time=4 * MINUTE,
    priority=1,
    preferred="leaf",
    cpus_per_gpu=12,
    memory_gib_per_gpu=160,
    checkpoint_cost=20,
)
POST_TRAINING = JobClass(
    name="post-training",
    demand=0.09,
    sizes={8: 0.35, 16: 0.25, 32: 0.25, 64: 0.15},
    median=4 * HOUR,
    sigma=1.0,
    cap=72 * HOUR,
    burst=1.6,
    min_runtime=2 * HOUR,
    resumable=0.9,
    checkpoint_interval=30 * MINUTE,
    restart_time=7 * MINUTE,
    priority=1,
    preferred="leaf",
    cpus_per_gpu=12,
    memory_gib_per_gpu=200,
    checkpoint_cost=45,
)
RL = JobClass(
    name="rl",
    demand=0.13,
    sizes={16: 0.30, 32: 0.35, 64: 0.25, 128: 0.10},
    median=14 * HOUR,
    sigma=1.0,
    cap=7 * 24 * HOUR,
    burst=1.3,
    min_runtime=4 * HOUR,
    resumable=0.9,
    checkpoint_interval=HOUR,
    restart_time=15 * MINUTE,
    priority=1,
    preferred="leaf",
    cpus_per_gpu=12,
    memory_gib_per_gpu=200,
    checkpoint_cost=60,
)
ABLATION = JobClass(
    name="ablation",
    demand=0.22,
    sizes={32: 0.30, 64: 0.35, 128: 0.25, 256: 0.10},
    median=16 * HOUR,
    sigma=1.1,
    cap=10 * 24 * HOUR,
    burst=1.5,
    min_runtime=4 * HOUR,
    resumable=1.0,
    checkpoint_interval=HOUR,
    restart_time=10 * MINUTE,
    priority=2,
    preferred="su",
    cpus_per_gpu=12,
    memory_gib_per_gpu=200,
    checkpoint_cost=45,
)
FLAGSHIP = JobClass(
    name="flagship",
    demand=0.31,
    sizes={},
    median=20 * HOUR,
    sigma=1.1,
    cap=7 * 24 * HOUR,
    burst=1.0,
    min_runtime=8 * HOUR,
    resumable=1.0,
    checkpoint_interval=30 * MINUTE,
    restart_time=15 * MINUTE,
    priority=3,
    preferred="su",
    cpus_per_gpu=12,
    memory_gib_per_gpu=200,
    checkpoint_cost=60,
)

CLASSES = (DEBUG, EVAL, EXPERIMENT, POST_TRAINING, RL, ABLATION, FLAGSHIP)


def sizes_in_pool(job_class: JobClass, pool_gpus: int, largest_share: float) -> tuple[list[int], list[float]]:
    """Gang sizes of a class that make sense in a pool of this size, with their probabilities by job.

    Nothing exceeds `largest_share` of the pool (one node at least). Flagship gangs are powers of two from an eighth of the
    pool, at most 128 GPUs, upwards, each size asking for about the same GPU time.
    """
    largest = max(8, int(pool_gpus * largest_share))
    if job_class.sizes:
        sizes = {size: weight for size, weight in job_class.sizes.items() if size <= largest}
        if not sizes:
            sizes = {largest - largest % 8: 1.0}
    else:
        sizes = {}
        size = max(8, min(128, pool_gpus // 8 // 8 * 8))
        while size <= largest:
            sizes[size] = 1.0 / size
            size *= 2
        if not sizes:
            sizes = {largest - largest % 8: 1.0}
    total = sum(sizes.values())
    return list(sizes), [weight / total for weight in sizes.values()]


def time_limit(run_time: float, looseness: float) -> int:
    """The declared limit in seconds: loose, and rounded up to the menu that people choose from."""
    wanted = run_time * looseness
    for hours in TIME_LIMIT_MENU_H:
        if hours * HOUR >= wanted:
            return hours * HOUR
    return TIME_LIMIT_MENU_H[-1] * HOUR
