"""A week of usage records: what has ended, so that running work and records add up to the usage that was drawn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from allocator.domain import Policy, UsageRecord
from allocator.generate.ledger import Ledger
from allocator.generate.organisation import Project
from allocator.generate.params import HOUR, NOW

CHARGED_PART, UNCHARGED_PART = 0.84, 0.1
"""Parts of a pool's time in the window that were charged and free of charge; the rest was idle or down."""

GANG_MENU = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
SHORTEST = 60


def write_history(
    rng: np.random.Generator, ledger: Ledger, projects: Sequence[Project], pool: str, pool_gpus: int, policy: Policy
) -> list[UsageRecord]:
    """Charged records up to each project's target, and uncharged ones on top, split unevenly over the researchers."""
    records: list[UsageRecord] = []
    free_total = UNCHARGED_PART * pool_gpus * policy.window
    free_parts = rng.lognormal(0.0, 0.8, size=len(projects)) * [project.part * project.appetite for project in projects]
    free_parts /= free_parts.sum()
    for project, free_part in zip(projects, free_parts, strict=True):
        weights = np.arange(1, len(project.researchers) + 1) ** -0.8 * rng.lognormal(0.0, 0.6, size=len(project.researchers))
        weights /= weights.sum()
        missing = ledger.missing_usage(project.id, pool)
        for leaf, weight in zip(project.researchers, weights, strict=True):
            records.extend(_records(rng, leaf, pool, missing * float(weight), pool_gpus, policy, charged=True))
            free = free_total * float(free_part * weight)
            records.extend(_records(rng, leaf, pool, free, pool_gpus, policy, charged=False))
    return records


def _records(
    rng: np.random.Generator, leaf: str, pool: str, total: float, pool_gpus: int, policy: Policy, *, charged: bool
) -> list[UsageRecord]:
    """Runs of one leaf that add up to about `total` GPU-seconds inside the window."""
    if total < SHORTEST:
        return []
    count = 1 + int(rng.poisson(min(9.0, total / (32 * HOUR))))
    records = []
    for piece in rng.dirichlet(np.full(count, 1.5)) * total:
        longest = float(rng.uniform(2 * HOUR, 24 * HOUR))
        menu = [size for size in GANG_MENU if size <= max(1, pool_gpus // 2)]
        gpus = next((size for size in menu if piece / size <= longest), menu[-1])
        duration = min(policy.window, round(float(piece) / gpus))
        if duration < SHORTEST:
            continue
        records.append(_record(rng, leaf, pool, gpus, duration, policy, charged=charged))
    return records


def _record(
    rng: np.random.Generator, leaf: str, pool: str, gpus: int, duration: int, policy: Policy, *, charged: bool
) -> UsageRecord:
    """One run somewhere in the window; one in thirty reaches back beyond it and counts with what lies inside."""
    first = NOW - policy.window
    if rng.random() < 1 / 30:
        start, end = first - int(rng.uniform(0, 6 * HOUR)), first + duration
    else:
        start = first + int(rng.uniform(0, policy.window - duration))
        end = start + duration
    return UsageRecord(allocation=leaf, pool=pool, gpus=gpus, start=start, end=end, charged=charged)
