"""Gangs whose reservation is due: which nodes of their domain they get, and who stops for them. The cheapest to clear."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

import numpy as np

from allocator.entitlement.facts import Facts
from allocator.entitlement.forced import UNFORCED
from allocator.entitlement.places import NO_LEAF
from allocator.entitlement.releases import Releases
from allocator.entitlement.reserved import Reserved
from allocator.topology import BoolArray, IntArray, place_tasks, shape_of, tasks_per_node


def start_due(facts: Facts, releases: Releases, found: Sequence[Reserved]) -> list[Reserved]:
    """The reservations, those whose start has come with a placement and victims, one after the other.

    One that finds its nodes taken by work that has started at this very instant keeps waiting.
    """
    now, clearing = facts.snapshot.now, None
    started = []
    for one in found:
        if one.start <= now:
            clearing = clearing or _Clearing(facts, releases)
            started.append(clearing.start(one))
        else:
            started.append(one)
    return started


class _Clearing:
    """What lies on the nodes, who may be made to leave, and at what cost, while gangs start one after another."""

    def __init__(self, facts: Facts, releases: Releases) -> None:
        self.facts = facts
        contract, layout = facts.contract, facts.layout
        self.stoppable: BoolArray = (
            contract.running
            & ~contract.fresh
            & ~contract.terminating
            & ~contract.ordered
            & (releases.row <= facts.snapshot.now)
        )
        gone = contract.forced != UNFORCED
        self.use: dict[int, dict[int, IntArray]] = {}
        self.firm = layout.capacity.copy()
        self.price = np.zeros(len(layout.names), dtype=np.int64)
        leaves = np.zeros_like(layout.capacity)
        for row in (contract.running & ~gone).nonzero()[0].tolist():
            for node, use in self._use_of(row).items():
                if self.stoppable[row]:
                    self.use.setdefault(node, {})[row] = use
                    self.price[node] += int(facts.lost_cost[row]) * int(use[0]) // int(contract.gpus[row])
                elif contract.terminating[row]:
                    leaves[:, node] += use
                else:
                    self.firm[:, node] -= use
        self.firm -= leaves
        self.firm[:, layout.overdue] = 0
        self.stopped: set[int] = set()
        self.stays = {row for row in (contract.running & ~gone).nonzero()[0].tolist() if facts.places.leaf[row] != NO_LEAF}

    def _use_of(self, row: int) -> dict[int, IntArray]:
        work = self.facts.snapshot.workloads[row]
        if work.run is None:
            return {}
        index = self.facts.layout.index
        return {index[name]: np.array(shape_of(work)) * tasks for name, tasks in work.run.placement.items()}

    def start(self, one: Reserved) -> Reserved:
        """Give the gang the cheapest nodes of its domain that hold it, of equals those where it ran before, and clear them."""
        work, layout = self.facts.snapshot.workloads[one.row], self.facts.layout
        if not self._within_limits(one.row, self.stays - {row for row in self.stays if self._gives_way(row)}):
            return one
        usable = one.usable & (layout.deadline >= self.facts.snapshot.now + one.promise)
        room = np.where(usable, tasks_per_node(np.maximum(self.firm, 0), shape_of(work)), 0)
        whole = (room >= -(-work.tasks // one.nodes)).nonzero()[0]
        elsewhere = ~np.isin(whole, self._old_nodes(one.row))
        order = whole[np.lexsort((whole, elsewhere, self.price[whole]))]
        for count in (one.nodes, *range(one.nodes + 1, len(order) + 1)):
            mask = np.zeros_like(usable)
            mask[order[:count]] = True
            placement = place_tasks(layout, work, np.where(mask, room, 0))
            if placement is not None:
                victims = self._clear(one.row, placement) | self._clear_limits(one.row)
                return replace(one, placement=placement, victims=tuple(sorted(victims)))
        return one

    def _old_nodes(self, row: int) -> list[int]:
        stop, index = self.facts.snapshot.workloads[row].stopped, self.facts.layout.index
        placement = stop.placement if stop is not None and stop.placement is not None else {}
        return [index[name] for name in placement if name in index]

    def _clear(self, gang: int, placement: dict[int, int]) -> set[int]:
        """Stop what does not fit beside the gang: uncharged and cheap work first, and nobody needlessly."""
        need = np.array(shape_of(self.facts.snapshot.workloads[gang]))
        stops: set[int] = set()
        for node, tasks in placement.items():
            self.firm[:, node] -= need * tasks
            for row in sorted(self.use.get(node, {}), key=self._rank):
                if row not in self.stopped | stops and not self._fits(node, stops):
                    stops.add(row)
        for row in sorted(stops, key=self._rank, reverse=True):
            if all(self._fits(node, stops - {row}) for node in self._use_of(row)):
                stops.discard(row)
        self.stopped |= stops
        self.stays -= stops
        return stops

    def _clear_limits(self, gang: int) -> set[int]:
        """Stop uncharged work under a `gpu_limit` that the gang would break, the cheapest first."""
        stops: set[int] = set()
        for vertex in self._path(gang):
            for row in sorted(filter(self._gives_way, self.stays), key=self._rank):
                if vertex in self._path(row) and not self._within_limits(gang, self.stays, (vertex,)):
                    stops.add(row)
                    self.stays.discard(row)
        self.stopped |= stops
        self.stays.add(gang)
        return stops

    def _gives_way(self, row: int) -> bool:
        return bool(self.stoppable[row] and not self.facts.contract.charged[row])

    def _within_limits(self, gang: int, stays: Set[int], path: Sequence[int] | None = None) -> bool:
        """Whether the vertices above a gang, or some of them, could hold it beside what stays."""
        limit, gpus = self.facts.tree.gpu_limit, self.facts.contract.gpus
        above = [vertex for vertex in path or self._path(gang) if limit[vertex] >= 0]
        held = {vertex: sum(int(gpus[row]) for row in stays if vertex in self._path(row)) for vertex in above}
        return all(held[vertex] + gpus[gang] <= limit[vertex] for vertex in above)

    def _path(self, row: int) -> tuple[int, ...]:
        return self.facts.tree.path(int(self.facts.places.leaf[row]))

    def _rank(self, row: int) -> tuple[bool, int, int]:
        return bool(self.facts.contract.charged[row]), int(self.facts.lost_cost[row]), row

    def _fits(self, node: int, stops: set[int]) -> bool:
        """Whether what stays on a node fits beside what is firm there."""
        stays = [use for row, use in self.use.get(node, {}).items() if row not in self.stopped and row not in stops]
        return bool(np.all(sum(stays, start=np.zeros(3, dtype=np.int64)) <= self.firm[:, node]))
