"""EASY backfill: the first of the queue gets the earliest start that it can have, and who does not delay it may go before it.

Lifka (1995): "The ANL/IBM SP Scheduling System". The earliest start follows from the time limits of what runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from allocator.domain import Workload
from allocator.replay.baselines.yard import Placement, Resident, Yard, kind_of, limit_of, take
from allocator.topology import BoolArray, IntArray, shape_of


class Planned(NamedTuple):
    """Work that starts now."""

    work: Workload
    placement: Placement


class _Ahead(NamedTuple):
    """When the head of the queue can start, and what it leaves free then, shape (3, num_nodes)."""

    shadow: int
    surplus: IntArray


def backfill(yard: Yard, queue: Sequence[Workload], free: IntArray, only: BoolArray | None = None) -> Iterator[Planned]:
    """What of the queue starts now. `free` is written to.

    Work that could not start even if all that runs had ended holds up nobody.
    """
    left = iter(queue)
    started: list[Planned] = []
    ahead = None
    for work in left:
        placement = yard.place(work, free, only)
        if placement is not None:
            take(free, work, placement)
            started.append(Planned(work, placement))
            yield started[-1]
        elif (ahead := _reserve(yard, work, free, started, only)) is not None:
            break
    if ahead is not None:
        yield from _fill(yard, left, free, ahead, only)


def _fill(yard: Yard, queue: Iterable[Workload], free: IntArray, ahead: _Ahead, only: BoolArray | None) -> Iterator[Planned]:
    """Work that ends before the head starts, or lies on what the head leaves free."""
    surplus = ahead.surplus
    failed: set[tuple[object, ...]] = set()
    for work in queue:
        short = yard.now + limit_of(work) <= ahead.shadow
        kind = (short, kind_of(work))
        if kind in failed:
            continue
        placement = yard.place(work, free if short else np.minimum(free, surplus), only)
        if placement is None:
            failed.add(kind)  # what is free only gets less
            if not free[0].any():
                return
            continue
        take(free, work, placement)
        if not short:
            take(surplus, work, placement)
        yield Planned(work, placement)


def _reserve(yard: Yard, head: Workload, free: IntArray, started: Sequence[Planned], only: BoolArray | None) -> _Ahead | None:
    """The earliest moment at which the head fits if everything ends by its limit; None: never."""
    if not yard.fits(head, yard.layout.capacity, only):
        return None
    ends, nodes, amounts = _releases(yard, started)
    moments = np.unique(ends)

    def after(step: int) -> IntArray:
        gone = ends <= moments[step]
        released = [np.bincount(nodes, weights=row * gone, minlength=free.shape[1]) for row in amounts]
        return free + np.array(released).astype(np.int64)

    low, high = 0, len(moments) - 1
    if high < 0 or not yard.fits(head, after(high), only):
        return None
    while low < high:
        middle = (low + high) // 2
        if yard.fits(head, after(middle), only):
            high = middle
        else:
            low = middle + 1
    surplus = after(low)
    placement = yard.place(head, surplus, only)
    assert placement is not None
    take(surplus, head, placement)
    return _Ahead(int(moments[low]), surplus)


def _releases(yard: Yard, started: Sequence[Planned]) -> tuple[IntArray, IntArray, IntArray]:
    """When what becomes free where: ends and nodes, shape (num_entries,), and amounts, shape (3, num_entries)."""
    residents = [(expected_end(yard, resident), resident.nodes, resident.amounts) for resident in yard.residents.values()]
    residents += [(yard.now + limit_of(work), *_entries(work, placement)) for work, placement in started]
    if not residents:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty((3, 0), dtype=np.int64)
    ends = np.repeat([end for end, _, _ in residents], [len(nodes) for _, nodes, _ in residents])
    nodes = np.concatenate([nodes for _, nodes, _ in residents])
    return ends, nodes, np.concatenate([amounts for _, _, amounts in residents], axis=1)


def _entries(work: Workload, placement: Placement) -> tuple[IntArray, IntArray]:
    nodes = np.fromiter(placement, dtype=np.int64, count=len(placement))
    tasks = np.fromiter(placement.values(), dtype=np.int64, count=len(placement))
    return nodes, np.outer(np.array(shape_of(work), dtype=np.int64), tasks)


def expected_end(yard: Yard, resident: Resident) -> int:
    """When running work ends by its limit; what has outlived it may end any moment."""
    run = resident.work.run
    start = yard.now if run is None or run.start_time is None else run.start_time
    return max(start + limit_of(resident.work), yard.now + 1)
