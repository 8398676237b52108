"""What recorded epochs tell of work: who was there, when it ran, and what its stops threw away.

A run is known by its start. It ended when a usage record of its own says so, one with the id `JOB@BEGIN-END` that `apply` and
the dispatcher write; else when a decision is known to have stopped it; else in the first epoch that no longer shows it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from allocator.domain import Decision, Run, Snapshot, UsageRecord, Workload


@dataclass(slots=True)
class SeenRun:
    """A run as epochs showed it: `since` begins its next usage record, `last` is the last epoch with it, `gone` the first
    without it (None: it still runs)."""

    begin: int
    since: int
    last: int
    gone: int | None = None


@dataclass(slots=True)
class SeenJob:
    """A workload as epochs showed it.

    `lost` gives, by the instant of each decision that stops it, what that throws away, in seconds of the gang; `stopped` the
    instants of those that it is known to have followed. `ordered` is the last decision that starts it. `gone` is the first
    epoch without it, None while it is there.
    """

    first: Workload
    last: int
    gone: int | None = None
    waits: bool = True
    runs: dict[int, SeenRun] = field(default_factory=dict)
    current: SeenRun | None = None
    lost: dict[int, int] = field(default_factory=dict)
    stopped: set[int] = field(default_factory=set)
    ordered: int | None = None


@dataclass(frozen=True, slots=True)
class Spell:
    """A run from `begin` to `end`; `known`: its end is not estimated."""

    begin: int
    end: int
    known: bool


class WorkHistory:
    """Looks at the work epoch by epoch; `jobs` and `rejected` are by id."""

    def __init__(self, start: int) -> None:
        self._start = start
        self._shown: set[str] = set()
        self._read: set[str] = set()
        self._pieces: dict[str, dict[int, int]] = {}
        self.jobs: dict[str, SeenJob] = {}
        self.rejected: set[str] = set()

    def see(self, snapshot: Snapshot, decision: Decision) -> None:
        """One epoch; they come in order of time."""
        now, shown = snapshot.now, {work.id for work in snapshot.workloads}
        for key in self._shown - shown:
            self.jobs[key].gone = now
            _show_run(self.jobs[key], None, now)
        self._shown = shown
        for work in snapshot.workloads:
            self._see_work(work, now)
        self.rejected.update(one.workload for one in snapshot.rejected)
        self._read_usage(snapshot.usage)
        for stop in decision.preemptions:
            self.jobs[stop.workload].lost[now] = stop.lost_gpu_seconds // self.jobs[stop.workload].first.gpus
        for start in decision.starts:
            self.jobs[start.workload].ordered = now

    def spells(self, key: str, end: int) -> list[Spell]:
        """The runs of a job in order of time, those that go on cut at `end`."""
        job, pieces = self.jobs[key], self._pieces.get(key, {})
        found = [_spell(job, run, pieces, end) for run in job.runs.values()]
        found += _unseen(pieces, found)
        started = job.waits and job.ordered == job.last
        if started and job.gone is not None and all(spell.end <= job.last for spell in found):
            found.append(Spell(job.last, job.gone, known=False))
        return sorted((spell for spell in found if spell.begin < spell.end), key=lambda spell: spell.begin)

    def _see_work(self, work: Workload, now: int) -> None:
        job = self.jobs.setdefault(work.id, SeenJob(work, now))
        job.last, job.gone = now, None
        if work.stopped is not None:
            job.stopped.add(work.stopped.at)
        _show_run(job, work.run, now)
        job.waits = job.current is None

    def _read_usage(self, usage: Iterable[UsageRecord]) -> None:
        """Keep what usage records tell of single runs inside the span."""
        for record in usage:
            if record.end <= self._start or record.id is None or record.id in self._read:
                continue
            self._read.add(record.id)
            key, _, interval = record.id.rpartition("@")
            if key and interval == f"{record.start}-{record.end}":
                pieces = self._pieces.setdefault(key, {})
                pieces[record.start] = max(record.end, pieces.get(record.start, 0))


def _show_run(job: SeenJob, run: Run | None, now: int) -> None:
    """Note that a job has this run now, or none."""
    begin = None if run is None else _begin_of(job, run, now)
    if job.current is not None and job.current.begin != begin:
        job.current.gone = now
        job.current = None
    if run is None or begin is None:
        return
    since = begin if run.charged_since is None else run.charged_since
    job.current = job.runs.setdefault(begin, SeenRun(begin, since, now))
    job.current.since, job.current.last, job.current.gone = since, now, None


def _begin_of(job: SeenJob, run: Run, now: int) -> int | None:
    """When a run began; None where it is still to begin, or is the rest of one that a decision has ended.

    One that is given without a start is dated from when it was first seen, as everywhere.
    """
    if run.start_time is None:
        return now if job.current is None else job.current.begin
    if run.start_time > now or (run.terminating_until is not None and run.start_time not in job.runs):
        return None
    return run.start_time


def _spell(job: SeenJob, run: SeenRun, pieces: Mapping[int, int], end: int) -> Spell:
    if run.gone is None:
        return Spell(run.begin, end, known=True)
    ended = _chain(pieces, run.since, job.runs.keys())
    if ended is not None:
        return Spell(run.begin, ended, known=True)
    stopped = [at for at in job.stopped if run.last <= at <= run.gone]
    return Spell(run.begin, min(stopped, default=run.gone), known=bool(stopped))


def _chain(pieces: Mapping[int, int], since: int, begins: Collection[int]) -> int | None:
    """The end of the usage that begins at `since`; what follows it without a gap is the same run, promoted, unless a run of
    its own begins there."""
    at = pieces.get(since)
    while at is not None and at in pieces and at not in begins:
        at = pieces[at]
    return at


def _unseen(pieces: Mapping[int, int], seen: Iterable[Spell]) -> list[Spell]:
    """Runs that began and ended between two epochs, so that only usage tells of them."""
    taken, found, edge = list(seen), list[Spell](), 0
    for begin in sorted(pieces):
        end = _chain(pieces, begin, ())
        if end is None or begin < edge or any(begin < spell.end and spell.begin < end for spell in taken):
            continue
        found.append(Spell(begin, end, known=True))
        edge = end
    return found
