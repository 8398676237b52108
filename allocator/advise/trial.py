"""One call of the allocator with one more workload, compared with the same call without it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from allocator.advise.model import Displaced, Effect, Outcome
from allocator.domain import Decision, Snapshot, Workload

Decide = Callable[[Snapshot], Decision]


@dataclass(slots=True)
class Laboratory:
    """Tries requests on one snapshot. `without` is the decision on the snapshot as it is; `calls` counts all decisions."""

    snapshot: Snapshot
    decide: Decide
    without: Decision
    calls: int = 1

    def attempt(self, request: Workload) -> Outcome:
        """What happens if the request is submitted."""
        snapshot = replace(self.snapshot, workloads=(*self.snapshot.workloads, request)).canonical()
        decision = self.decide(snapshot)
        self.calls += 1
        return Outcome(
            snapshot=snapshot,
            decision=decision,
            start=next((row for row in decision.starts if row.workload == request.id), None),
            waiting=next((row for row in decision.waiting if row.workload == request.id), None),
            makes_room=tuple(stop for stop in decision.preemptions if request.id in stop.beneficiaries),
            displaced=tuple(_displaced(self.snapshot, self.without, decision)),
        )


def open_laboratory(snapshot: Snapshot, decide: Decide) -> Laboratory:
    """A laboratory, with the decision that requests are compared with."""
    return Laboratory(snapshot, decide, decide(snapshot))


def _displaced(snapshot: Snapshot, without: Decision, decision: Decision) -> Iterable[Displaced]:
    """What is worse off in the decision than in the one without the request; each workload once, in the order of effects."""
    gpus = {work.id: work.gpus for work in snapshot.workloads}
    running = frozenset(work.id for work in snapshot.workloads if work.run is not None)
    lost = {stop.workload: stop.lost_gpu_seconds for stop in decision.preemptions}
    before, after = _Effects.of(running, without), _Effects.of(running, decision)
    stopped = after.stopped - before.stopped
    found: dict[str, Effect] = {}
    for keys, effect in (
        (stopped - after.started, Effect.STOPS),
        (stopped & after.started, Effect.MOVES),
        (before.holding - after.holding, Effect.WAITS),
        (before.promised - after.promised - before.stopped, Effect.UNPROTECTED),
        (before.reserved_later(after), Effect.RESERVED_LATER),
    ):
        for key in sorted(keys - found.keys()):
            found[key] = effect
    for key, effect in found.items():
        yield Displaced(workload=key, effect=effect, gpus=gpus[key], lost_gpu_seconds=lost[key] if key in stopped else 0)


@dataclass(frozen=True, slots=True)
class _Effects:
    """What a decision does, as sets of ids. `holding`: with GPUs afterwards; `reserved`: start of each reservation."""

    stopped: frozenset[str]
    started: frozenset[str]
    holding: frozenset[str]
    promised: frozenset[str]
    reserved: Mapping[str, int]

    @classmethod
    def of(cls, running: frozenset[str], decision: Decision) -> _Effects:
        stopped = frozenset(stop.workload for stop in decision.preemptions)
        started = frozenset(row.workload for row in decision.starts)
        promised = [row.workload for row in decision.starts if row.charged]
        promised += [row.workload for row in decision.promotions]
        return cls(
            stopped=stopped,
            started=started,
            holding=running - stopped | started,
            promised=frozenset(promised),
            reserved={row.workload: row.start for row in decision.reservations},
        )

    def reserved_later(self, other: _Effects) -> frozenset[str]:
        """Whose reservation starts later in the other decision, or is missing there although it waits."""
        return frozenset(
            key
            for key, start in self.reserved.items()
            if key not in other.holding and (key not in other.reserved or other.reserved[key] > start)
        )
