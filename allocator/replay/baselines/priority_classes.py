"""`priority_classes`: one pool of work, and a higher class stops and requeues lower ones."""

from __future__ import annotations

from dataclasses import dataclass, field

from allocator.domain import Decision, Snapshot, Start, StopReason, Workload
from allocator.replay.baselines.yard import Resident, Yard, first_come, take
from allocator.replay.policy import Idling, plain_decision
from allocator.topology import IntArray


@dataclass
class PriorityClasses:
    """The class is the declared priority; inside one, the order of submission. Shares mean nothing.

    Work that does not fit is passed over by smaller work behind it, so a large gang of the lowest class starves while there
    is small work; one of a higher class takes what it needs from lower ones: the lowest class first, of it the work that
    has run the shortest.
    """

    name: str = "priority_classes"
    idling: Idling = Idling.ALWAYS
    _yard: Yard = field(default_factory=Yard, repr=False)

    def decide(self, snapshot: Snapshot, previous: Decision | None) -> Decision:
        """From the highest class down."""
        yard = self._yard
        yard.see(snapshot)
        free, starts, stops = yard.free.copy(), list[Start](), dict[str, str]()
        failed: set[tuple[int, int]] = set()
        for work in sorted(yard.waiting, key=lambda work: (-work.priority, *first_come(work))):
            kind = (work.priority, yard.kind(work))
            if kind in failed:
                continue
            start = self._start(work, free, stops)
            if start is None:
                failed.add(kind)
            else:
                starts.append(start)
        rows = [(victim, StopReason.SHARE, (winner,)) for victim, winner in stops.items()]
        return plain_decision(snapshot, self.name, starts, rows)

    def _start(self, work: Workload, free: IntArray, stops: dict[str, str]) -> Start | None:
        """Start on what is free, or on what lower classes hold. `free` and `stops` are written to."""
        yard = self._yard
        placement = yard.place(work, free)
        if placement is None:
            found = yard.make_room(work, lower(yard, work.priority, stops), free)
            if found is None:
                return None
            victims, placement = found
            for victim in victims:
                stops[victim.work.id] = work.id
                free[:, victim.nodes] += victim.amounts
        take(free, work, placement)
        return yard.start(work, placement)

    def wake(self, snapshot: Snapshot, decision: Decision) -> int | None:
        """What was stopped may fit elsewhere."""
        return snapshot.now + 1 if decision.preemptions else None


def lower(yard: Yard, priority: int, stopped: dict[str, str]) -> list[Resident]:
    """Running work of lower classes that is not stopped yet: the lowest first, of them those that began last."""
    victims = [
        one for one in yard.residents.values() if one.work.priority < priority and one.work.id not in stopped
    ]  # fmt: skip
    return sorted(victims, key=lambda one: (one.work.priority, -began(one), one.work.id))


def began(resident: Resident) -> int:
    """When it started."""
    run = resident.work.run
    return 0 if run is None or run.start_time is None else run.start_time
