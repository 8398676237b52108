"""First come, first served on real nodes: what of a trace has ended, runs and waits at a moment.

Traces record when jobs were submitted and how long they ran, on clusters of other sizes. Starts are simulated: in the
order of submission, each as soon as all before it have started and its gang can be placed. Nobody overtakes.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from allocator.generate.demand import Shape
from allocator.generate.packing import Packer
from allocator.generate.sources import SourceRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A job that has started; `end` is when it ends if nobody stops it. `number` is its place in the order of submission."""

    row: SourceRow
    number: int
    start: int
    end: int
    placement: dict[str, int]


@dataclass(slots=True)
class Moment:
    """The jobs of a trace at one moment. `later` counts those that are not submitted yet."""

    ended: list[Started] = field(default_factory=list)
    running: list[Started] = field(default_factory=list)
    waiting: list[SourceRow] = field(default_factory=list)
    later: int = 0


def simulate_until(rows: Sequence[SourceRow], packer: Packer, at: int) -> Moment:
    """Run the jobs until `at`, seconds since the epoch. What would start at `at` itself still waits.

    `rows` are in order of submission; `packer` is empty and is filled. Every row fits the empty cluster.
    """
    moment = Moment()
    running: list[tuple[int, int, Started]] = []
    clock = 0
    blocked = False
    for position, row in enumerate(rows):
        if row.submit >= at:
            moment.later = len(rows) - position
            break
        clock = max(clock, row.submit)
        shape = shape_of(row)
        placement = None
        while not blocked and placement is None:
            _release(moment, packer, running, clock)
            placement = packer.place(shape)
            if placement is None:
                clock = running[0][0]
                blocked = clock >= at
        if placement is None:
            moment.waiting.append(row)
        else:
            started = Started(row=row, number=position, start=clock, end=clock + row.work, placement=placement)
            heapq.heappush(running, (started.end, position, started))
    _release(moment, packer, running, at)
    moment.running = sorted((started for _, _, started in running), key=lambda started: (started.start, started.number))
    return moment


def shape_of(row: SourceRow) -> Shape:
    """Tasks of the job; traces state no CPUs and memory."""
    return Shape(tasks=row.tasks, gpus_per_task=row.gpus_per_task, cpus_per_task=0, memory_gib_per_task=0)


def _release(moment: Moment, packer: Packer, running: list[tuple[int, int, Started]], clock: int) -> None:
    """Free what has ended by now."""
    while running and running[0][0] <= clock:
        _, _, started = heapq.heappop(running)
        packer.release(started.placement, shape_of(started.row))
        moment.ended.append(started)
