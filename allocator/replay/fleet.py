"""The nodes while a trace is replayed: their health, and what lies on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from allocator.domain import Cluster, Node, NodeState, Workload
from allocator.domain.trace import Maintenance
from allocator.topology import shape_of


class Fleet:
    """The cluster of the next snapshot, and a ledger of its nodes.

    Attributes
    ----------
    cluster
        As it stands; the same object as long as nothing changes.
    nodes
        Its nodes by name.
    used
        GPUs, CPUs and GiB in use on each node.
    down
        Names of the dead nodes.
    pool_of_node
        The pool of each node.
    residents
        Ids of the work on each node, in the order in which it came.
    schedulable, idle
        GPUs by pool: of accepting nodes, and in use on others; not in use on accepting nodes.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._base = {node.name: node for node in sorted(cluster.nodes, key=lambda node: node.name)}
        self._outages = dict.fromkeys(self._base, 0)
        self._maintenance: dict[str, list[Maintenance]] = {}
        self._open: dict[str, bool] = {}
        self.nodes = dict(self._base)
        self.used = {name: [0, 0, 0] for name in self._base}
        self.residents: dict[str, dict[str, None]] = {name: {} for name in self._base}
        self.down = {name for name, node in self._base.items() if node.state is NodeState.DOWN}
        self.pool_of_node = {name: node.pool for name, node in self._base.items()}
        self.pools = tuple(sorted(set(self.pool_of_node.values())))
        self.installed = {pool: sum(node.gpus for node in cluster.nodes if node.pool == pool) for pool in self.pools}
        self.schedulable = dict.fromkeys(self.pools, 0)
        self.idle = dict.fromkeys(self.pools, 0)
        for name, node in self._base.items():
            self._open[name] = node.state is NodeState.UP
            self._count(name, 1)
        self.cluster = replace(cluster, nodes=tuple(self.nodes.values()))

    def fail(self, name: str) -> None:
        """A node dies; it may do so several times over."""
        self._outages[name] += 1

    def repair(self, name: str) -> None:
        """One cause of death is gone."""
        self._outages[name] -= 1

    def announce(self, row: Maintenance) -> None:
        """A node is wanted empty."""
        self._maintenance.setdefault(row.node, []).append(row)

    def give_back(self, row: Maintenance) -> None:
        """The maintenance is over."""
        self._maintenance[row.node].remove(row)

    def refresh(self, name: str, now: int) -> None:
        """Work out the state of a node after one of the above, or because its deadline has come."""
        self._count(name, -1)
        node = self._state_of(name)
        self._open[name] = node.state is NodeState.UP and (node.drain_deadline is None or node.drain_deadline > now)
        self._count(name, 1)
        if node != self.nodes[name]:
            self.nodes[name] = node
            (self.down.add if node.state is NodeState.DOWN else self.down.discard)(name)
            self.cluster = replace(self.cluster, nodes=tuple(self.nodes.values()))

    @property
    def hit_pools(self) -> set[str]:
        """Pools with dead nodes."""
        return {self.pool_of_node[name] for name in self.down}

    def is_down(self, name: str) -> bool:
        """Whether a node is dead."""
        return name in self.down

    def accepts(self, name: str) -> bool:
        """Whether work may start on a node."""
        return self._open[name]

    def place(self, work: Workload, placement: Mapping[str, int]) -> None:
        """Put work on its nodes."""
        self._book(work, placement, 1)
        for name in placement:
            self.residents[name][work.id] = None

    def take_off(self, work: Workload, placement: Mapping[str, int]) -> None:
        """Take work off its nodes."""
        self._book(work, placement, -1)
        for name in placement:
            del self.residents[name][work.id]

    def pool_of(self, placement: Iterable[str]) -> str:
        """The pool of a placement."""
        return self.pool_of_node[next(iter(placement))]

    def _state_of(self, name: str) -> Node:
        base, wanted = self._base[name], self._maintenance.get(name)
        if self._outages[name]:
            return replace(base, state=NodeState.DOWN)
        if not wanted:
            return base
        deadlines = [row.deadline for row in wanted if row.deadline is not None]
        state = NodeState.DRAIN if any(row.drain for row in wanted) else base.state
        return replace(base, state=state, drain_deadline=min(deadlines, default=None))

    def _book(self, work: Workload, placement: Mapping[str, int], sign: int) -> None:
        gpus, cpus, memory = shape_of(work)
        pool = self.pool_of(placement)  # one pool for all of it
        for name, tasks in placement.items():
            used, more = self.used[name], sign * tasks
            used[0] += more * gpus
            used[1] += more * cpus
            used[2] += more * memory
            self._count_use(name, pool, more * gpus)

    def _count(self, name: str, sign: int) -> None:
        """Add a node to the sums of its pool, or take it out of them."""
        node = self._base[name]
        if self._open[name]:
            self.schedulable[node.pool] += sign * node.gpus
            self.idle[node.pool] += sign * node.gpus
        self._count_use(name, node.pool, sign * self.used[name][0])

    def _count_use(self, name: str, pool: str, gpus: int) -> None:
        """Count GPUs in use: on an open node they are idle no longer, on a closed one they alone are schedulable."""
        if self._open[name]:
            self.idle[pool] -= gpus
        else:
            self.schedulable[pool] += gpus
