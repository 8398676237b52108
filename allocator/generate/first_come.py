"""First come, first served on real nodes: what of a trace has ended, runs and waits at a moment.

Traces record when jobs were submitted and how long they ran, on clusters of other sizes. Starts are simulated: in the
order of submission, each as soon as all before it have started and its gang can be placed. Nobody overtakes.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from allocator.generate.demand import Shape, split_tasks
from allocator.generate.packing import Packer
from allocator.generate.trace_rows import TraceRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A job that has started; `end` is when it ends if nobody stops it."""

    row: TraceRow
    start: int
    end: int
    placement: dict[str, int]


@dataclass(slots=True)
class Moment:
    """The jobs of a trace at one moment. `later` counts those that are not submitted yet."""

    ended: list[Started] = field(default_factory=list)
    running: list[Started] = field(default_factory=list)
    waiting: list[TraceRow] = field(default_factory=list)
    later: int = 0


def simulate_until(rows: Sequence[TraceRow], packer: Packer, gpus_per_node: int, at: int) -> Moment:
    """Run the jobs until `at`, seconds since the start of the trace. What would start at `at` itself still waits.

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
        shape = shape_of(row, gpus_per_node)
        placement = None
        while not blocked and placement is None:
            _release(moment, packer, gpus_per_node, running, clock)
            placement = packer.place(shape)
            if placement is None:
                clock = running[0][0]
                blocked = clock >= at
        if placement is None:
            moment.waiting.append(row)
        else:
            started = Started(row=row, start=clock, end=clock + row.duration, placement=placement)
            heapq.heappush(running, (started.end, row.number, started))
    _release(moment, packer, gpus_per_node, running, at)
    moment.running = sorted((started for _, _, started in running), key=lambda started: (started.start, started.row.number))
    return moment


def shape_of(row: TraceRow, gpus_per_node: int) -> Shape:
    """Tasks of the job; traces state no CPUs and memory."""
    tasks, gpus_per_task = split_tasks(row.gpus, gpus_per_node)
    return Shape(tasks=tasks, gpus_per_task=gpus_per_task, cpus_per_task=0, memory_gib_per_task=0)


def _release(moment: Moment, packer: Packer, gpus_per_node: int, running: list[tuple[int, int, Started]], clock: int) -> None:
    """Free what has ended by now."""
    while running and running[0][0] <= clock:
        _, _, started = heapq.heappop(running)
        packer.release(started.placement, shape_of(started.row, gpus_per_node))
        moment.ended.append(started)
