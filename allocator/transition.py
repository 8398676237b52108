"""The next snapshot: what a dispatcher has done once it has carried out a decision. Pure functions of their arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from allocator.domain import (
    Decision,
    Issue,
    LastStop,
    Preemption,
    Promotion,
    Reason,
    Renewal,
    Reservation,
    Run,
    Snapshot,
    SnapshotError,
    Start,
    StopReason,
    UsageRecord,
    Workload,
)


def apply(snapshot: Snapshot, decision: Decision, advance: int = 0) -> Snapshot:
    """The snapshot `advance` seconds after the decision was carried out.

    Stopped work waits again with its submit time as it was, one preemption more and the place it had in `stopped`; started
    work runs from the instant of the decision; a promotion turns the time so far into a record that is not charged. A victim
    of an earlier decision leaves at its `terminating_until`. Nothing else ends by itself: see `finish`.

    Applying a decision to its own result changes nothing. With `advance` 0 nothing but the decision happens: no checkpoint
    is taken, and a gang that starts keeps its `entitled_since`, so that a second call at the same instant sees what the
    first one saw.

    Parameters
    ----------
    snapshot
        What the decision was made for, or what came of it.
    decision
        Its effects are dated at `decision.now`.
    advance
        Seconds that pass afterwards, not negative.

    Raises
    ------
    SnapshotError
        If the decision names unknown work or names some twice, stops what does not run, starts what runs, makes promises
        to what it stops, or is later than the snapshot.
    """
    _check(snapshot, decision, advance)
    state = _State.of(snapshot, decision)
    for stop in decision.preemptions:
        state.stop(stop)
    for start in decision.starts:
        state.start(start)
    for promotion in decision.promotions:
        state.promote(promotion)
    for renewal in decision.renewals:
        state.renew(renewal)
    now = snapshot.now + advance
    state.pass_time(now)
    state.mark(decision)
    return replace(
        snapshot,
        now=now,
        workloads=tuple(state.works.values()),
        usage=(*snapshot.usage, *state.records),
        reservations=tuple(state.still_reserved(snapshot.reservations, decision.reservations, now)),
    ).canonical()


def finish(snapshot: Snapshot, *ids: str) -> Snapshot:
    """The same snapshot after these workloads have ended by themselves or were withdrawn: what they took becomes usage."""
    gone = set(ids)
    pools = _pools(snapshot)
    ended = (work for work in snapshot.workloads if work.id in gone and work.run is not None)
    return replace(
        snapshot,
        workloads=tuple(work for work in snapshot.workloads if work.id not in gone),
        usage=(*snapshot.usage, *(record for work in ended for record in time_so_far(work, snapshot.now, pools))),
        reservations=tuple(held for held in snapshot.reservations if held.workload not in gone),
        rejected=tuple(item for item in snapshot.rejected if item.workload not in gone),
    ).canonical()


def time_so_far(work: Workload, at: int, pools: Mapping[str, str]) -> list[UsageRecord]:
    """What a run has taken up to `at` since it started or was first charged, as at most one record; `pools` are those of nodes.

    The id is made of workload and interval: a record that is written twice counts once.
    """
    run = work.run
    assert run is not None, f"{work.id} does not run"
    since = run.charged_since if run.charged_since is not None else run.start_time
    if since is None or since >= at:
        return []
    return [
        UsageRecord(
            id=f"{work.id}@{since}-{at}",
            allocation=work.allocation,
            pool=_pool_of(run, pools),
            gpus=work.gpus,
            start=since,
            end=at,
            charged=run.charged,
        )
    ]


@dataclass(slots=True)
class _State:
    """The work and the records while a decision is carried out; `works` is keyed by id and changed in place."""

    now: int
    works: dict[str, Workload]
    pools: dict[str, str]
    starts: dict[str, Start]
    records: list[UsageRecord]

    @classmethod
    def of(cls, snapshot: Snapshot, decision: Decision) -> _State:
        works = {work.id: work for work in snapshot.workloads}
        return cls(decision.now, works, _pools(snapshot), {start.workload: start for start in decision.starts}, [])

    def stop(self, row: Preemption) -> None:
        """End a run by decision, unless that has been done."""
        work = self.works[row.workload]
        run = work.run
        if run is None or self._restarted(work, run):
            return
        begun = run.start_time is None or run.start_time <= self.now
        stopped = LastStop(
            at=self.now,
            pool=_pool_of(run, self.pools),
            gpus=work.gpus,
            charged=run.charged,
            placement=dict(run.placement),
            express=run.express and row.reason not in (StopReason.DRAIN, StopReason.NODE_DOWN),
            begun=begun,
        )
        self._end(replace(work, preempted=work.preempted + begun, stopped=stopped), self.now)

    def start(self, row: Start) -> None:
        """Begin a run at the instant of the decision, unless it has begun."""
        work = self.works[row.workload]
        if work.run is not None and _is_start(work.run, row, self.now):
            return
        since = self.now if row.charged else None
        run = Run(
            placement=dict(row.placement),
            charged=row.charged,
            start_time=self.now,
            charged_since=since,
            granted_at=since,
            protected_until=row.protected_until if row.charged else None,
            express=row.express,
        )
        self.works[work.id] = replace(work, run=run)

    def promote(self, row: Promotion) -> None:
        """Charge a run from now on; the time so far was free."""
        work, run = self._running(row.workload)
        if run.charged:
            return
        self.records.extend(time_so_far(work, self.now, self.pools))
        charged = replace(run, charged=True, charged_since=self.now, granted_at=self.now, protected_until=row.protected_until)
        self.works[work.id] = replace(work, run=charged)

    def renew(self, row: Renewal) -> None:
        """Give a lease another promise."""
        work, run = self._running(row.workload)
        self.works[work.id] = replace(work, run=replace(run, granted_at=self.now, protected_until=row.protected_until))

    def pass_time(self, now: int) -> None:
        """What the clock does to runs between the decision and `now`."""
        for work in list(self.works.values()):
            run = work.run
            if run is None:
                continue
            seen = self._seen(run, now)
            until = run.terminating_until
            if until is not None and self.now < until <= now:
                self._end(replace(work, run=seen), until)
                continue
            aged = _with_checkpoint(seen, work.checkpoint_interval, now) if now > self.now else seen
            # The mark of a gang has served once it runs; kept until its next stop it would be a claim too old.
            mark = work.entitled_since if now == self.now else None
            if aged is not run or mark != work.entitled_since:
                self.works[work.id] = replace(work, run=aged, entitled_since=mark)

    def mark(self, decision: Decision) -> None:
        """Carry over since when gangs that wait are entitled; one that has lost its funds loses the mark."""
        for row in decision.waiting:
            work = self.works.get(row.workload)
            if work is None or work.run is not None:
                continue
            lost = row.reason is Reason.UNFUNDED and row.entitled_since is None
            since = None if lost else row.entitled_since or work.entitled_since
            if since != work.entitled_since:
                self.works[work.id] = replace(work, entitled_since=since)
        for held in decision.reservations:
            work = self.works[held.workload]
            if work.run is None and work.entitled_since is None:
                self.works[work.id] = replace(work, entitled_since=held.eligible_since)

    def still_reserved(self, before: Iterable[Reservation], after: Iterable[Reservation], now: int) -> list[Reservation]:
        """Reservations of gangs that still wait; one whose start has come stays, it is due.

        Those of gangs that start at this very instant stay until time passes, as all that is decided from: so nobody takes what
        they were kept in a second decision of the same instant.
        """
        runs = {held.workload: work.run for held in before if (work := self.works.get(held.workload)) is not None}
        begun = [held for held in before if (run := runs.get(held.workload)) is not None and run.start_time == now]
        return [held for held in after if self.works[held.workload].run is None] + begun

    def _seen(self, run: Run, now: int) -> Run:
        """A run that came without a start time is dated from when it was first seen.

        One that was not charged until now only once time has passed: dated at this instant it would look as if it had just
        started.
        """
        free_before = not run.charged or run.charged_since == self.now
        if run.start_time is not None or (free_before and now == self.now):
            return run
        return replace(run, start_time=self.now)

    def _restarted(self, work: Workload, run: Run) -> bool:
        """Whether the run is the restart that this very decision orders, so that the stop before it is done."""
        start = self.starts.get(work.id)
        stopped = work.stopped is not None and work.stopped.at == self.now
        return stopped and start is not None and _is_start(run, start, self.now)

    def _running(self, key: str) -> tuple[Workload, Run]:
        work = self.works[key]
        assert work.run is not None, f"{key} does not run"  # _check has seen to it
        return work, work.run

    def _end(self, work: Workload, at: int) -> None:
        self.records.extend(time_so_far(work, at, self.pools))
        self.works[work.id] = replace(work, run=None)


def _is_start(run: Run, row: Start, now: int) -> bool:
    """Whether a run is what a start asks for."""
    return (
        run.start_time == now
        and run.charged == row.charged
        and run.express == row.express
        and dict(run.placement) == dict(row.placement)
    )


def _with_checkpoint(run: Run, interval: int | None, now: int) -> Run:
    """The run with the last checkpoint it has taken by `now`, one every `interval` seconds."""
    if not interval or run.start_time is None or now - run.start_time < interval:
        return run
    taken = run.start_time + (now - run.start_time) // interval * interval
    last = max(run.last_checkpoint or 0, taken)
    return run if last == run.last_checkpoint else replace(run, last_checkpoint=last)


def _pools(snapshot: Snapshot) -> dict[str, str]:
    return {node.name: node.pool for node in snapshot.cluster.nodes}


def _pool_of(run: Run, pools: Mapping[str, str]) -> str:
    return pools[next(iter(run.placement))]


def _check(snapshot: Snapshot, decision: Decision, advance: int) -> None:
    """Refuse a decision that cannot have been made for the snapshot, with every reason."""
    issues = [*_clock_issues(snapshot, decision, advance), *_row_issues(snapshot, decision)]
    if issues:
        raise SnapshotError(issues)


def _clock_issues(snapshot: Snapshot, decision: Decision, advance: int) -> list[Issue]:
    issues = []
    if decision.now > snapshot.now:
        problem = f"the decision is of {decision.now}, later than the snapshot of {snapshot.now}"
        issues.append(Issue(path="$.now", problem=problem, remedy="apply it to the snapshot it was made for"))
    if advance < 0:
        issues.append(Issue(path="advance", problem=f"{advance} s", remedy="time passes forward: 0 or more"))
    return issues


def _row_issues(snapshot: Snapshot, decision: Decision) -> list[Issue]:
    works = {work.id: work for work in snapshot.workloads}
    nodes = {node.name for node in snapshot.cluster.nodes}
    issues = []
    for name, keys in _named_work(decision):
        for index, key in enumerate(keys):
            work = works.get(key)
            if work is None:
                issues.append(_misfit(f"$.{name}[{index}].workload", f"{key} is not in the snapshot"))
            elif name in _NEEDS_RUN and work.run is None and not (name == "preemptions" and _has_stopped(work, decision)):
                issues.append(_misfit(f"$.{name}[{index}].workload", f"{key} does not run"))
    stopped = {row.workload for row in decision.preemptions}
    issues += _contradictions(decision, stopped)
    for index, row in enumerate(decision.starts):
        run = works[row.workload].run if row.workload in works else None
        if run is not None and row.workload not in stopped and not _is_start(run, row, decision.now):
            issues.append(_misfit(f"$.starts[{index}].workload", f"{row.workload} runs already"))
        if unknown := sorted(set(row.placement) - nodes):
            issues.append(_misfit(f"$.starts[{index}].placement", f"unknown nodes {', '.join(unknown)}"))
    return issues


def _contradictions(decision: Decision, stopped: set[str]) -> Iterable[Issue]:
    """What no snapshot could carry out: the same row twice, and promises to what is stopped."""
    for name, keys in _named_work(decision):
        seen: set[str] = set()
        for index, key in enumerate(keys):
            path = f"$.{name}[{index}].workload"
            if key in seen:
                yield Issue(path=path, problem=f"{key} stands in {name} more than once", remedy="give each workload one row")
            elif name in _PROMISES and key in stopped:
                problem = f"{key} stands in {name}, but is stopped as well"
                yield Issue(path=path, problem=problem, remedy="stop it, or make it a promise")
            seen.add(key)


_PROMISES = frozenset({"promotions", "renewals"})
_NEEDS_RUN = _PROMISES | {"preemptions"}


def _named_work(decision: Decision) -> list[tuple[str, Sequence[str]]]:
    return [
        ("preemptions", [row.workload for row in decision.preemptions]),
        ("starts", [row.workload for row in decision.starts]),
        ("promotions", [row.workload for row in decision.promotions]),
        ("renewals", [row.workload for row in decision.renewals]),
        ("reservations", [row.workload for row in decision.reservations]),
    ]


def _has_stopped(work: Workload, decision: Decision) -> bool:
    """Whether it was stopped at the instant of the decision, by this decision then."""
    return work.stopped is not None and work.stopped.at == decision.now


def _misfit(path: str, problem: str) -> Issue:
    return Issue(path=path, problem=problem, remedy="apply the decision to the snapshot it was made for")
