"""A small production that is recorded: work with a true length, the allocator, and `apply` and `finish` for what happens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from allocator import allocate
from allocator.domain import Cluster, Decision, Policy, Snapshot, UsageRecord, Workload
from allocator.record import Recorder
from allocator.transition import apply, finish
from tests.builders import HOUR, LEVELS, NOW, budget, nodes
from tests.builders import job as workload

START = NOW // HOUR * HOUR
TICK = 60
POLICY = Policy(notice=0, protection_cap=600)

Change = Callable[[Snapshot], Snapshot]


@dataclass(slots=True)
class Truth:
    """What only the work itself knows: how long it takes, and how far it is."""

    work: int
    done: int = 0
    begun: int | None = None
    runs: int = 0


def job(name: str, allocation: str = "a", *, at: int = 0, **fields: Any) -> Workload:
    """A workload of 8 GPUs that comes `at` seconds after the start."""
    usual: dict[str, Any] = {"min_runtime": 300, "restart_time": 30, "checkpoint_interval": 120, "checkpoint_on_notice": False}
    return workload(name, allocation, submit_time=START + at, **(usual | {"resumable": True} | fields))


@dataclass
class Production:
    """Two nodes, two budgets, and an epoch a minute.

    Attributes
    ----------
    jobs
        What is submitted, with its true work in seconds.
    changes
        By epoch, what somebody does to the snapshot before it is decided.
    withdrawn
        By epoch, who goes away before it.
    """

    folder: Path
    jobs: Sequence[tuple[Workload, int]]
    changes: Mapping[int, Change] = field(default_factory=dict)
    withdrawn: Mapping[int, Sequence[str]] = field(default_factory=dict)
    usage: tuple[UsageRecord, ...] = ()
    forgetful: bool = False
    truths: dict[str, Truth] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)

    def run(self, epochs: int, *, before: int = 0) -> None:
        """Record so many epochs, after some that nobody records. The truths are those of the last epoch."""
        recorder = Recorder(self.folder)
        self.truths = {work.id: Truth(length) for work, length in self.jobs}
        cluster = Cluster(levels=LEVELS, nodes=nodes(2))
        snapshot = Snapshot(
            now=START, cluster=cluster, budgets=(budget("a"), budget("b")), workloads=(), usage=self.usage, policy=POLICY
        )  # fmt: skip
        for number in range(-before, epochs):
            snapshot = finish(self._arrived(snapshot), *self.withdrawn.get(number, ()))
            if number in self.changes:
                snapshot = self.changes[number](snapshot).canonical()
            decision = allocate(snapshot, engine="greedy")
            self.decisions.append(decision)
            if number >= 0:
                shown = replace(snapshot, usage=self.usage) if self.forgetful else snapshot
                recorder.record(shown, decision)
            if number + 1 < epochs:
                snapshot = self._pass(snapshot, decision)

    def _arrived(self, snapshot: Snapshot) -> Snapshot:
        since = snapshot.now - TICK
        fresh = [work for work, _ in self.jobs if since < max(work.submit_time, START) <= snapshot.now]
        return replace(snapshot, workloads=(*snapshot.workloads, *fresh))

    def _pass(self, snapshot: Snapshot, decision: Decision) -> Snapshot:
        """Carry out a decision, and let a minute pass in which work ends when it is done."""
        for stop in decision.preemptions:
            truth, gpus = self.truths[stop.workload], next(w.gpus for w in snapshot.workloads if w.id == stop.workload)
            worked = self._worked(stop.workload, snapshot.now)
            truth.done += worked - min(worked, stop.lost_gpu_seconds // gpus)
            truth.begun = None
        for start in decision.starts:
            truth = self.truths[start.workload]
            truth.begun, truth.runs = snapshot.now, truth.runs + 1
        until = snapshot.now + TICK
        snapshot = apply(snapshot, decision, TICK)
        for end, key in sorted((self._end(key), key) for key, truth in self.truths.items() if truth.begun is not None):
            if end <= until:
                snapshot = finish(replace(snapshot, now=end), key)
                self.truths[key].begun = None
                self.truths[key].done = self.truths[key].work
        return replace(snapshot, now=until)

    def _restart(self, key: str) -> int:
        return next(work.restart_time for work, _ in self.jobs if work.id == key) if self.truths[key].runs > 1 else 0

    def _worked(self, key: str, now: int) -> int:
        begun = self.truths[key].begun
        assert begun is not None
        return max(0, now - begun - self._restart(key))

    def _end(self, key: str) -> int:
        truth = self.truths[key]
        assert truth.begun is not None
        return truth.begun + self._restart(key) + truth.work - truth.done
