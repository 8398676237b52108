"""What recorded epochs tell of nodes: all that were ever there, and when they were down, missing, or wanted empty."""

from __future__ import annotations

from dataclasses import dataclass, replace

from allocator.domain import Cluster, Node, NodeState
from allocator.domain.trace import Maintenance, Outage

ABSENT = "not in the record"


@dataclass(slots=True)
class _Wanted:
    """A node that is wanted empty since `announced`, with the last deadline that was seen."""

    announced: int
    deadline: int | None
    drain: bool
    reason: str | None


class NodeHistory:
    """Looks at the cluster epoch by epoch.

    Attributes
    ----------
    nodes
        By name, as first seen and in good health; of GPUs, CPUs and memory the most that were seen.
    outages, maintenance
        What has come to its end. Begin and end are epochs in which it was first seen, and no longer seen.
    changed
        Names of the nodes that were not always the same size.
    called_off
        How many maintenances never came to their deadline.
    """

    def __init__(self, start: int) -> None:
        self._start = start
        self._last: dict[str, Node] = {}
        self._down: dict[str, tuple[int, str | None]] = {}
        self._wanted: dict[str, _Wanted] = {}
        self.nodes: dict[str, Node] = {}
        self.outages: list[Outage] = []
        self.maintenance: list[Maintenance] = []
        self.changed: set[str] = set()
        self.called_off = 0

    def see(self, cluster: Cluster, now: int) -> None:
        """The cluster as it is now; epochs come in order of time."""
        names = {node.name for node in cluster.nodes}
        for node in cluster.nodes:
            if self._last.get(node.name) != node:
                self._change(node, now)
        for name in self._last.keys() - names:
            self._down.setdefault(name, (now, ABSENT))
            del self._last[name]

    def close(self, end: int) -> None:
        """The record is over: what goes on is taken to go on beyond it."""
        self.outages += [_outage(name, end + 1, *since) for name, since in sorted(self._down.items())]
        for name, wanted in sorted(self._wanted.items()):
            self.maintenance.append(_maintenance(name, wanted, max(end, wanted.deadline or end) + 1))

    def _change(self, node: Node, now: int) -> None:
        """A node that is new, or not as it was."""
        name, first = node.name, self.nodes.get(node.name)
        if first is None and now > self._start:
            self._down[name] = (self._start, ABSENT)
        self._last[name] = node
        self.nodes[name] = replace(node, state=NodeState.UP, drain_deadline=None, reason=None) if first is None else first
        if first is not None and _size(node) != _size(first):
            self.changed.add(name)
            self.nodes[name] = _larger(first, node)
        self._see_health(node, now)
        self._see_wish(node, now)

    def _see_health(self, node: Node, now: int) -> None:
        if node.state is NodeState.DOWN:
            self._down.setdefault(node.name, (now, node.reason))
        elif node.name in self._down:
            self.outages.append(_outage(node.name, now, *self._down.pop(node.name)))

    def _see_wish(self, node: Node, now: int) -> None:
        """Whether somebody wants the node empty; while it is down that stays as it was."""
        drains, deadline = node.state is NodeState.DRAIN, node.drain_deadline
        if drains or deadline is not None:
            wanted = self._wanted.setdefault(node.name, _Wanted(now, deadline, drains, node.reason))
            wanted.drain |= drains and (deadline is None or now < deadline)
            wanted.deadline = wanted.deadline if deadline is None else deadline
        elif node.state is NodeState.UP and node.name in self._wanted:
            self._take_back(node.name, self._wanted.pop(node.name), now)

    def _take_back(self, name: str, wanted: _Wanted, now: int) -> None:
        """The node is wanted no longer; a deadline that has not come by then was one that never came."""
        if wanted.deadline is not None and wanted.deadline >= now:
            self.called_off += 1
            wanted.deadline = None
        if wanted.drain or wanted.deadline is not None:
            self.maintenance.append(_maintenance(name, wanted, now))


def _outage(name: str, end: int, start: int, reason: str | None) -> Outage:
    return Outage(node=name, start=start, end=end, reason=reason)


def _maintenance(name: str, wanted: _Wanted, end: int) -> Maintenance:
    deadline = None if wanted.deadline is None else max(wanted.announced, wanted.deadline)
    return Maintenance(
        node=name, announced=wanted.announced, deadline=deadline, end=end, drain=wanted.drain, reason=wanted.reason
    )


def _size(node: Node) -> tuple[int, int | None, int | None]:
    return node.gpus, node.cpus, node.memory_gib


def _larger(first: Node, node: Node) -> Node:
    """A node with the most of everything that either has; None is without limit."""
    return replace(
        first,
        gpus=max(first.gpus, node.gpus),
        cpus=None if first.cpus is None or node.cpus is None else max(first.cpus, node.cpus),
        memory_gib=None if first.memory_gib is None or node.memory_gib is None else max(first.memory_gib, node.memory_gib),
    )
