"""What workloads say of themselves, as columns: nothing here depends on the clock, the nodes or the budgets.

A workload is immutable, so its row is read once, however many epochs it takes part in.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from allocator.domain import Run, Unfunded, Workload
from allocator.entitlement.requests import request_of
from allocator.topology import UNLIMITED, BoolArray, IntArray, shape_of

NONE = -(1 << 62)
"""Stands for an instant that is not known."""

MOST_NODES = 1 << 18
"""With more nodes numbered than this, most have gone: numbering begins anew."""

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Numberings:
    """How requests, allocations, lists of pools and nodes are numbered in `Columns`: in the order in which they first came."""

    request: dict[Hashable, int] = field(default_factory=dict)
    allocation: dict[str, int] = field(default_factory=dict)
    pools: dict[tuple[str, ...], int] = field(default_factory=dict)
    node: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Arrays of shape (num_workloads,) unless stated. Instants in seconds, NONE where they are not stated.

    Attributes
    ----------
    works
        The workloads, in canonical order.
    numbering
        What the numbers in `request`, `allocation`, `pools` and `cells` stand for; there may be more than these workloads name.
    submit, priority, min_runtime, gpus, restart_time, preempted, entitled_since
        As stated; GPUs of the whole gang.
    shape
        GPUs, CPUs and GiB of a task, at most UNLIMITED, shape (3, num_workloads).
    interval
        Seconds between checkpoints, 0 where it takes none or cannot resume.
    saves
        Can resume, and saves its work on notice.
    charged, express, start, charged_since, granted_at, protected_until, checkpoint, leaves
        Of the run: `checkpoint` is the last one, `leaves` until when it is terminating.
    stopped_at, taken_off_at
        When it was last stopped by a decision after it had begun, and whether or not it had.
    cells
        Where runs lie: row, number of the node and tasks there, shape (3, num_cells), the rows ascending.
    """

    works: tuple[Workload, ...]
    numbering: Numberings
    table: IntArray
    request: IntArray
    allocation: IntArray
    pools: IntArray
    submit: IntArray
    priority: IntArray
    min_runtime: IntArray
    gpus: IntArray
    shape: IntArray
    restart_time: IntArray
    preempted: IntArray
    entitled_since: IntArray
    interval: IntArray
    start: IntArray
    charged_since: IntArray
    granted_at: IntArray
    protected_until: IntArray
    checkpoint: IntArray
    leaves: IntArray
    stopped_at: IntArray
    taken_off_at: IntArray
    resumable: BoolArray
    saves: BoolArray
    renew: BoolArray
    runs_unfunded: BoolArray
    running: BoolArray
    charged: BoolArray
    express: BoolArray
    index: Mapping[str, int]
    cells: IntArray

    def by_allocation(self, answer: Callable[[str], int]) -> IntArray:
        """The answer for the allocation of each workload, asked once for each allocation."""
        return _by_number(self.numbering.allocation, answer, self.allocation)

    def by_pools(self, answer: Callable[[tuple[str, ...]], int]) -> IntArray:
        """The same for the list of pools that each workload names."""
        return _by_number(self.numbering.pools, answer, self.pools)


def _by_number(numbering: Mapping[Key, int], answer: Callable[[Key], int], numbers: IntArray) -> IntArray:
    answers = np.fromiter(map(answer, numbering), np.int64, len(numbering))
    return answers[numbers]


def read_columns(works: tuple[Workload, ...], like: Columns | None = None) -> Columns:
    """The columns of workloads in canonical order; rows of workloads that stand in `like` are taken from it."""
    if like is not None and like.works == works:
        return like
    if like is None or _is_crowded(like.numbering, len(works)):
        return _columns(works, Numberings(), None)
    return _columns(works, like.numbering, like)


def _is_crowded(numbering: Numberings, num_works: int) -> bool:
    """Whether most numbers stand for what is gone."""
    by_work = max(len(numbering.request), len(numbering.allocation), len(numbering.pools))
    return by_work > 1024 + 2 * num_works or len(numbering.node) > MOST_NODES


def _columns(works: tuple[Workload, ...], numbering: Numberings, like: Columns | None) -> Columns:
    before = np.full(len(works), -1, dtype=np.int64) if like is None else _rows_before(works, like)
    new = np.flatnonzero(before < 0)
    read = np.array([_numbers(works[row], numbering) for row in new.tolist()], dtype=np.int64).reshape(len(new), NUM_COLUMNS)
    table = np.empty((NUM_COLUMNS, len(works)), dtype=np.int64)
    if like is not None:
        kept = np.flatnonzero(before >= 0)
        table[:, kept] = like.table[:, before[kept]]
    table[:, new] = read.T
    table.setflags(write=False)
    return _named(works, numbering, table, _cells(works, numbering, new, before, like))


def _cells(works: Sequence[Workload], numbering: Numberings, new: IntArray, before: IntArray, like: Columns | None) -> IntArray:
    """Where runs lie; those of workloads that stood in `like`, at the rows `before`, are taken from it."""
    runs = ((row, works[row].run) for row in new.tolist())
    read = [
        (row, _number(numbering.node, name), tasks)
        for row, run in runs
        if run is not None
        for name, tasks in run.placement.items()
    ]
    cells = np.array(read, dtype=np.int64).reshape(-1, 3).T
    if like is not None:
        row_now = np.full(len(like.works), -1, dtype=np.int64)
        kept = (before >= 0).nonzero()[0]
        row_now[before[kept]] = kept
        old = like.cells[:, row_now[like.cells[0]] >= 0]
        old[0] = row_now[old[0]]
        cells = np.concatenate([old, cells], axis=1)
        cells = cells[:, np.argsort(cells[0], kind="stable")]
    cells.setflags(write=False)
    return cells


def _named(works: tuple[Workload, ...], numbering: Numberings, table: IntArray, cells: IntArray) -> Columns:
    """The rows of the table under their names."""
    (
        request, allocation, pools, submit, priority, min_runtime, gpus, _, _, _, restart_time, preempted, entitled_since,
        interval, start, charged_since, granted_at, protected_until, checkpoint, leaves, stopped_at, taken_off_at, *flags,
    ) = table  # fmt: skip
    resumable, saves, renew, runs_unfunded, running, charged, express = (flag != 0 for flag in flags)
    return Columns(
        works=works, numbering=numbering, table=table, request=_by_appearance(request), allocation=allocation, pools=pools,
        submit=submit, priority=priority, min_runtime=min_runtime, gpus=gpus, shape=table[SHAPE], restart_time=restart_time,
        preempted=preempted, entitled_since=entitled_since, interval=interval, start=start, charged_since=charged_since,
        granted_at=granted_at, protected_until=protected_until, checkpoint=checkpoint, leaves=leaves, stopped_at=stopped_at,
        taken_off_at=taken_off_at, resumable=resumable, saves=saves, renew=renew, runs_unfunded=runs_unfunded, running=running,
        charged=charged, express=express, index={work.id: row for row, work in enumerate(works)}, cells=cells,
    )  # fmt: skip


def _rows_before(works: Sequence[Workload], like: Columns) -> IntArray:
    """Where each workload stood in `like`, -1 if it did not stand there as it is."""
    index, before = like.index, like.works

    def row_of(work: Workload) -> int:
        row = index.get(work.id, -1)
        return row if row >= 0 and (before[row] is work or before[row] == work) else -1

    return np.fromiter(map(row_of, works), np.int64, len(works))


def _by_appearance(numbers: IntArray) -> IntArray:
    """Other numbers for the same groups, in the order of the rows: they are a function of the snapshot alone."""
    first = np.full(int(numbers.max(initial=0)) + 1, len(numbers), dtype=np.int64)
    first[numbers[::-1]] = np.arange(len(numbers) - 1, -1, -1)  # of several rows the last assignment counts: the first row
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first))
    return rank[numbers]


NUM_COLUMNS, SHAPE = 29, slice(7, 10)
"""Numbers that are read of a workload, and which of them are its shape."""

_WAITS = (NONE,) * 6, (False,) * 3
"""Instants and flags of work that does not run."""


def _numbers(work: Workload, numbering: Numberings) -> tuple[int, ...]:
    """One row of the table."""
    instants, flags = _WAITS if work.run is None else _of_run(work.run)
    stop = work.stopped
    return (
        _number(numbering.request, request_of(work)), _number(numbering.allocation, work.allocation),
        _number(numbering.pools, work.pools), work.submit_time, work.priority, work.min_runtime, work.gpus,
        *(min(amount, UNLIMITED) for amount in shape_of(work)), work.restart_time, work.preempted,
        _instant(work.entitled_since), work.checkpoint_interval or 0 if work.resumable else 0, *instants,
        stop.at if stop is not None and stop.begun else NONE, NONE if stop is None else stop.at, work.resumable,
        work.resumable and work.checkpoint_on_notice, work.renew, work.unfunded is Unfunded.RUN, *flags,
    )  # fmt: skip


def _of_run(run: Run) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    instants = (
        run.start_time, run.charged_since, run.granted_at, run.protected_until, run.last_checkpoint, run.terminating_until
    )  # fmt: skip
    return tuple(map(_instant, instants)), (True, run.charged, run.express)


def _number(numbering: dict[Key, int], key: Key) -> int:
    return numbering.setdefault(key, len(numbering))


def _instant(moment: int | None) -> int:
    return NONE if moment is None else moment
