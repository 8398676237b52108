"""`priority_optout`: the scheduler that budgets of time replaced, as its users described it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from allocator.domain import Decision, NodeState, Promotion, Snapshot, Start, StopReason, Workload
from allocator.replay.baselines.priority_classes import began
from allocator.replay.baselines.teams import Teams, TeamsOf
from allocator.replay.baselines.yard import Placement, Resident, Yard, first_come, limit_of, take
from allocator.replay.policy import Idling, plain_decision
from allocator.topology import BoolArray, IntArray

HIGH = 1_000
PATIENCE = 3_600
CAP = 1.0


@dataclass
class PriorityOptOut:
    """Priority levels, and opting out of preemption up to a cap of GPUs for each team.

    - Work has the priority that its user gave it, until it has waited for `patience` seconds or was stopped once: then its
      user calls it HIGH, as everybody does.
    - A team may hold `cap` of its part of a pool as non-preemptible GPUs (charged, and promised to the end), and takes that
      whenever it can; work with no min runtime does not count. What does not fit under the cap runs preemptible, free of
      charge, and is opted out in place once there is room. A gang larger than the cap is always preemptible.
    - Non-preemptible work stops preemptible work to start: the lowest priority first, of it what began last. Preemptible
      work stops only preemptible work of lower priority, which after a while there is none of.
    - Sessions stay parked on their GPUs. Non-preemptible work on a draining node stays until a person stops it.
    """

    name: str = "priority_optout"
    idling: Idling = Idling.ALWAYS
    cap: float = CAP
    patience: int = PATIENCE
    _yard: Yard = field(default_factory=Yard, repr=False)
    _teams_of: TeamsOf = field(default_factory=TeamsOf, repr=False)

    def decide(self, snapshot: Snapshot, previous: Decision | None) -> Decision:
        """From the highest priority down, opted out where there is room under the cap."""
        yard = self._yard
        yard.see(snapshot)
        epoch = _Epoch(yard, self._teams_of(snapshot.budgets), self.cap, self.patience)
        drained = list(_on_draining_nodes(snapshot, yard))
        for resident in drained:
            epoch.stops[resident.work.id] = ""
        starts = list(epoch.start_all())
        rows = [
            (victim, StopReason.SHARE if winner else StopReason.DRAIN, (winner,) if winner else ())
            for victim, winner in epoch.stops.items()
        ]
        promotions = list(epoch.promote_all())
        return plain_decision(snapshot, self.name, starts, rows, promotions)

    def wake(self, snapshot: Snapshot, decision: Decision) -> int | None:
        """What was stopped may fit elsewhere; and who has waited long enough calls his work HIGH."""
        if decision.preemptions:
            return snapshot.now + 1
        started = {row.workload for row in decision.starts}
        moments = [
            work.submit_time + self.patience
            for work in snapshot.workloads
            if work.run is None and work.id not in started and work.submit_time + self.patience > snapshot.now
        ]
        return min(moments, default=None)


def _on_draining_nodes(snapshot: Snapshot, yard: Yard) -> Iterable[Resident]:
    """Preemptible work on nodes that are wanted empty."""
    wanted = {
        node.name
        for node in snapshot.cluster.nodes
        if node.state is NodeState.DRAIN or (node.drain_deadline is not None and node.drain_deadline <= snapshot.now)
    }
    if wanted:
        for resident in yard.residents.values():
            run = resident.work.run
            if run is not None and not opted_out(resident.work) and not wanted.isdisjoint(run.placement):
                yield resident


def opted_out(work: Workload) -> bool:
    """Whether running work is non-preemptible."""
    return work.run is not None and work.run.charged


class _Epoch:
    """One decision: what is still free, what teams hold, and what is stopped for whom."""

    def __init__(self, yard: Yard, teams: Teams, cap: float, patience: int) -> None:
        self.stops: dict[str, str] = {}
        self._yard, self._teams, self._patience = yard, teams, patience
        self._free: IntArray = yard.free.copy()
        self._cap = cap
        self._held: dict[tuple[str, int], int] = {}
        for resident in yard.residents.values():
            if opted_out(resident.work):
                self._hold(resident.work, int(resident.nodes[0]))
        soft = [one for one in yard.residents.values() if not opted_out(one.work)]
        self._soft = sorted(soft, key=lambda one: (self._level(one.work), -began(one), one.work.id))
        pool = yard.layout.pool
        self._installed = [int(yard.layout.capacity[0, pool == index].sum()) for index in range(len(yard.layout.pools))]

    def start_all(self) -> Iterable[Start]:
        """Starts in the order of priority, then submission. What has failed fails again for work of the same kind."""
        hard: set[tuple[str, int]] = set()
        soft: set[tuple[int, int]] = set()
        for work in sorted(self._yard.waiting, key=lambda work: (-self._level(work), *first_come(work))):
            kind = self._yard.kind(work)
            key, level = (self._teams.team_of(work.allocation), kind), self._level(work)
            start = self._opt_out(work) if work.min_runtime and key not in hard else None
            if start is None and work.min_runtime:
                hard.add(key)
            if start is None and (level, kind) not in soft:
                start = self._preemptible(work, level)
            if start is None:
                soft.add((level, kind))
            else:
                yield start

    def _level(self, work: Workload) -> int:
        """The priority that its user claims by now."""
        impatient = self._yard.now - work.submit_time >= self._patience or work.preempted > 0
        return HIGH if impatient else work.priority

    def _opt_out(self, work: Workload) -> Start | None:
        """Start as non-preemptible, in a pool where the team has room under its cap."""
        pools = [pool for pool in range(len(self._yard.layout.pools)) if self._under_cap(work, pool)]
        if not pools:
            return None
        found = self._room(work, HIGH + 1, np.isin(self._yard.layout.pool, pools))
        if found is None:
            return None
        self._carry_out(work, *found)
        self._hold(work, next(iter(found[1])))
        return self._yard.start(work, found[1], until=self._yard.now + limit_of(work))

    def promote_all(self) -> Iterator[Promotion]:
        """Running work that is opted out in place, now that its team has room: what began first comes first."""
        left = [one for one in self._soft if one.work.min_runtime and one.work.id not in self.stops]
        for resident in sorted(left, key=lambda one: (began(one), one.work.id)):
            node = int(resident.nodes[0])
            if self._under_cap(resident.work, int(self._yard.layout.pool[node])):
                self._hold(resident.work, node)
                until = self._yard.now + limit_of(resident.work)
                yield Promotion(workload=resident.work.id, protected_until=until)

    def _under_cap(self, work: Workload, pool: int) -> bool:
        """Whether the team may hold this much more non-preemptible in a pool."""
        name = self._yard.layout.pools[pool]
        team = self._teams.team_of(work.allocation)
        allowed = int(self._cap * self._teams.part(team, name) * self._installed[pool])
        return self._held.get((team, pool), 0) + work.gpus <= allowed

    def _preemptible(self, work: Workload, level: int) -> Start | None:
        """Start as preemptible."""
        found = self._room(work, level)
        if found is None:
            return None
        self._carry_out(work, *found)
        names = self._yard.start(work, found[1]).placement
        return Start(workload=work.id, placement=names, charged=False, protected_until=None)

    def _room(self, work: Workload, level: int, only: BoolArray | None = None) -> tuple[list[Resident], Placement] | None:
        """Whom of the preemptible work below a level to stop, and where the work then lies."""
        placement = self._yard.place(work, self._free, only)
        if placement is not None:
            return [], placement
        victims = [one for one in self._soft if self._level(one.work) < level and one.work.id not in self.stops]
        return self._yard.make_room(work, victims, self._free, only) if victims else None

    def _carry_out(self, work: Workload, victims: list[Resident], placement: Placement) -> None:
        for victim in victims:
            self.stops[victim.work.id] = work.id
            self._free[:, victim.nodes] += victim.amounts
        take(self._free, work, placement)

    def _hold(self, work: Workload, node: int) -> None:
        key = self._teams.team_of(work.allocation), int(self._yard.layout.pool[node])
        self._held[key] = self._held.get(key, 0) + work.gpus
