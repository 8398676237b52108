"""From a decision to orders: the difference between what was decided and what the scheduler shows. A pure function."""

from __future__ import annotations

from dataclasses import dataclass, field

from allocator.dispatch.config import Config
from allocator.dispatch.facts import JobState, NodeCondition, View
from allocator.dispatch.launcher import StartOrder
from allocator.dispatch.scope import Scope
from allocator.domain import Decision, Start

MARK = "allocator: "
"""How the reason of every drain begins that the dispatcher orders, and by which it knows what it may take back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What is to be done. `impossible` are starts that cannot be told to the scheduler, with the reason."""

    holds: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()
    starts: tuple[StartOrder, ...] = ()
    drains: dict[str, tuple[str, ...]] = field(default_factory=dict)
    resumes: tuple[str, ...] = ()
    impossible: dict[str, str] = field(default_factory=dict)

    @property
    def lines(self) -> list[str]:
        """The orders in words, one to a line."""
        return [
            *(f"hold {job}: it would start by itself" for job in self.holds),
            *(f"drain {', '.join(nodes)}: {reason}" for reason, nodes in sorted(self.drains.items())),
            *(f"resume {node}" for node in self.resumes),
            *(f"stop {job}" for job in self.stops),
            *(f"start {order.job} on {','.join(order.nodes)}" for order in self.starts),
            *(f"leave {job} waiting: {why}" for job, why in sorted(self.impossible.items())),
        ]

    @property
    def begin_or_end_work(self) -> bool:
        """Whether anything is started or stopped, so that it has to be written down first."""
        return bool(self.stops or self.starts)


def plan(decision: Decision, view: View, scope: Scope, strays: list[str], config: Config) -> Orders:
    """The orders of one epoch."""
    starts, impossible = [], {}
    for row in decision.starts:
        if any(number > 1 for number in row.placement.values()) and not _is_alone(row):
            impossible[row.workload] = "two of its parts were given one node"
        else:
            starts.append(_start(row, view))
    drains, resumes = _maintenance(view, scope, config)
    return Orders(
        holds=tuple(strays),
        stops=tuple(sorted(row.workload for row in decision.preemptions)),
        starts=tuple(sorted(starts, key=lambda order: order.job)),
        drains=drains,
        resumes=resumes,
        impossible=impossible,
    )


def _is_alone(row: Start) -> bool:
    return sum(row.placement.values()) == 1


def _start(row: Start, view: View) -> StartOrder:
    """The nodes; where the job leaves open how its GPUs are split, evenly."""
    job, nodes = view.jobs[row.workload], tuple(sorted(row.placement))
    return StartOrder(job=job.id, nodes=nodes, gpus_per_node=0 if job.gpus_per_node else job.gpus // len(nodes))


def _maintenance(view: View, scope: Scope, config: Config) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
    """Nodes to drain because their maintenance has begun, by reason, and nodes to take back because it is over."""
    due = {
        name: MARK + window.reason
        for window in config.maintenance
        if window.start <= view.now < window.end
        for name in window.nodes
    }
    drains: dict[str, list[str]] = {}
    resumes = []
    for name in sorted(scope.pools):
        node = view.nodes[name]
        if name in due and node.condition in (NodeCondition.OPEN, NodeCondition.CLOSED):
            drains.setdefault(due[name], []).append(name)
        if name not in due and node.condition is NodeCondition.DRAIN and node.reason.startswith(MARK):
            resumes.append(name)
    return {reason: tuple(names) for reason, names in drains.items()}, tuple(resumes)


def incarnations(decision: Decision, view: View) -> dict[str, int]:
    """Which run of each job the decision speaks of: written down with it, so that a repeated look cannot mistake another."""
    named = [row.workload for row in decision.starts] + [row.workload for row in decision.preemptions]
    return {key: view.jobs[key].incarnation for key in named if key in view.jobs}


def is_waiting(view: View, job: str) -> bool:
    """Whether a job is there and waits."""
    fact = view.jobs.get(job)
    return fact is not None and fact.state is JobState.WAITING
