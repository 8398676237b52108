"""The policy of production: `allocate`, as a dispatcher would call it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from allocator.domain import Decision, NodeState, Snapshot
from allocator.engine import Session, allocate
from allocator.replay.policy import Idling


@dataclass(frozen=True, slots=True)
class Budgets:
    """Calls `allocate` with one engine, or the portfolio.

    Parameters
    ----------
    drift
        While work waits, time alone changes what is owed to whom; so many seconds later it is worth another look.
    engine, time_limit, gap, seed
        As of `allocate`.
    session
        What one epoch passes on to the next; it saves time and changes no answer.
    """

    name: str
    engine: str
    drift: int = 300
    time_limit: float = 10.0
    gap: float = 0.0
    seed: int = 0
    idling: Idling = Idling.PROMISE
    session: Session = field(default_factory=Session, compare=False, repr=False)

    def decide(self, snapshot: Snapshot, previous: Decision | None) -> Decision:
        """One epoch of production."""
        return allocate(
            snapshot,
            time_limit=self.time_limit,
            engine=self.engine,
            seed=self.seed,
            gap=self.gap,
            previous=previous,
            session=self.session,
            explain=False,
        )

    def wake(self, snapshot: Snapshot, decision: Decision) -> int | None:
        """When a promise, a lease or a reservation comes to its end; the drift; and the next instant after a stop.

        While nothing waits and no node drains, only leases can change by themselves.
        """
        now, waits = snapshot.now, _waits(snapshot, decision)
        contested = waits or any(node.state is NodeState.DRAIN for node in snapshot.cluster.nodes)
        moments = [until for until, renew in _promises(snapshot, decision) if until > now and (contested or renew)]
        moments += [held.start for held in decision.reservations if held.start > now]
        if waits or any(w.run is not None and not w.run.charged and w.min_runtime > 0 for w in snapshot.workloads):
            moments.append(now + self.drift)
        if decision.preemptions and waits:
            moments.append(now + 1)  # what was stopped now may start again, and others are owed its place
        return min(moments, default=None)


def _waits(snapshot: Snapshot, decision: Decision) -> bool:
    """Whether anything waits after the decision."""
    started = {row.workload for row in decision.starts}
    stopped = {row.workload for row in decision.preemptions}
    return bool(stopped - started) or any(work.run is None and work.id not in started for work in snapshot.workloads)


def _promises(snapshot: Snapshot, decision: Decision) -> Iterator[tuple[int, bool]]:
    """Ends of the promises that hold after the decision, and whether each is of a lease."""
    renews = {work.id for work in snapshot.workloads if work.renew}
    made = [(row.workload, row.protected_until) for row in decision.starts]
    made += [(row.workload, row.protected_until) for row in decision.promotions]
    made += [(row.workload, row.protected_until) for row in decision.renewals]
    yield from ((until, key in renews) for key, until in made if until is not None)
    stopped = {row.workload for row in decision.preemptions}
    for work in snapshot.workloads:
        if work.run is not None and work.run.protected_until is not None and work.id not in stopped:
            yield work.run.protected_until, work.renew
