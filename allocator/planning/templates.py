"""Jobs to draw from when a plan is played: those of the question's trace, or of the synthetic organisation."""

from __future__ import annotations

from collections.abc import Sequence

from allocator.domain.trace import Job, Trace
from allocator.generate.organisation_trace import TraceParams, generate_trace
from allocator.planning.scenarios import Key, work_of

SYNTHETIC = TraceParams(gpus=512, pools=1, days=7, load=1.0, seed=1, failures=0.0, squatters=0.0)
"""A week in which every class of jobs occurs often enough."""


class Templates:
    """Jobs with a min runtime, by project and pool."""

    def __init__(self, trace: Trace | None) -> None:
        self._own = {} if trace is None else work_of(trace)
        jobs = (generate_trace(SYNTHETIC) if trace is None else trace).jobs
        self._all = [job for job in jobs if job.workload.min_runtime > 0]

    def of(self, key: Key) -> Sequence[Job]:
        """Those of a project in a pool; all, where that has none in the trace."""
        return self._own.get(key) or self._all
