"""Node failures over a span of time: a few nodes fail again and again, and some repairs take days."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from allocator.domain import Cluster
from allocator.domain.trace import Outage
from allocator.generate.params import DAY, HOUR

FAILURES_PER_GPU_DAY = 5e-4
"""About 4 per 1,000 days of 8-GPU nodes, the middle of what large clusters report (3e-4 to 1.1e-3)."""

LEMON_PART, LEMON_FAILURES = 0.05, 0.5
"""This part of the nodes has this part of the failures."""

REPAIRS = ((0.6, 4 * HOUR, "reboot"), (0.4, 3 * DAY, "replacement"))
"""Probability, median time in seconds, and what is done; log-normal with REPAIR_SIGMA."""

REPAIR_SIGMA = 0.8


def draw_outages(
    cluster: Cluster, start: int, end: int, rng: np.random.Generator, rate: float = FAILURES_PER_GPU_DAY
) -> tuple[Outage, ...]:
    """Failures and repairs of every node in [start, end), in order of time; a node that is down cannot fail.

    Parameters
    ----------
    rate
        Failures per GPU and day, the mean over all nodes.
    """
    factors = _lemons(len(cluster.nodes), rng)
    found = []
    for node, factor in zip(cluster.nodes, factors, strict=True):
        per_second = rate * node.gpus * factor / DAY
        at = float(start)
        while per_second:
            at += rng.exponential(1.0 / per_second)
            if at >= end - 1:
                break
            repair, reason = _draw_repair(rng)
            found.append(Outage(node=node.name, start=int(at), end=int(at) + repair, reason=reason))
            at += repair
    return tuple(sorted(found, key=lambda outage: (outage.start, outage.node)))


def _lemons(count: int, rng: np.random.Generator) -> Sequence[float]:
    """By how much each node fails more often than the mean."""
    lemons = round(count * LEMON_PART)
    if not lemons:
        return [1.0] * count
    factors = np.full(count, (1 - LEMON_FAILURES) * count / (count - lemons))
    factors[rng.choice(count, size=lemons, replace=False)] = LEMON_FAILURES * count / lemons
    whole: list[float] = factors.tolist()
    return whole


def _draw_repair(rng: np.random.Generator) -> tuple[int, str]:
    chosen = int(rng.choice(len(REPAIRS), p=[part for part, _, _ in REPAIRS]))
    _, median, reason = REPAIRS[chosen]
    return max(60, int(median * np.exp(rng.normal(0.0, REPAIR_SIGMA)))), reason
