"""What workloads say of themselves, as columns: nothing here depends on the clock, the nodes or the budgets.

A workload is immutable, so its row is read once, however many epochs it takes part in.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import TypeVar

import numpy as np

from allocator.domain import LastStop, Run, Unfunded, Workload
from allocator.entitlement.requests import request_of
from allocator.topology import UNLIMITED, BoolArray, IntArray, shape_of

NONE = -(1 << 62)
"""Stands for an instant that is not known."""

MOST_NODES = 1 << 18
"""With more nodes numbered than this, most have gone: numbering begins anew."""

Key = TypeVar("Key", bound=Hashable)


class Numbering(dict[Key, int]):
    """Numbers for keys, in the order in which they are first asked for."""

    def __missing__(self, key: Key) -> int:
        self[key] = number = len(self)
        return number

    def of_all(self, keys: Iterable[Key], num_keys: int) -> IntArray:
        """The number of each key, shape (num_keys,)."""
        return np.fromiter(map(self.__getitem__, keys), np.int64, num_keys)


@dataclass(frozen=True, slots=True)
class Numberings:
    """How requests, allocations, lists of pools and nodes are numbered in `Columns`."""

    request: Numbering[Hashable] = field(default_factory=Numbering)
    allocation: Numbering[str] = field(default_factory=Numbering)
    pools: Numbering[tuple[str, ...]] = field(default_factory=Numbering)
    node: Numbering[str] = field(default_factory=Numbering)


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
    if like is None:
        table, cells = _read(works, numbering), _cells(enumerate(works), numbering)
    else:
        before = _rows_before(works, like)
        new = (before < 0).nonzero()[0].tolist()
        table = _beside(like.table, before, _read([works[row] for row in new], numbering))
        cells = _cells_beside(like, before, _cells(((row, works[row]) for row in new), numbering))
    table.setflags(write=False)
    cells.setflags(write=False)
    return _named(works, numbering, table, cells)


def _beside(table: IntArray, before: IntArray, new: IntArray) -> IntArray:
    """The columns of a table that stand at the rows `before`, and the new ones where that is -1."""
    kept = before >= 0
    found = np.empty((len(table), len(before)), dtype=np.int64)
    found[:, kept], found[:, ~kept] = table[:, before[kept]], new
    return found


def _cells(works: Iterable[tuple[int, Workload]], numbering: Numberings) -> IntArray:
    """Where runs lie, of some workloads with their rows."""
    runs = [(row, work.run) for row, work in works if work.run is not None]
    read = [(row, numbering.node[name], tasks) for row, run in runs for name, tasks in run.placement.items()]
    return np.array(read, dtype=np.int64).reshape(-1, 3).T


def _cells_beside(like: Columns, before: IntArray, new: IntArray) -> IntArray:
    """The new cells, and those of workloads that stood in `like` at the rows `before`."""
    row_now = np.full(len(like.works), -1, dtype=np.int64)
    kept = (before >= 0).nonzero()[0]
    row_now[before[kept]] = kept
    old = like.cells[:, row_now[like.cells[0]] >= 0]
    old[0] = row_now[old[0]]
    cells = np.concatenate([old, new], axis=1)
    return cells[:, np.argsort(cells[0], kind="stable")]


def _named(works: tuple[Workload, ...], numbering: Numberings, table: IntArray, cells: IntArray) -> Columns:
    """The rows of the table under their names."""
    (
        request, allocation, pools, gpus, _, _, _, submit, priority, min_runtime, restart_time, preempted, entitled_since,
        interval, resumable, saves, renew, runs_unfunded, start, charged_since, granted_at, protected_until, checkpoint, leaves,
        stopped_at, taken_off_at, running, charged, express,
    ) = table  # fmt: skip
    return Columns(
        works=works, numbering=numbering, table=table, request=_by_appearance(request), allocation=allocation, pools=pools,
        submit=submit, priority=priority, min_runtime=min_runtime, gpus=gpus, shape=table[SHAPE], restart_time=restart_time,
        preempted=preempted, entitled_since=entitled_since, interval=interval, start=start, charged_since=charged_since,
        granted_at=granted_at, protected_until=protected_until, checkpoint=checkpoint, leaves=leaves, stopped_at=stopped_at,
        taken_off_at=taken_off_at, resumable=resumable != 0, saves=saves != 0, renew=renew != 0,
        runs_unfunded=runs_unfunded != 0, running=running != 0, charged=charged != 0, express=express != 0,
        index=dict(zip(map(attrgetter("id"), works), range(len(works)), strict=True)), cells=cells,
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


NUM_COLUMNS, SHAPE = 29, slice(4, 7)
"""Numbers that are read of a workload, and which of them are the shape of a task."""


def _read(works: Sequence[Workload], numbering: Numberings) -> IntArray:
    """The table of some workloads, shape (NUM_COLUMNS, num_works): what is asked, what else is stated, and runs."""
    table = np.empty((NUM_COLUMNS, len(works)), dtype=np.int64)
    asked, stated, runs = np.split(table, (7, 18))
    _read_requests(asked, works, numbering)
    stated[:] = np.fromiter(chain.from_iterable(map(_numbers, works)), np.int64, stated.size).reshape(-1, len(stated)).T
    _read_runs(runs, works)
    return table


def _read_requests(table: IntArray, works: Sequence[Workload], numbering: Numberings) -> None:
    """Request, allocation, pools, GPUs and shape: equal requests are looked at once."""
    table[0] = numbering.request.of_all(map(request_of, works), len(works))
    table[1] = numbering.allocation.of_all(map(attrgetter("allocation"), works), len(works))
    _, first, kind = np.unique(table[0], return_index=True, return_inverse=True)
    kinds = np.array([_of_request(works[row], numbering) for row in first.tolist()], dtype=np.int64)
    table[2:] = kinds.reshape(-1, len(table) - 2).T[:, kind]


def _of_request(work: Workload, numbering: Numberings) -> tuple[int, ...]:
    return numbering.pools[work.pools], work.gpus, *(min(amount, UNLIMITED) for amount in shape_of(work))


def _numbers(work: Workload) -> tuple[int, ...]:
    resumable, since = work.resumable, work.entitled_since
    return (
        work.submit_time, work.priority, work.min_runtime, work.restart_time, work.preempted,
        NONE if since is None else since, work.checkpoint_interval or 0 if resumable else 0, resumable,
        resumable and work.checkpoint_on_notice, work.renew, work.unfunded is Unfunded.RUN,
    )  # fmt: skip


def _read_runs(table: IntArray, works: Sequence[Workload]) -> None:
    """Of runs and last stops; most work has had neither."""
    table.T[:] = _of_run(None, None)
    rows = [row for row, work in enumerate(works) if work.run is not None or work.stopped is not None]
    if rows:
        table[:, rows] = np.array([_of_run(works[row].run, works[row].stopped) for row in rows], dtype=np.int64).T


def _of_run(run: Run | None, stop: LastStop | None) -> tuple[int, ...]:
    instants, flags = _WAITS if run is None else (_instants(run), (True, run.charged, run.express))
    stopped_at = stop.at if stop is not None and stop.begun else NONE
    return *instants, stopped_at, NONE if stop is None else stop.at, *flags


_WAITS = (NONE,) * 6, (False,) * 3
"""Instants and flags of work that does not run."""


def _instants(run: Run) -> tuple[int, ...]:
    moments = (
        run.start_time, run.charged_since, run.granted_at, run.protected_until, run.last_checkpoint, run.terminating_until
    )  # fmt: skip
    return tuple(NONE if moment is None else moment for moment in moments)
