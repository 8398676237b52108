"""The cluster and its work while a trace is replayed: the state, and the few ways in which it changes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

from allocator.domain import Allocation, Cluster, Reservation, Snapshot, Start, Workload
from allocator.domain.trace import Trace
from allocator.replay.calendar import Calendar, Kind
from allocator.replay.fleet import Fleet
from allocator.replay.lives import FINAL, Life, Outcome, RunRow, run_row
from allocator.replay.meters import CHARGED, DEMAND, UNCHARGED, UNFUNDED, WAITING, Books, HourRow, Key, Meters
from allocator.replay.places import Closures, PlacementRow, placement_rows
from allocator.replay.policy import Idling
from allocator.replay.roster import Roster
from allocator.replay.usage import UsageWindow
from allocator.topology import build_layout, fewest_domains
from allocator.transition import time_so_far

HOUR = 3600
FULL = Fraction(1)
SLOWEST = Fraction(1, 10)
"""However far a gang is spread, it keeps this share of its speed."""


def in_order(budgets: Iterable[Allocation]) -> tuple[Allocation, ...]:
    """Budgets by id, as a canonical snapshot has them: the very same list at every decision."""
    return tuple(sorted(budgets, key=lambda vertex: vertex.id))


class World:
    """All that a replay knows, but for the policy and its decisions. It can be pickled at any tick.

    Attributes
    ----------
    changed
        Whether something has happened since the last decision.
    held_back
        Work whose allocation is no leaf of the budgets in force; it is not shown to the policy.
    due
        Rows of maintenance whose deadline has come since the last decision.
    runs, hours, placements
        The rows of these tables so far.
    closures
        When nodes took no work.
    """

    def __init__(self, trace: Trace, idling: Idling) -> None:
        self.trace = trace
        self.idling = idling
        self.now = trace.start
        self.changed = True
        self.budgets = in_order(trace.budgets)
        self.fleet = Fleet(trace.cluster)
        self.roster = Roster()
        self.usage = UsageWindow(trace.policy, trace.usage)
        self.books = Books(self.budgets, self.fleet.pools)
        self.meters = Meters(trace.start, self.fleet.pools, self.books)
        self.calendar = Calendar()
        self.reservations: tuple[Reservation, ...] = ()
        self.held_back: dict[str, Workload] = {}
        self.due: list[int] = []
        self.lives: dict[str, Life] = {}
        self.runs: list[RunRow] = []
        self.hours: list[HourRow] = []
        self.placements: list[PlacementRow] = []
        self.closures = Closures()
        self._next_hour = (trace.start // HOUR + 1) * HOUR
        self.jobs = {job.workload.id: job for job in trace.jobs}
        self.followers: dict[str, list[str]] = {}
        self._layout = build_layout(Snapshot(now=trace.start, cluster=self.fleet.cluster, budgets=(), workloads=()))
        self._fill_calendar()
        self.meters.see_fleet(self.now, self.fleet.schedulable, self.fleet.idle)
        for name in self.fleet.nodes:
            self._see_node(name)

    def _fill_calendar(self) -> None:
        trace, add = self.trace, self.calendar.add
        for job in trace.jobs:
            if job.after is None:
                add(max(job.workload.submit_time, trace.start), Kind.ARRIVE, job.workload.id)
            else:
                self.followers.setdefault(job.after, []).append(job.workload.id)
        for number, outage in enumerate(trace.outages):
            add(max(outage.start, trace.start), Kind.FAIL, outage.node, number)
            add(outage.end, Kind.REPAIR, outage.node, number)
        for number, row in enumerate(trace.maintenance):
            add(max(row.announced, trace.start), Kind.ANNOUNCE, row.node, number)
            if row.deadline is not None:
                add(row.deadline, Kind.DEADLINE, row.node, number)
            add(row.end, Kind.GIVE_BACK, row.node, number)
        for number, revision in enumerate(trace.revisions):
            add(revision.at, Kind.REVISE, "", number)

    def snapshot(self) -> Snapshot:
        """What a dispatcher would hand over now."""
        return Snapshot(
            now=self.now,
            cluster=self.fleet.cluster,
            budgets=self.budgets,
            workloads=self.roster.in_order(),
            usage=self.usage.records(self.now),
            reservations=self.reservations,
            policy=self.trace.policy,
        )

    def small_snapshot(self, works: tuple[Workload, ...], starts: Iterable[Start] = ()) -> Snapshot:
        """The same for some of the work and its nodes, without budgets and usage: what `apply` needs."""
        names = {name: None for work in works if work.run is not None for name in work.run.placement}
        names |= {name: None for start in starts for name in start.placement}
        cluster = Cluster(levels=self.fleet.cluster.levels, nodes=tuple(map(self.fleet.nodes.__getitem__, names)))
        return Snapshot(now=self.now, cluster=cluster, budgets=(), workloads=works, reservations=self.reservations)

    def pass_time(self, now: int) -> None:
        """Let the clock run up to `now`, reading the meters at every full hour on the way."""
        while self._next_hour <= now:
            self.read_meters(self._next_hour)
            self._next_hour += HOUR
        self.now = now

    def read_meters(self, now: int) -> None:
        """Add the rows since the last reading."""
        self.hours.extend(self.meters.read(now))

    def swap(self, old: Workload | None, new: Workload | None) -> None:
        """Replace a workload on the roster, on the nodes and at the meters."""
        if old is not None and new is not None and _lies_the_same(old, new):
            self.roster.put(new)
            return
        if old is not None:
            self._count(old, -1)
            if old.run is not None:
                self.fleet.take_off(old, old.run.placement)
        if new is not None:
            self._count(new, 1)
            if new.run is not None:
                self.fleet.place(new, new.run.placement)
            self.roster.put(new)
        elif old is not None:
            self.roster.drop(old.id)
        self.see_fleet()

    def see_fleet(self) -> None:
        """Tell the meters how many GPUs are schedulable and idle."""
        self.meters.see_fleet(self.now, self.fleet.schedulable, self.fleet.idle)

    def refresh(self, name: str) -> None:
        """Work out the state of a node after something has happened to it, and tell meters and closures."""
        self.fleet.refresh(name, self.now)
        self._see_node(name)
        self.see_fleet()

    def _see_node(self, name: str) -> None:
        self.closures.see(self.now, name, self.fleet.nodes[name].state, accepts=self.fleet.accepts(name))

    def begin_run(self, work: Workload) -> None:
        """Open the book of a run that has just started."""
        life = self.lives[work.id]
        speed, excess = self._speed(work)
        life.pool = self.key_of(work)[1]
        life.begin(self.now, (speed.numerator, speed.denominator), excess)
        self.calendar.add(self.now + life.length(), Kind.END, work.id, life.runs)

    def end_run(self, work: Workload, how: str, *, notice: bool = True) -> None:
        """Close the book of a run that ends now; `work` still has it."""
        life = self.lives[work.id]
        ended = life.end(self.now, how, notice=notice)
        row = run_row(work, self.key_of(work)[1], self.now, how, ended)
        self.runs.append(row)
        self.placements.extend(placement_rows(work, row.number))
        waste = (row.lost, row.restart, row.checkpoint, row.slow, row.parked, row.dead)
        self.meters.waste(self.key_of(work), tuple(work.gpus * amount for amount in waste))

    def leave(self, work: Workload, how: str) -> None:
        """A run ends by itself: with the job, or the job waits again."""
        self.end_run(work, how, notice=how != Outcome.CRASHED)
        for record in time_so_far(work, self.now, self.fleet.pool_of_node):
            self.usage.add(record)
        if how in FINAL:
            self.swap(work, None)
            self.retire(work.id, how)
        else:
            self.swap(work, replace(work, run=None, entitled_since=None))

    def retire(self, key: str, outcome: str) -> None:
        """A job is gone for good; what waited for its end may come."""
        life = self.lives[key]
        life.ended, life.outcome = self.now, str(outcome)
        for follower in self.followers.get(key, ()):
            self.calendar.add(max(self.jobs[follower].workload.submit_time, self.now), Kind.ARRIVE, follower)

    def key_of(self, work: Workload) -> Key:
        """Allocation and pool under which a workload is metered: the pool where it runs, or its first choice."""
        return work.allocation, self._home(work) if work.run is None else self.fleet.pool_of(work.run.placement)

    def _home(self, work: Workload) -> str:
        """The first accepted pool that exists; none named: the largest."""
        installed = self.fleet.installed
        largest = min(installed, key=lambda pool: (-installed[pool], pool))
        return next((pool for pool in work.pools if pool in installed), largest)

    def _count(self, work: Workload, sign: int) -> None:
        key, gpus, change = self.key_of(work), sign * work.gpus, self.meters.change
        if work.run is None:
            change(self.now, key, WAITING, gpus)
        else:
            change(self.now, key, CHARGED if work.run.charged else UNCHARGED, gpus)
            if work.min_runtime > 0 and not work.run.charged:
                change(self.now, key, UNFUNDED, gpus)
        if work.min_runtime > 0 or (work.run is not None and work.run.charged):
            change(self.now, key, DEMAND, gpus)

    def _speed(self, work: Workload) -> tuple[Fraction, int]:
        """The share of full speed of a run, and by how many domains it is spread beyond the fewest possible."""
        cluster, run = self.fleet.cluster, work.run
        if run is None or len(run.placement) == 1:
            return FULL, 0
        layout = self._layout
        nodes = [layout.index[name] for name in run.placement]
        fewest = fewest_domains(layout, work, int(layout.pool[nodes[0]]))
        speed, excess = FULL, 0
        for level, name in enumerate(cluster.levels):
            further = max(0, len({int(domain) for domain in layout.domain[level, nodes]}) - int(fewest[level]))
            excess += further
            speed -= cluster.slowdown.get(name, Fraction(0)) * further
        return max(speed, SLOWEST), excess


def _lies_the_same(old: Workload, new: Workload) -> bool:
    """Whether nodes and meters see no difference."""
    if old.run is None or new.run is None:
        return old.run is new.run
    return old.run.placement == new.run.placement and old.run.charged == new.run.charged
