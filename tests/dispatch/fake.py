"""A scheduler in memory with Slurm's pitfalls, that can be killed between any two steps, or not follow an order."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from allocator.dispatch.facts import Fabric, JobFact, JobState, NodeCondition, NodeFact, View
from allocator.dispatch.launcher import LauncherError, StartOrder
from allocator.domain import Allocation

GPUS = 8


class KilledError(BaseException):
    """The dispatcher has been killed: nothing catches it."""


@dataclass(slots=True)
class Ticker:
    """Counts the steps at which a dispatcher may be killed, and kills it at one of them."""

    kill_at: int | None = None
    count: int = 0

    def __call__(self) -> None:
        if self.count == self.kill_at:
            self.count += 1
            raise KilledError
        self.count += 1


@dataclass(slots=True)
class Unreliable:
    """How the scheduler fails: the share of orders that it forgets, and of calls that it does not answer."""

    rng: random.Random = field(default_factory=lambda: random.Random(0))
    forgets: float = 0.0
    refuses: float = 0.0

    def forgot(self) -> bool:
        return self.rng.random() < self.forgets

    def refused(self) -> bool:
        return self.rng.random() < self.refuses


@dataclass(slots=True)
class ForgetsOne(Unreliable):
    """Forgets one order, counted from 0, and no other."""

    which: int = 0

    def forgot(self) -> bool:
        self.which -= 1
        return self.which == -1


@dataclass(slots=True)
class Started:
    """One start that has really happened."""

    job: str
    incarnation: int
    nodes: tuple[str, ...]
    ordered: bool


class FakeScheduler:
    """Nodes n1.. of 8 GPUs, jobs, and a clock that the test moves.

    Like Slurm it starts whatever is released: on the nodes it was told, on these and others where there are too few of them,
    anywhere where there are none. Stopped jobs leave for one look. What a dead node takes down comes back not held. What begins
    in the second in which the last run of the job was told to end is taken for that run by the node, and the job has failed.
    """

    def __init__(self, nodes: int = 4, tick: Callable[[], None] = lambda: None) -> None:
        self.now = 1_764_430_000
        self.tick = tick
        self.unreliable = Unreliable()
        self.nodes = {f"n{number}": self._node(f"n{number}") for number in range(1, nodes + 1)}
        self.jobs: dict[str, JobFact] = {}
        self.starts: list[Started] = []
        self.stillborn: list[str] = []
        self.said: list[dict[str, str]] = []
        self._told_to_end: dict[str, int] = {}
        self._waited = 0.0
        self.accounts = tuple(Allocation(id=name, parent=None, share=Fraction(1)) for name in ("a", "b"))

    @staticmethod
    def _node(name: str) -> NodeFact:
        return NodeFact(
            name=name,
            condition=NodeCondition.OPEN,
            gpus=GPUS,
            gpu_type="h100",
            cpus=64,
            memory_mib=1 << 20,
            partitions=("batch",),
        )

    # what the test does

    def submit(self, key: str, account: str, num_nodes: int = 1, gpus: int = GPUS, **more: object) -> None:
        fact = JobFact(
            id=key,
            state=JobState.WAITING,
            held=True,
            submit_time=self.now,
            account=account,
            user="u",
            partition="batch",
            num_nodes=num_nodes,
            gpus=num_nodes * gpus,
            gpus_per_node=gpus,
            cpus=num_nodes,
            memory_mib=1024,
            min_runtime=600,
        )
        self.jobs[key] = replace(fact, **more)  # type: ignore[arg-type]

    def end(self, key: str) -> None:
        self.jobs[key] = replace(self.jobs[key], state=JobState.ENDED, end_time=self.now)

    def fail_node(self, name: str) -> None:
        self.nodes[name] = replace(self.nodes[name], condition=NodeCondition.DOWN)
        for job in list(self.jobs.values()):
            if name in job.nodes and job.state is JobState.RUNNING:
                self._requeue(job, held=False)

    def forget(self, key: str) -> None:
        """The controller has crashed and lost the start of a job: its nodes are told to end it, and it is not a requeue."""
        self._told_to_end[key] = self.now
        self.jobs[key] = replace(self.jobs[key], state=JobState.WAITING, held=True, nodes=(), start_time=None)

    def pass_time(self, seconds: float) -> None:
        """The dispatcher waits: the clock goes on."""
        self._waited += seconds
        self.now, self._waited = self.now + int(self._waited), self._waited % 1

    # what a launcher does

    def view(self) -> View:
        self._step("view")
        shown = View(
            now=self.now,
            jobs=dict(self.jobs),
            nodes=dict(self.nodes),
            fabric=Fabric(levels=("cluster", "node"), domains=dict.fromkeys(self.nodes, ("east",))),
            accounts=self.accounts,
        )
        self._schedule()
        return shown

    def hold(self, jobs: Sequence[str]) -> None:
        for job in self._followed(jobs):
            if job.state is JobState.WAITING:
                self.jobs[job.id] = replace(job, held=True)

    def stop(self, jobs: Sequence[str]) -> None:
        for job in self._followed(jobs):
            if job.state is JobState.RUNNING:
                self._requeue(job, held=True)

    def place(self, orders: Sequence[StartOrder]) -> None:
        by_job = {order.job: order for order in orders}
        for job in self._followed(by_job):
            order = by_job[job.id]
            if job.state is JobState.WAITING:
                self.jobs[job.id] = replace(job, wanted_nodes=order.nodes, num_nodes=len(order.nodes))

    def release(self, jobs: Sequence[str]) -> None:
        for job in self._followed(jobs):
            if job.state is JobState.WAITING:
                self.jobs[job.id] = replace(job, held=False)

    def unplace(self, jobs: Sequence[str]) -> None:
        for job in self._followed(jobs):
            assert job.held, f"{job.id} is not held, and could start anywhere without its list"
            if job.state is JobState.WAITING:
                self.jobs[job.id] = replace(job, wanted_nodes=())

    def drain(self, nodes: Sequence[str], reason: str) -> None:
        self._step("drain")
        for name in nodes:
            self.nodes[name] = replace(self.nodes[name], condition=NodeCondition.DRAIN, reason=reason)

    def resume(self, nodes: Sequence[str]) -> None:
        self._step("resume")
        for name in nodes:
            self.nodes[name] = replace(self.nodes[name], condition=NodeCondition.OPEN, reason="")

    def say(self, texts: Mapping[str, str]) -> None:
        self._step("say")
        self.said.append(dict(texts))
        for place, text in texts.items():
            for job in [job for job in self.jobs.values() if place in (job.id, job.record)]:
                self.jobs[job.id] = replace(job, said=text)

    # inside

    def _step(self, what: str) -> None:
        self.tick()
        if self.unreliable.refused():
            raise LauncherError(f"{what}: no answer")

    def _followed(self, jobs: Iterable[str]) -> Iterable[JobFact]:
        """The jobs for which an order is followed, one after the other; the dispatcher may be killed between any two."""
        self._step("order")
        for key in jobs:
            self.tick()
            if key in self.jobs and not self.unreliable.forgot():
                yield self.jobs[key]
        self.tick()

    def _requeue(self, job: JobFact, *, held: bool) -> None:
        leaving = JobState.LEAVING if held else JobState.WAITING
        self._told_to_end[job.id] = self.now
        self.jobs[job.id] = replace(
            job,
            state=leaving,
            held=held,
            incarnation=job.incarnation + 1,
            nodes=job.nodes if held else (),
            submit_time=self.now,
            start_time=None,
        )

    def _schedule(self) -> None:
        """What the scheduler does by itself between two looks."""
        for job in list(self.jobs.values()):
            if job.state is JobState.LEAVING:
                self.jobs[job.id] = replace(job, state=JobState.WAITING, nodes=())
        for job in list(self.jobs.values()):
            if job.state is JobState.WAITING and not job.held:
                self._start(job)

    def _start(self, job: JobFact) -> None:
        free = [name for name in self.nodes if self._fits(name, job)]
        chosen = [name for name in job.wanted_nodes if name in free]
        if len(chosen) < len(job.wanted_nodes):
            return
        chosen += [name for name in free if name not in chosen][: max(0, job.num_nodes - len(chosen))]
        if len(chosen) == job.num_nodes:
            nodes = tuple(sorted(chosen))
            if self._told_to_end.get(job.id) == self.now:
                self.stillborn.append(job.id)
                ended = replace(job, state=JobState.ENDED, nodes=nodes, start_time=self.now, end_time=self.now)
                self.jobs[job.id] = ended
                return
            self.jobs[job.id] = replace(job, state=JobState.RUNNING, nodes=nodes, start_time=self.now)
            self.starts.append(Started(job.id, job.incarnation, nodes, set(nodes) == set(job.wanted_nodes)))

    def _fits(self, name: str, job: JobFact) -> bool:
        taken = sum(
            other.gpus_per_node for other in self.jobs.values() if name in other.nodes and other.state is not JobState.ENDED
        )
        return self.nodes[name].condition is NodeCondition.OPEN and taken + job.gpus_per_node <= GPUS
