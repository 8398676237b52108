"""Tiny traces in few words, and policies that do as they are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from allocator.domain import Decision, Policy, Snapshot, Start, StopReason
from allocator.domain.trace import Job, Trace
from allocator.replay import Idling, ReplayOptions, SchedulingPolicy, Simulator, plain_decision
from allocator.replay.lives import RunRow
from tests.builders import HOUR, NOW, budget, nodes
from tests.builders import job as workload
from tests.replay.first_fit import FirstFit

START = NOW // HOUR * HOUR
"""The start of every trace: a full hour."""


def job(name: str, at: int = 0, *, work: int = 100, **fields: Any) -> Job:
    """A job of the allocation `a` that comes `at` seconds after the start; 8 GPUs, and it restarts at once."""
    own = {
        key: fields.pop(key) for key in ("checkpoint_cost", "fails_after", "failing_resumes", "after", "idle") if key in fields
    }
    usual: dict[str, Any] = {"submit_time": START + at, "restart_time": 0, "checkpoint_on_notice": False, "resumable": True}
    return Job(workload=workload(name, **(usual | fields)), work=work, **own)


def trace(*jobs: Job, hours: int = 1, num_nodes: int = 1, **fields: Any) -> Trace:
    """A trace on nodes n1, n2, ... of 8 GPUs, four in a rack."""
    from allocator.domain import Cluster

    cluster = Cluster(
        levels=("cluster", "rack", "node"), nodes=nodes(num_nodes, per_rack=fields.pop("per_rack", 4)),
        slowdown=fields.pop("slowdown", {}),
    )  # fmt: skip
    usual: dict[str, Any] = {"budgets": (budget("a"), budget("b")), "policy": Policy(), "name": "tiny"}
    ordered = tuple(sorted(jobs, key=lambda one: (one.workload.submit_time, one.workload.id)))
    return Trace(start=START, end=START + hours * HOUR, cluster=cluster, jobs=ordered, **(usual | fields))


@dataclass
class Told:
    """Starts what fits in order, and at given moments (seconds since the start) stops given jobs, which then stay away."""

    stops: Mapping[int, Sequence[str]] = field(default_factory=dict)
    back: int = 0
    idling: Idling = Idling.ALWAYS
    name: str = "told"
    promise: int | None = None
    _hold: dict[str, int] = field(default_factory=dict)

    def decide(self, snapshot: Snapshot, previous: Decision | None) -> Decision:
        named = [key for at, keys in self.stops.items() if START + at == snapshot.now for key in keys]
        running = {work.id for work in snapshot.workloads if work.run is not None}
        stops = [(key, StopReason.SHARE, ()) for key in named if key in running]
        self._hold |= {key: snapshot.now + self.back for key, _, _ in stops if self.back}
        held = {key for key, until in self._hold.items() if snapshot.now < until}
        stopped = {key for key, _, _ in stops}
        seen = Snapshot(
            now=snapshot.now, cluster=snapshot.cluster, budgets=(),
            workloads=tuple(work for work in snapshot.workloads if work.id not in held | stopped),
        )  # fmt: skip
        starts = tuple(self._promised(start, snapshot.now) for start in FirstFit().decide(seen, None).starts)
        return plain_decision(snapshot, self.name, starts, stops)

    def _promised(self, start: Start, now: int) -> Start:
        if self.promise is None:
            return start
        return Start(workload=start.workload, placement=start.placement, charged=True, protected_until=now + self.promise)

    def wake(self, snapshot: Snapshot, decision: Decision) -> int | None:
        moments = [START + at for at in self.stops] + list(self._hold.values())
        return min((moment for moment in moments if moment > snapshot.now), default=None)


def play(
    what: Trace, policy: SchedulingPolicy | None = None, *, tick: int = 10, on_tick: Callable[[Simulator], None] | None = None
) -> Simulator:
    """Play to the end, by default first come first served with a tick of 10 s."""
    simulator = Simulator(what, policy or Told(), ReplayOptions(tick=tick, drift=300))
    simulator.run(on_tick)
    return simulator


def told(simulator: Simulator) -> list[tuple[str, int, int, str]]:
    """The runs in the order in which they ended: job, start and end since the start of the trace, and how it ended."""
    return [(row.job, row.start - START, row.end - START, row.ended_by) for row in simulator.world.runs]


def run_of(simulator: Simulator, name: str, number: int = 1) -> RunRow:
    """One run."""
    return next(row for row in simulator.world.runs if (row.job, row.number) == (name, number))
