"""EASY backfill: the first of the queue gets the earliest start that it can have, and who does not delay it may go before it.

Lifka (1995): "The ANL/IBM SP Scheduling System". The earliest start follows from the time limits of what runs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from allocator.domain import Workload
from allocator.replay.baselines.releases import Releases
from allocator.replay.baselines.yard import Placement, Yard, amounts_of, limit_of, take
from allocator.topology import BoolArray, IntArray
from allocator.topology.layout import GPUS


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
    started: list[Planned] = []
    for place, work in enumerate(queue):
        if not _any(free, only):
            return
        placement = yard.place(work, free, only)
        if placement is not None:
            take(free, work, placement)
            started.append(Planned(work, placement))
            yield started[-1]
            continue
        behind = queue[place + 1 :]
        if not _any_fits(yard, behind, free, only):
            return  # nobody asks what the head leaves free
        ahead = _reserve(yard, work, free, started, only)
        if ahead is not None:
            yield from _fill(yard, behind, free, ahead, only)
            return


def _any_fits(yard: Yard, queue: Iterable[Workload], free: IntArray, only: BoolArray | None) -> bool:
    """Whether any work of the queue would find a place; work that is alike is tried once."""
    most, total = _most(free)
    failed: set[tuple[int, int]] = set()
    for work in queue:
        if work.gpus_per_task <= most and work.gpus <= total and (alike := yard.alike(work)) not in failed:
            if yard.fits(work, free, only):
                return True
            failed.add(alike)
    return False


def _most(free: IntArray) -> tuple[int, int]:
    """Free GPUs on the emptiest node, and on all: what asks for more has no place."""
    gpus = np.maximum(free[GPUS], 0)
    return int(gpus.max(initial=0)), int(gpus.sum())


def _fill(yard: Yard, queue: Iterable[Workload], free: IntArray, ahead: _Ahead, only: BoolArray | None) -> Iterator[Planned]:
    """Work that ends before the head starts, or lies on what the head leaves free."""
    surplus = np.minimum(free, ahead.surplus)
    span = ahead.shadow - yard.now
    failed: set[tuple[bool, int]] = set()
    most, total = _most(free)
    for work in queue:
        if work.gpus_per_task > most or work.gpus > total:
            continue
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
        most, total = _most(free)
        yield Planned(work, placement)


def _any(free: IntArray, only: BoolArray | None) -> bool:
    """Whether there is a free GPU."""
    return bool((free[0] if only is None else free[0] * only).any())


def _reserve(yard: Yard, head: Workload, free: IntArray, started: Sequence[Planned], only: BoolArray | None) -> _Ahead | None:
    """The earliest moment at which the head fits if everything ends by its limit; None: never."""
    if not yard.fits(head, yard.layout.capacity, only):
        return None
    releases = _releases(yard, started)
    last = len(releases.ends)
    least = max(1, releases.enough(free, head.gpus))
    if least > last:
        return None

    def fits(count: int) -> bool:
        return yard.fits(head, releases.after(free, count), only)

    count = _least(fits, least, last)
    if count == last and not fits(last):
        return None
    shadow = int(releases.ends[count - 1])
    surplus = releases.after(free, int(releases.ends.searchsorted(shadow, side="right")))
    placement = yard.place(head, surplus, only)
    assert placement is not None
    take(surplus, head, placement)
    return _Ahead(shadow, surplus)


def _releases(yard: Yard, started: Sequence[Planned]) -> Releases:
    """When what runs and what starts now gives back what."""
    running = yard.releases()
    rows = [
        Releases.of(yard.now + limit_of(work), [*placement], amounts_of(work, placement.values()), len(yard.layout.names))
        for work, placement in started
    ]
    return Releases.all([running, *rows], yard.now + 1).in_order() if rows else running


def _least(test: Callable[[int], bool], low: int, high: int) -> int:
    """The least number from `low` on that passes a test, as all above it do; `high` if none below does. `low` is a guess."""
    reach, step = low, 4
    while reach < high and not test(reach):
        low, reach, step = reach + 1, min(high, reach + step), 2 * step
    return bisect_left(range(reach), True, low, reach, key=test)
