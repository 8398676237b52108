"""The min-runtime contract read off the snapshot, and who held what just before `now`.

What starts at `now` or later still waited just before; what was stopped at `now` still ran; what was promoted at `now` ran
uncharged. Everything that decides who is owed what is taken from that view, so that a second call at the same instant sees
the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from allocator.domain import Policy, Run, Snapshot, Workload
from allocator.entitlement.columns import NONE, Columns, read_columns
from allocator.entitlement.forced import UNFORCED, Forced
from allocator.entitlement.placements import Placements, read_placements, starts_now_or_later
from allocator.topology import BoolArray, IntArray, Layout, eligible, shape_of

LAST_TRY_STOPS = 3
"""After so many stops, work that cannot resume is promised its whole run."""

LAST_TRY_RUNTIME = 86_400
"""The longest promise of a whole run in seconds, and the one where no max runtime is stated."""

ASSURED_STOPS = 8
"""After so many stops any work is promised its whole run, whatever budgets say."""


@dataclass(frozen=True, slots=True, eq=False)
class Contract:
    """One row per workload; arrays of shape (num_workloads,). Names as in `WorkTable` mean the same.

    Attributes
    ----------
    columns
        What the workloads say of themselves.
    submit, priority, min_runtime, gpus
        As stated.
    assured
        Was stopped so often, by decisions before `now`, that it is promised its whole run without asking for funds.
    unallocated
        States no min runtime, and is not assured: never charged.
    last_try
        Work that cannot resume and was stopped so often that it is promised its whole run, if that is funded.
    whole_run
        Seconds that assured work, and work on its last try, is promised for its whole run; 0 for all other work.
    start
        When the run started, `now` where that is not known; 0 for waiting work.
    terminating, ordered
        Stopped by an earlier decision, and still there; started by an earlier decision for later, and not begun.
    new_promise
        Charged, and the promise was made at `now`.
    stopped_now
        Stopped at `now`.
    waiting_before
        Waited just before `now`.
    held_gpus
        GPUs held just before `now`.
    charged_before, protected_before
        Held GPUs just before `now`, and was charged (and protected by a promise that still counts).
    express_before
        Held GPUs of the express lane just before `now` and had no need to leave.
    """

    submit: IntArray
    priority: IntArray
    min_runtime: IntArray
    gpus: IntArray
    assured: BoolArray
    unallocated: BoolArray
    last_try: BoolArray
    whole_run: IntArray
    running: BoolArray
    run_pool: IntArray
    charged: BoolArray
    start: IntArray
    protected: BoolArray
    protected_until: IntArray
    terminating: BoolArray
    ordered: BoolArray
    fresh: BoolArray
    new_promise: BoolArray
    forced: IntArray
    stopped_now: BoolArray
    held_before: BoolArray
    held_pool: IntArray
    held_gpus: IntArray
    waiting_before: BoolArray
    charged_before: BoolArray
    protected_before: BoolArray
    express_before: BoolArray
    columns: Columns
    placements: Placements
    now: int


def read_contract(snapshot: Snapshot, layout: Layout, columns: Columns | None = None) -> Contract:
    """Promises, forced stops and the view just before `now` of every workload; `columns` are those of its workloads."""
    works, now = snapshot.workloads, snapshot.now
    columns = read_columns(works) if columns is None else columns
    placements = read_placements(columns, layout, now)
    runs = _read_runs(columns, placements, layout, snapshot.policy, now)
    protected = columns.charged & (now < runs.until)
    ordered = columns.running & ~runs.terminating & (runs.start > now)
    forced = np.where(runs.terminating, UNFORCED, _forced_stops(placements, layout, protected))
    forced[_lost_orders(works, layout, runs.terminating, ordered & (forced == UNFORCED))] = Forced.ORDER_LOST
    stops = _read_stops(columns, layout, now)
    ran_before = columns.running & ~runs.fresh
    held_before = ran_before | stops.stopped
    preempted = columns.preempted - stops.stopped
    assured = preempted >= ASSURED_STOPS
    last_try = ~columns.resumable & (assured | ((columns.min_runtime > 0) & (preempted >= LAST_TRY_STOPS)))
    return Contract(
        submit=columns.submit,
        priority=columns.priority,
        min_runtime=columns.min_runtime,
        gpus=columns.gpus,
        assured=assured,
        unallocated=(columns.min_runtime == 0) & ~assured,
        last_try=last_try,
        whole_run=_whole_runs(works, layout, assured, last_try, now),
        running=columns.running,
        run_pool=runs.pool,
        charged=columns.charged,
        start=runs.start,
        protected=protected,
        protected_until=runs.until,
        terminating=runs.terminating,
        ordered=ordered,
        fresh=runs.fresh,
        new_promise=runs.new_promise,
        forced=forced,
        stopped_now=stops.stopped,
        held_before=held_before,
        held_pool=np.where(ran_before, runs.pool, stops.pool),
        held_gpus=np.where(ran_before, columns.gpus, stops.gpus),
        waiting_before=~held_before,
        charged_before=np.where(ran_before, columns.charged & ~runs.promoted, stops.charged),
        protected_before=ran_before & protected & ~runs.new_promise & (forced == UNFORCED),
        express_before=np.where(ran_before, columns.express & (forced == UNFORCED), stops.express),
        columns=columns,
        placements=placements,
        now=now,
    )


def _whole_runs(works: Sequence[Workload], layout: Layout, assured: BoolArray, last_try: BoolArray, now: int) -> IntArray:
    """As `Contract.whole_run`. Assured work that finds only nodes which are to be drained is promised the time until then: else
    it would wait for a day beside nodes that idle."""
    spans = np.zeros(len(works), dtype=np.int64)
    for row in (assured | last_try).nonzero()[0].tolist():
        work = works[row]
        spans[row] = min(work.max_runtime or LAST_TRY_RUNTIME, LAST_TRY_RUNTIME)
        if assured[row]:
            last = int(layout.deadline[eligible(layout, work)].max(initial=now))
            spans[row] = max(1, min(int(spans[row]), last - now))
    return spans


def ordinary_promise(min_runtime: IntArray, policy: Policy) -> IntArray:
    """Seconds that a start is protected for, before the last try: the min runtime, up to the cap."""
    return np.minimum(min_runtime, policy.protection_cap)


def lost_gpu_seconds(work: Workload, run: Run, now: int) -> int:
    """GPU-seconds that a stop at `now` throws away, without the restart."""
    if work.resumable and work.checkpoint_on_notice:
        return 0
    start = now if run.start_time is None else min(run.start_time, now)
    saved = start
    if work.resumable and run.last_checkpoint is not None:
        saved = min(max(start, run.last_checkpoint), now)
    elif work.resumable and work.checkpoint_interval:
        saved = start + (now - start) // work.checkpoint_interval * work.checkpoint_interval
    return work.gpus * (now - saved)


@dataclass(frozen=True, slots=True, eq=False)
class _Runs:
    """The runs of the snapshot, by row."""

    pool: IntArray
    start: IntArray
    until: IntArray
    terminating: BoolArray
    fresh: BoolArray
    promoted: BoolArray
    new_promise: BoolArray


def _read_runs(columns: Columns, placements: Placements, layout: Layout, policy: Policy, now: int) -> _Runs:
    running, charged, stated = columns.running, columns.charged, columns.start
    known, fresh = stated != NONE, starts_now_or_later(columns, now)
    # One that is charged from `now` on ran uncharged before.
    promoted = charged & (columns.charged_since == now) & (stated < now)
    pool = np.full(len(running), -1, dtype=np.int64)
    present = placements.present
    row, node = placements.row[present][::-1], placements.node[present][::-1]
    pool[row] = layout.pool[node]  # of several entries the last is kept, here the first of the run
    return _Runs(
        pool=pool,
        start=np.where(running, np.where(known, stated, now), 0),
        until=_promise_ends(columns, policy, now),
        terminating=columns.leaves != NONE,
        fresh=fresh,
        promoted=promoted,
        new_promise=charged & (fresh | promoted | (columns.granted_at == now)),
    )


def _promise_ends(columns: Columns, policy: Policy, now: int) -> IntArray:
    """Until when each run is protected, 0 where it never was. A recorded promise counts, whatever the policy says by now."""
    assured = (columns.preempted >= ASSURED_STOPS) & (columns.min_runtime == 0)
    promise = np.where(assured, LAST_TRY_RUNTIME, ordinary_promise(columns.min_runtime, policy))
    start = columns.start
    made = np.full_like(start, now)
    for moment in (start, columns.charged_since, columns.granted_at):  # the last that is known
        made = np.where(moment == NONE, made, moment)
    until = np.where(columns.protected_until == NONE, made + promise, columns.protected_until)
    stale = (until <= now) & (now < start)
    return np.where(columns.charged, np.where(stale, start + promise, until), 0)


@dataclass(slots=True, eq=False)
class _Stops:
    """What was stopped at `now`, by row."""

    stopped: BoolArray
    charged: BoolArray
    express: BoolArray
    pool: IntArray
    gpus: IntArray


def _read_stops(columns: Columns, layout: Layout, now: int) -> _Stops:
    num = len(columns.works)
    no, pool, gpus = np.zeros(num, dtype=bool), np.full(num, -1, dtype=np.int64), np.zeros(num, dtype=np.int64)
    stops = _Stops(no, no.copy(), no.copy(), pool, gpus)
    for row in (columns.stopped_at == now).nonzero()[0].tolist():
        stop = columns.works[row].stopped
        if stop is None or stop.pool not in layout.pools:
            continue
        stops.stopped[row] = True
        stops.charged[row] = stop.charged
        stops.express[row] = stop.express
        stops.pool[row] = layout.pools.index(stop.pool)
        stops.gpus[row] = stop.gpus
    return stops


def _forced_stops(placements: Placements, layout: Layout, protected: BoolArray) -> IntArray:
    """Why each run must stop, a `Forced` code: the first reason that applies, a dead node before a drain."""
    forced = np.full(len(protected), UNFORCED, dtype=np.int64)
    present = placements.present
    row, node = placements.row[present], placements.node[present]
    on_leaving = row[layout.leaving[node]]
    forced[on_leaving[~protected[on_leaving]]] = Forced.DRAIN
    forced[row[layout.expired[node]]] = Forced.DRAIN_DEADLINE
    forced[row[layout.down[node]]] = Forced.NODE_DOWN
    return forced


def _lost_orders(works: Sequence[Workload], layout: Layout, terminating: BoolArray, ordered: BoolArray) -> list[int]:
    """Ordered starts that relied on the place of a victim which has not left in time: they do not fit beside it."""
    if not (layout.overdue.any() and ordered.any()):
        return []
    used, late = np.zeros_like(layout.capacity), np.zeros_like(layout.capacity)
    for row, work in enumerate(works):
        if work.run is not None:
            to = late if terminating[row] else used
            for name, tasks in work.run.placement.items():
                to[:, layout.index[name]] += np.array(shape_of(work)) * tasks
    short = layout.overdue & (used + late > layout.capacity).any(axis=0)
    runs = ((row, works[row].run) for row in ordered.nonzero()[0].tolist())
    return [row for row, run in runs if run is not None and any(short[layout.index[name]] for name in run.placement)]
