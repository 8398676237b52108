"""Who was where: on which nodes each run lay, and when nodes took no work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from allocator.domain import NodeState, Workload


class PlacementRow(NamedTuple):
    """A run on one of its nodes; `gpus` are those that it held there."""

    job: str
    number: int
    node: str
    gpus: int


class ClosureRow(NamedTuple):
    """A span, in seconds since the epoch, in which a node took no work: `down`, or `drain` (wanted empty)."""

    node: str
    start: int
    end: int
    state: str


def placement_rows(work: Workload, number: int) -> list[PlacementRow]:
    """Where a run of a workload lies, in the order of its placement."""
    placement: Mapping[str, int] = {} if work.run is None else work.run.placement
    return [PlacementRow(work.id, number, node, tasks * work.gpus_per_task) for node, tasks in placement.items()]


class Closures:
    """Turns what is seen of nodes into spans.

    Attributes
    ----------
    rows
        The spans that are over.
    """

    def __init__(self) -> None:
        self.rows: list[ClosureRow] = []
        self._open: dict[str, tuple[int, str]] = {}

    def see(self, now: int, node: str, state: NodeState, *, accepts: bool) -> None:
        """Note what a node is from now on; one that is up and accepts no work is as good as drained."""
        closed = str(NodeState.DRAIN if state is NodeState.UP else state)
        name = "" if accepts else closed
        _, before = self._open.get(node, (now, ""))
        if name != before:
            self._end(now, node)
            if name:
                self._open[node] = (now, name)

    def close(self, now: int, nodes: Iterable[str]) -> None:
        """The end: what is closed now is told up to now."""
        for node in nodes:
            self._end(now, node)

    def _end(self, now: int, node: str) -> None:
        since, state = self._open.pop(node, (now, ""))
        if state and now > since:
            self.rows.append(ClosureRow(node, since, now, state))
