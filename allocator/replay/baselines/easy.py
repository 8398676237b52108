"""EASY backfill: the first of the queue gets the earliest start that it can have, and who does not delay it may go before it.

Lifka (1995): "The ANL/IBM SP Scheduling System". The earliest start follows from the time limits of what runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from allocator.domain import Workload
from allocator.replay.baselines.yard import Placement, Releases, Yard, limit_of, take
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
    if not _any(free, only):
        return
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
    surplus = np.minimum(free, ahead.surplus)
    span = ahead.shadow - yard.now
    failed: set[tuple[bool, int]] = set()
    for work in queue:
        short = limit_of(work) <= span
        kind = (short, yard.kind(work))
        if kind in failed:
            continue
        placement = yard.place(work, free if short else surplus, only)
        if placement is None:
            failed.add(kind)  # what is free only gets less
            continue
        take(free, work, placement)
        if not short:
            take(ahead.surplus, work, placement)
        surplus = np.minimum(free, ahead.surplus)
        yield Planned(work, placement)
        if not _any(free, only):
            return


def _any(free: IntArray, only: BoolArray | None) -> bool:
    """Whether there is a free GPU."""
    return bool((free[0] if only is None else free[0] * only).any())


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


def _releases(yard: Yard, started: Sequence[Planned]) -> Releases:
    """When what runs and what starts now gives back what."""
    running = yard.releases()
    if not started:
        return running
    entries = [_entries(work, placement) for work, placement in started]
    ends = [np.full(len(nodes), yard.now + limit_of(work)) for (work, _), (nodes, _) in zip(started, entries, strict=True)]
    return Releases(
        ends=np.concatenate([running.ends, *ends]),
        nodes=np.concatenate([running.nodes, *(nodes for nodes, _ in entries)]),
        amounts=np.concatenate([running.amounts, *(amounts for _, amounts in entries)], axis=1),
    )


def _entries(work: Workload, placement: Placement) -> tuple[IntArray, IntArray]:
    nodes = np.fromiter(placement, dtype=np.int64, count=len(placement))
    tasks = np.fromiter(placement.values(), dtype=np.int64, count=len(placement))
    return nodes, np.outer(np.array(shape_of(work), dtype=np.int64), tasks)
