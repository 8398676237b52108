"""What a replay plays against: a policy decides, the replay carries it out.

A baseline is a small class with the members of `SchedulingPolicy`. It may build its decisions with `plain_decision`, and it
is registered under its name in `allocator.replay.baselines.BASELINES`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Protocol, runtime_checkable

from allocator.domain import (
    Decision,
    NodeState,
    Preemption,
    Promotion,
    Snapshot,
    SolverReport,
    Start,
    StopReason,
    Workload,
)
from allocator.entitlement.contract import lost_gpu_seconds


class Idling(StrEnum):
    """How long a session that has done its work may keep its GPUs (`Job.idle` says how long its user would)."""

    NEVER = "never"
    PROMISE = "promise"
    ALWAYS = "always"


@runtime_checkable
class SchedulingPolicy(Protocol):
    """Decides at a tick.

    A policy may remember things between calls; all it remembers has to survive `pickle`, because the checkpoint of a replay
    holds the policy. The same snapshots in the same order have to give the same decisions: no clock, no unseeded chance.
    `name` and `idling` may be plain attributes.
    """

    @property
    def name(self) -> str:
        """As in `--policy NAME`."""
        ...

    @property
    def idling(self) -> Idling:
        """Whether sessions keep GPUs that they do not use: `NEVER`; only until their promise ends (`PROMISE`); for as long as
        they like, unless they are stopped (`ALWAYS`)."""
        ...

    def decide(self, snapshot: Snapshot, previous: Decision | None) -> Decision:
        """Decide for the cluster as it is at `snapshot.now`.

        Parameters
        ----------
        snapshot
            Workloads sorted by id. What waits has `run` None. Usage is given as one record for each allocation, pool and
            kind that holds the exact sum of the window, not as the history.
        previous
            The decision before this one, None at the first call.

        Returns
        -------
        Only `starts`, `preemptions`, `promotions`, `renewals`, `reservations` and the `entitled_since` of `waiting` are
        carried out, all of them at `snapshot.now`. Work on nodes that are down has to be stopped (`plain_decision` does it).
        The replay refuses what is physically impossible (`allocator.verify.physical`).
        """
        ...

    def wake(self, snapshot: Snapshot, decision: Decision) -> int | None:
        """The first instant after `snapshot.now` at which it might decide otherwise although nothing has happened by then.

        Arrivals, ends, failures, repairs, drains and revisions lead to a decision anyhow. None: time alone changes nothing.
        """
        ...


def plain_decision(
    snapshot: Snapshot,
    policy: str,
    starts: Iterable[Start] = (),
    stops: Iterable[tuple[str, StopReason, tuple[str, ...]]] = (),
    promotions: Iterable[Promotion] = (),
) -> Decision:
    """A decision of a policy that proves nothing.

    Parameters
    ----------
    policy
        Name of the policy.
    stops
        Workload, reason and beneficiaries of each stop. Work on dead nodes is added where it is not named.
    """
    stops = list(stops)
    dead = {work.id: work for work in work_on_dead_nodes(snapshot)}
    works = {work.id: work for work in snapshot.workloads} if stops else dead
    named = {workload for workload, _, _ in stops}
    forced = [(workload, StopReason.NODE_DOWN, ()) for workload in dead if workload not in named]
    return Decision(
        now=snapshot.now,
        snapshot="",
        solver=SolverReport(rung=policy, engine=policy, status="feasible", objective=0, bound=None, gap=None, terms={}, seed=0),
        starts=tuple(starts),
        preemptions=tuple(_preemption(works[key], reason, whom, snapshot.now) for key, reason, whom in (*forced, *stops)),
        promotions=tuple(promotions),
    )


def work_on_dead_nodes(snapshot: Snapshot) -> Iterator[Workload]:
    """Running work with a node that is down."""
    dead = NodeState.DOWN
    down = {node.name for node in snapshot.cluster.nodes if node.state is dead}
    if down:
        yield from (work for work in snapshot.workloads if work.run is not None and not down.isdisjoint(work.run.placement))


def _preemption(work: Workload, reason: StopReason, beneficiaries: tuple[str, ...], now: int) -> Preemption:
    assert work.run is not None, f"{work.id} does not run"
    lost = lost_gpu_seconds(work, work.run, now)
    return Preemption(workload=work.id, reason=reason, beneficiaries=beneficiaries, lost_gpu_seconds=lost, stop_by=now)
