"""Work that starts again after a stop comes home: of equal decisions the one in which it lies where it lay.

A session that comes back finds its scratch disk and its containers on its old node; a gang that lost a node is repaired, so
that only the lost part moves. Engines do not know of this: they see nodes as interchangeable. So it is done once the answer is
there, and only where neither the score nor a rule stands against it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from allocator.domain import Workload
from allocator.engine.plan import Plan, after_plan
from allocator.entitlement import Entitlement
from allocator.entitlement.costs import spread_cost
from allocator.epoch import EpochProblem
from allocator.epoch.solution import fragmentation_value
from allocator.topology import GPUS, BoolArray, IntArray, can_place, shape_of, tasks_per_node
from allocator.verify.after import Placed

Tasks = Mapping[int, int]
"""Node index -> tasks."""


def come_home(ent: Entitlement, problem: EpochProblem, plan: Plan) -> Plan:
    """The plan with starts of requeued work moved to the nodes and domains where it ran before, as far as that costs nothing.

    Whoever starts anew on such a node in the same plan changes places with it, if both ask for the same. The room that a start
    leaves behind may be of use to others: the last pass has to look at the result again.
    """
    rows = [row for row in plan.starts if row not in plan.stops and old_place(ent, row)]
    if not rows:
        return plan
    way = _WayHome(ent, problem, plan)
    for row in sorted(rows, key=lambda row: (ent.snapshot.workloads[row].submit_time, row)):
        way.bring(row)
    return replace(plan, starts=way.starts)


def old_place(ent: Entitlement, row: int) -> Tasks:
    """Where work ran that must stop now or was stopped before, as far as its nodes are still there."""
    work, index = ent.snapshot.workloads[row], ent.layout.index
    placement = work.run.placement if work.run is not None else work.stopped.placement if work.stopped is not None else None
    return {index[name]: tasks for name, tasks in (placement or {}).items() if name in index}


@dataclass(frozen=True, slots=True)
class _Move:
    """New placements by row, and the nodes that lose tasks by them."""

    placements: Mapping[int, Tasks]
    vacated: frozenset[int]


class _WayHome:
    """The starts of a plan while one workload after another is brought home."""

    def __init__(self, ent: Entitlement, problem: EpochProblem, plan: Plan) -> None:
        self.ent, self.problem = ent, problem
        self.starts: dict[int, Placed] = dict(plan.starts)
        after = after_plan(ent, plan)
        self.free: IntArray = after.free.copy()
        # What starts on the nodes of a victim is the reason of its stop, so it stays there.
        self.fixed = frozenset(after.before.node[after.voluntary[after.before.row]].tolist())
        self.placed: IntArray = problem.whole_placed.copy()
        self.here: dict[int, set[int]] = {}
        for row, start in plan.starts.items():
            self._place(row, start.placement, 1)

    def _work(self, row: int) -> Workload:
        return self.ent.snapshot.workloads[row]

    def _place(self, row: int, placement: Tasks, sign: int) -> None:
        """Count the GPUs of a start, and note where it lies."""
        for node in placement:
            rows = self.here.setdefault(node, set())
            rows.add(row) if sign > 0 else rows.discard(row)
        nodes = list(placement)
        self.placed[nodes] += sign * self._work(row).gpus_per_task * np.array(list(placement.values()), dtype=np.int64)

    def bring(self, row: int) -> None:
        """Move one start to the best of its ways home that costs nothing."""
        if not self._may_gain(row):
            return
        best = self._homeliness(row, self.starts[row].placement)
        for move in self._ways(row):
            value = self._homeliness(row, move.placements[row])
            if value > best and move.vacated.isdisjoint(self.fixed) and self._allowed(move) and self._cost(move) <= 0:
                best = value
                self._carry_out(move)

    def _may_gain(self, row: int) -> bool:
        """Whether it is worth a closer look: most of what starts again lies at home, or finds its only node taken for good."""
        old, placement, work = old_place(self.ent, row), self.starts[row].placement, self._work(row)
        if sum(min(tasks, old.get(node, 0)) for node, tasks in placement.items()) >= work.tasks:
            return False
        need = np.array(shape_of(work))
        return work.tasks > 1 or any((self.free[:, node] >= need).all() or self.here.get(node) for node in old)

    def _homeliness(self, row: int, placement: Tasks) -> tuple[int, ...]:
        """Tasks on its old nodes, then in its old domains, fine to coarse."""
        old = old_place(self.ent, row)
        on_nodes = sum(min(tasks, old.get(node, 0)) for node, tasks in placement.items())
        return (on_nodes, *(sum(tasks for node, tasks in placement.items() if home[node]) for home in self._home_domains(old)))

    def _home_domains(self, old: Tasks) -> Iterator[BoolArray]:
        """For each level above the node, fine to coarse: the nodes in a domain where the work ran."""
        for domain in self.ent.layout.domain[-2::-1]:
            yield np.isin(domain, domain[list(old)])

    def _ways(self, row: int) -> Iterator[_Move]:
        """Placements with as many tasks at home as there is room for: the rest near them, or else where it lies now."""
        near = sum(home.astype(np.int64) for home in self._home_domains(old_place(self.ent, row)))
        for first in (-np.asarray(near), np.zeros(len(self.ent.layout.names), dtype=np.int64)):
            own = self.starts[row].placement
            stays = np.ones_like(first)
            stays[list(own)] = 0
            move = self._way(row, np.lexsort((np.arange(len(first)), self.free[GPUS], stays, first)))
            if move is not None:
                yield move

    def _way(self, row: int, order: IntArray) -> _Move | None:
        """Fill its old nodes, then nodes in this order; None if that is no place for it."""
        own, work = self.starts[row].placement, self._work(row)
        room, lent = self._room(row), self._lent(row)
        found: dict[int, int] = {}
        left = work.tasks
        for node, tasks in sorted(old_place(self.ent, row).items()):
            take = min(left, tasks, int(room[node]) + sum(lent.get(node, {}).values()))
            if take > 0:
                found[node], left = take, left - take
        for node in order.tolist():
            if left and node not in found and room[node] > 0:
                found[node] = min(left, int(room[node]))
                left -= found[node]
        if left or not can_place(self.ent.layout, work, self._as_room(found)):
            return None
        return self._with_exchange(row, own, found, room, lent)

    def _room(self, row: int) -> IntArray:
        """Tasks that fit each node of its pool once it has left where it lies, shape (num_nodes,)."""
        own, shape = self.starts[row].placement, shape_of(self._work(row))
        free = self.free.copy()
        for node, tasks in own.items():
            free[:, node] += tasks * np.array(shape)
        return np.where(self._open(row), tasks_per_node(np.maximum(free, 0), shape), 0)

    def _open(self, row: int) -> BoolArray:
        """Nodes of the pool of its start on which it may start as it does."""
        start, layout = self.starts[row], self.ent.layout
        until = self.ent.snapshot.now + int(self.ent.works.promise[row]) if start.charged else None
        mask: BoolArray = self.ent.may_start_on(row, until) & (layout.pool == layout.pool[next(iter(start.placement))])
        return mask

    def _lent(self, row: int) -> dict[int, dict[int, int]]:
        """Tasks on its old nodes, by node and row, of starts that ask for the same and are not at home there."""
        open_to, found = self._open(row), dict[int, dict[int, int]]()
        for node in old_place(self.ent, row):
            for other in sorted(self.here.get(node, set()) - {row}):
                if open_to[node] and self._alike(row, other) and node not in old_place(self.ent, other):
                    found.setdefault(node, {})[other] = self.starts[other].placement[node]
        return found

    def _alike(self, row: int, other: int) -> bool:
        """Whether two starts ask for the same, so that they may change places."""
        modes = {(self.starts[one].charged, self.starts[one].express) for one in (row, other)}
        return len(modes) == 1 and shape_of(self._work(row)) == shape_of(self._work(other))

    def _with_exchange(
        self, row: int, own: Tasks, found: Tasks, room: IntArray, lent: Mapping[int, Mapping[int, int]]
    ) -> _Move | None:
        """The move, and those whose places it takes on the nodes that it leaves."""
        gaps = [node for node in sorted(own) for _ in range(own[node] - found.get(node, 0))]
        placements: dict[int, dict[int, int]] = {row: dict(found)}
        for node, tasks in sorted(found.items()):
            short = max(0, tasks - int(room[node]))
            for other in sorted(lent.get(node, {})):
                take = min(short, lent[node][other])
                short -= take
                for _ in range(take):
                    at = placements.setdefault(other, dict(self.starts[other].placement))
                    _shift(at, node, gaps.pop())
        return _Move(placements, frozenset(gaps))

    def _as_room(self, placement: Tasks) -> IntArray:
        room = np.zeros(len(self.ent.layout.names), dtype=np.int64)
        room[list(placement)] = list(placement.values())
        return room

    def _allowed(self, move: _Move) -> bool:
        """Whether all may lie where they would, together and each on its own."""
        for row, placement in move.placements.items():
            room = np.where(self._open(row), self._as_room(placement), 0)
            if room.sum() < self._work(row).tasks or not can_place(self.ent.layout, self._work(row), room):
                return False
        return bool((self._free_after(move) >= np.minimum(self.free, 0)).all())

    def _free_after(self, move: _Move) -> IntArray:
        free = self.free.copy()
        for row, placement in move.placements.items():
            for placed, sign in ((self.starts[row].placement, 1), (placement, -1)):
                for node, tasks in placed.items():
                    free[:, node] += sign * tasks * np.array(shape_of(self._work(row)))
        return free

    def _cost(self, move: _Move) -> int:
        """What the move adds to the score: spread and fragmentation are all that depends on where a start lies."""
        spread, before = 0, fragmentation_value(self.problem, self.placed)
        for row, placement in move.placements.items():
            spread += self._spread(row, placement) - self._spread(row, self.starts[row].placement)
        self._count(move, 1)
        after = fragmentation_value(self.problem, self.placed)
        self._count(move, -1)
        return spread + after - before

    def _count(self, move: _Move, sign: int) -> None:
        for row, placement in move.placements.items():
            self._place(row, self.starts[row].placement, -sign)
            self._place(row, placement, sign)

    def _spread(self, row: int, placement: Tasks) -> int:
        return spread_cost(self.ent, row, np.array(sorted(placement), dtype=np.int64)) if self._work(row).tasks > 1 else 0

    def _carry_out(self, move: _Move) -> None:
        self.free = self._free_after(move)
        self._count(move, 1)
        for row, placement in move.placements.items():
            self.starts[row] = replace(self.starts[row], placement=dict(sorted(placement.items())))


def _shift(placement: dict[int, int], source: int, target: int) -> None:
    """Move one task."""
    placement[source] -= 1
    if not placement[source]:
        del placement[source]
    placement[target] = placement.get(target, 0) + 1
