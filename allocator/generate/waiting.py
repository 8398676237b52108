"""The queue: jobs of all classes, the larger ones waiting longer, some of them stopped before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from allocator.domain import LastStop, Workload
from allocator.generate.classes import EVAL
from allocator.generate.demand import Draft, PoolView, build_workload, draw_run_time
from allocator.generate.params import HOUR, NOW


def queue_up(rng: np.random.Generator, drafts: Sequence[Draft], pool: PoolView) -> list[Workload]:
    """The drafts as waiting workloads, with the times at which their bursts came in."""
    waiting = []
    burst, submit_time = None, 0
    for draft in drafts:
        if draft.burst != burst:
            burst, submit_time = draft.burst, NOW - 1 - _waited(rng, draft)
        elif rng.random() >= 0.38:
            # Inside a burst more than a third of the jobs share the second, the others follow in seconds.
            pause = 9.0 if draft.job_class is EVAL else 20.0
            submit_time = min(NOW - 1, submit_time + 1 + int(rng.exponential(pause)))
        workload = build_workload(rng, draft, pool, submit_time, draw_run_time(rng, draft.job_class, running=False))
        waiting.append(_stop_before(rng, workload, pool))
    return waiting


def _waited(rng: np.random.Generator, draft: Draft) -> int:
    """Seconds in the queue so far."""
    mean = 0.25 * HOUR if draft.gpus <= 8 and draft.job_class.min_runtime <= 1800 else 2 * HOUR
    if draft.gpus >= 64:
        mean = 8 * HOUR
    return int(rng.exponential(mean))


def _stop_before(rng: np.random.Generator, workload: Workload, pool: PoolView) -> Workload:
    """One workload in eight that is longer than an eval waits again, after it was stopped for the sake of others."""
    if workload.min_runtime <= 1800 or rng.random() >= 0.125:
        return workload
    stopped_at = NOW - int(rng.uniform(300, 6 * HOUR))
    return replace(
        workload,
        submit_time=min(workload.submit_time, stopped_at - int(rng.uniform(1, 24) * HOUR)),
        preempted=int(rng.integers(1, 4)),
        stopped=LastStop(at=stopped_at, pool=pool.name, gpus=workload.gpus, charged=bool(rng.random() < 0.7)),
    )
