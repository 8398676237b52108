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
from allocator.entitlement.model import Forced
from allocator.topology import BoolArray, IntArray, Layout, shape_of

LAST_TRY_STOPS = 3
"""After so many stops, work that cannot resume is promised its whole run."""

LAST_TRY_RUNTIME = 86_400
"""The longest such promise in seconds, and the one where no max runtime is stated."""


@dataclass(frozen=True, slots=True, eq=False)
class Placements:
    """Where runs lie, one entry for each node of each run, and of each run that was stopped at `now` if that is known.

    Attributes
    ----------
    row, node, gpus
        The workload, the node, and its GPUs there. Shape (num_entries,).
    before
        True if it lay there just before `now`.
    present
        True if it lies there now.
    """

    row: IntArray
    node: IntArray
    gpus: IntArray
    before: BoolArray
    present: BoolArray


@dataclass(frozen=True, slots=True, eq=False)
class Contract:
    """One row per workload; arrays of shape (num_workloads,). Names as in `WorkTable` mean the same.

    Attributes
    ----------
    submit, priority, min_runtime, gpus
        As stated.
    last_try
        Work that cannot resume and was stopped so often, by decisions before `now`, that it is to run to its end.
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
    last_try: BoolArray
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
    placements: Placements
    now: int


def read_contract(snapshot: Snapshot, layout: Layout) -> Contract:
    """Promises, forced stops and the view just before `now` of every workload."""
    works, now = snapshot.workloads, snapshot.now
    runs = _read_runs(works, layout, snapshot.policy, now)
    placements = read_placements(works, layout, now)
    protected = runs.charged & (now < runs.until)
    ordered = runs.running & ~runs.terminating & (runs.start > now)
    forced = np.where(runs.terminating, Forced.NONE, _forced_stops(placements, layout, protected))
    forced[_lost_orders(works, layout, runs.terminating, ordered & (forced == Forced.NONE))] = Forced.ORDER_LOST
    stops = _read_stops(works, layout, now)
    gpus = _ints([work.gpus for work in works])
    ran_before = runs.running & ~runs.fresh
    held_before = ran_before | stops.stopped
    preempted = _ints([work.preempted for work in works]) - stops.stopped
    min_runtime = _ints([work.min_runtime for work in works])
    return Contract(
        submit=_ints([work.submit_time for work in works]),
        priority=_ints([work.priority for work in works]),
        min_runtime=min_runtime,
        gpus=gpus,
        last_try=(min_runtime > 0) & (preempted >= LAST_TRY_STOPS) & ~_bools([work.resumable for work in works]),
        running=runs.running,
        run_pool=runs.pool,
        charged=runs.charged,
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
        held_gpus=np.where(ran_before, gpus, stops.gpus),
        waiting_before=~held_before,
        charged_before=np.where(ran_before, runs.charged & ~runs.promoted, stops.charged),
        protected_before=ran_before & protected & ~runs.new_promise & (forced == Forced.NONE),
        express_before=np.where(ran_before, runs.express & (forced == Forced.NONE), stops.express),
        placements=placements,
        now=now,
    )


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


@dataclass(slots=True, eq=False)
class _Runs:
    """The runs of the snapshot, by row."""

    running: BoolArray
    pool: IntArray
    charged: BoolArray
    start: IntArray
    until: IntArray
    terminating: BoolArray
    fresh: BoolArray
    promoted: BoolArray
    new_promise: BoolArray
    express: BoolArray


def _read_runs(works: Sequence[Workload], layout: Layout, policy: Policy, now: int) -> _Runs:
    num = len(works)
    flags = [np.zeros(num, dtype=bool) for _ in range(7)]
    numbers = [np.full(num, -1, dtype=np.int64), *(np.zeros(num, dtype=np.int64) for _ in range(2))]
    runs = _Runs(flags[0], numbers[0], flags[1], numbers[1], numbers[2], *flags[2:])
    for row, work in enumerate(works):
        run = work.run
        if run is None:
            continue
        runs.running[row] = True
        runs.pool[row] = layout.pool[layout.index[next(iter(run.placement))]]
        runs.charged[row] = run.charged
        runs.start[row] = now if run.start_time is None else run.start_time
        runs.until[row] = _promise_end(work, run, policy, now)
        runs.terminating[row] = run.terminating_until is not None
        runs.fresh[row] = _is_fresh(run, now)
        runs.promoted[row] = _is_promoted(run, now)
        runs.new_promise[row] = run.charged and (runs.fresh[row] or runs.promoted[row] or run.granted_at == now)
        runs.express[row] = run.express
    return runs


def _promise_end(work: Workload, run: Run, policy: Policy, now: int) -> int:
    """Until when the run is protected, 0 where it never was. A recorded promise counts, whatever the policy says by now."""
    if not run.charged:
        return 0
    promise = min(work.min_runtime, policy.protection_cap)
    until = run.protected_until
    if until is None:
        known = (moment for moment in (run.granted_at, run.charged_since, run.start_time) if moment is not None)
        until = next(known, now) + promise
    if run.start_time is not None and until <= now < run.start_time:
        return run.start_time + promise
    return until


def _is_fresh(run: Run, now: int) -> bool:
    """Whether the run starts at `now` by decision, or later: just before `now` it waited."""
    if run.start_time is None or run.start_time < now:
        return False
    return run.start_time > now or run.granted_at == now or not run.charged


def _is_promoted(run: Run, now: int) -> bool:
    """Whether the run is charged from `now` on, and ran uncharged before."""
    return run.charged and run.charged_since == now and (run.start_time is None or run.start_time < now)


@dataclass(slots=True, eq=False)
class _Stops:
    """What was stopped at `now`, by row."""

    stopped: BoolArray
    charged: BoolArray
    express: BoolArray
    pool: IntArray
    gpus: IntArray


def _read_stops(works: Sequence[Workload], layout: Layout, now: int) -> _Stops:
    num = len(works)
    no, pool, gpus = np.zeros(num, dtype=bool), np.full(num, -1, dtype=np.int64), np.zeros(num, dtype=np.int64)
    stops = _Stops(no, no.copy(), no.copy(), pool, gpus)
    for row, work in enumerate(works):
        stop = work.stopped
        if stop is None or stop.at != now or not stop.begun or stop.pool not in layout.pools:
            continue
        stops.stopped[row] = True
        stops.charged[row] = stop.charged
        stops.express[row] = stop.express
        stops.pool[row] = layout.pools.index(stop.pool)
        stops.gpus[row] = stop.gpus
    return stops


def read_placements(works: Sequence[Workload], layout: Layout, now: int) -> Placements:
    """Where work lies now, and where it lay just before."""
    entries: list[tuple[int, int, int, bool, bool]] = []
    index = layout.index
    for row, work in enumerate(works):
        run, stop = work.run, work.stopped
        if run is not None:
            before = not _is_fresh(run, now)
            entries += [(row, index[name], n * work.gpus_per_task, before, True) for name, n in run.placement.items()]
        if stop is not None and stop.at == now and stop.begun and stop.placement is not None:
            known = [(index[name], n) for name, n in stop.placement.items() if name in index]
            entries += [(row, node, n * work.gpus_per_task, True, False) for node, n in known]
    table = np.array(entries, dtype=np.int64).reshape(len(entries), 5)
    return Placements(table[:, 0], table[:, 1], table[:, 2], table[:, 3] > 0, table[:, 4] > 0)


def _forced_stops(placements: Placements, layout: Layout, protected: BoolArray) -> IntArray:
    """Why each run must stop, a `Forced` code: the first reason that applies, a dead node before a drain."""
    forced = np.full(len(protected), Forced.NONE, dtype=np.int64)
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
    runs = ((row, works[row].run) for row in np.flatnonzero(ordered).tolist())
    return [row for row, run in runs if run is not None and any(short[layout.index[name]] for name in run.placement)]


def _ints(values: list[int]) -> IntArray:
    return np.array(values, dtype=np.int64)


def _bools(values: list[bool]) -> BoolArray:
    return np.array(values, dtype=bool)
