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
        self.moving = plan.stops & plan.starts.keys()
        after = after_plan(ent, plan)
        self.free: IntArray = after.free.copy()
        # What starts on the nodes of a victim is the reason of its stop, so it stays there.
        self.fixed = frozenset(after.before.node[after.voluntary[after.before.row]].tolist())
        self.placed: IntArray = problem.whole_placed.copy()
        self.here: dict[int, set[int]] = {}
        self.open: dict[int, BoolArray] = {}
        for row, start in plan.starts.items():
            self._place(row, start.placement, 1)
        self.broken = fragmentation_value(problem, self.placed)

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
        old, nodes = old_place(self.ent, row), np.array(list(placement), dtype=np.int64)
        tasks = np.array(list(placement.values()), dtype=np.int64)
        on_nodes = sum(min(number, old.get(node, 0)) for node, number in placement.items())
        return (on_nodes, *(int(tasks[home].sum()) for home in self._in_old_domains(old, nodes)))

    def _in_old_domains(self, old: Tasks, nodes: IntArray) -> Iterator[BoolArray]:
        """For each level above the node, fine to coarse: which of the nodes lie in a domain where the work ran."""
        for domain in self.ent.layout.domain[-2::-1]:
            yield np.isin(domain[nodes], domain[list(old)], kind="table")

    def _ways(self, row: int) -> Iterator[_Move]:
        """Placements with as many tasks at home as there is room for: the rest near them, or else where it lies now."""
        for near in (True, False):
            move = self._way(row, near)
            if move is not None:
                yield move

    def _way(self, row: int, near: bool) -> _Move | None:
        """Fill its old nodes, then the nodes next in order; None if that is no place for it."""
        work, room, lent = self._work(row), self._room(row), self._lent(row)
        found: dict[int, int] = {}
        left = work.tasks
        for node, tasks in sorted(old_place(self.ent, row).items()):
            take = min(left, tasks, int(room[node]) + sum(lent.get(node, {}).values()))
            if take > 0:
                found[node], left = take, left - take
        for node in self._order(row, near, room) if left else ():
            if left and node not in found:
                found[node] = min(left, int(room[node]))
                left -= found[node]
        if left or not can_place(self.ent.layout, work, self._as_room(found)):
            return None
        return self._with_exchange(row, found, room, lent)

    def _order(self, row: int, near: bool, room: IntArray) -> list[int]:
        """Nodes with room: those in its old domains first, if that is asked for; then those where it lies, then the fullest."""
        nodes = room.nonzero()[0]
        homes = self._in_old_domains(old_place(self.ent, row), nodes) if near else ()
        away = -sum((home.astype(np.int64) for home in homes), start=np.zeros(len(nodes), dtype=np.int64))
        moved = ~np.isin(nodes, list(self.starts[row].placement), kind="table")
        order: list[int] = nodes[np.lexsort((nodes, self.free[GPUS, nodes], moved, away))].tolist()
        return order

    def _room(self, row: int) -> IntArray:
        """Tasks that fit each node of its pool once it has left where it lies, shape (num_nodes,)."""
        shape = shape_of(self._work(row))
        room = tasks_per_node(np.maximum(self.free, 0), shape)
        for node, tasks in self.starts[row].placement.items():
            left = self.free[:, [node]] + tasks * np.array(shape)[:, None]
            room[node] = tasks_per_node(np.maximum(left, 0), shape)[0]
        return np.where(self._open(row), room, 0)

    def _open(self, row: int) -> BoolArray:
        """Nodes of the pool of its start on which it may start as it does; the same wherever it lies."""
        if row in self.open:
            return self.open[row]
        start, layout = self.starts[row], self.ent.layout
        until = self.ent.snapshot.now + int(self.ent.works.promise[row]) if start.charged else None
        mask: BoolArray = self.ent.may_start_on(row, until) & (layout.pool == layout.pool[next(iter(start.placement))])
        self.open[row] = mask
        return mask

    def _lent(self, row: int) -> dict[int, dict[int, int]]:
        """Tasks on its old nodes, by node and row, of starts that ask for the same and are not at home there."""
        open_to, found = self._open(row), dict[int, dict[int, int]]()
        for node in old_place(self.ent, row):
            for other in sorted(self.here.get(node, set()) - {row}):
                if (
                    open_to[node]
                    and other not in self.moving
                    and self._alike(row, other)
                    and node not in old_place(self.ent, other)
                ):
                    found.setdefault(node, {})[other] = self.starts[other].placement[node]
        return found

    def _alike(self, row: int, other: int) -> bool:
        """Whether two starts ask for the same, so that they may change places."""
        modes = {(self.starts[one].charged, self.starts[one].express) for one in (row, other)}
        return len(modes) == 1 and shape_of(self._work(row)) == shape_of(self._work(other))

    def _with_exchange(self, row: int, found: Tasks, room: IntArray, lent: Mapping[int, Mapping[int, int]]) -> _Move:
        """The move, and those whose places it takes on the nodes that it leaves."""
        own = self.starts[row].placement
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
        return all((self.free[:, node] >= use).all() for node, use in self._change(move).items() if (use > 0).any())

    def _change(self, move: _Move) -> dict[int, IntArray]:
        """What the move takes more of each node that it touches."""
        change: dict[int, IntArray] = {}
        for row, placement in move.placements.items():
            for placed, sign in ((self.starts[row].placement, -1), (placement, 1)):
                for node, tasks in placed.items():
                    use = sign * tasks * np.array(shape_of(self._work(row)))
                    change[node] = change.get(node, np.zeros_like(use)) + use
        return change

    def _cost(self, move: _Move) -> int:
        """What the move adds to the score: spread and fragmentation are all that depends on where a start lies."""
        spread = 0
        for row, placement in move.placements.items():
            spread += self._spread(row, placement) - self._spread(row, self.starts[row].placement)
        self._count(move, 1)
        after = fragmentation_value(self.problem, self.placed)
        self._count(move, -1)
        return spread + after - self.broken

    def _count(self, move: _Move, sign: int) -> None:
        for row, placement in move.placements.items():
            self._place(row, self.starts[row].placement, -sign)
            self._place(row, placement, sign)

    def _spread(self, row: int, placement: Tasks) -> int:
        return spread_cost(self.ent, row, np.array(sorted(placement), dtype=np.int64)) if self._work(row).tasks > 1 else 0

    def _carry_out(self, move: _Move) -> None:
        for node, use in self._change(move).items():
            self.free[:, node] -= use
        self._count(move, 1)
        self.broken = fragmentation_value(self.problem, self.placed)
        for row, placement in move.placements.items():
            self.starts[row] = replace(self.starts[row], placement=dict(sorted(placement.items())))


def _shift(placement: dict[int, int], source: int, target: int) -> None:
    """Move one task."""
    placement[source] -= 1
    if not placement[source]:
        del placement[source]
    placement[target] = placement.get(target, 0) + 1
