"""Every decision of a tiny epoch, scored by a third hand: the yardstick of the engines.

Enumerates placements node by node and scores them from the coefficients alone, then asks the verifier, cheapest first,
which of them the rules allow. Uses neither the compiled problem nor any engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import combinations_with_replacement

import numpy as np

from allocator.domain import Decision
from allocator.engine.plan import Plan, after_plan, forced_rows
from allocator.engine.report import decision_of
from allocator.entitlement import Entitlement
from allocator.entitlement.costs import express_cost, fragmentation_cost, idle_cost, spread_cost, whole_before
from allocator.topology import IntArray, shape_of
from allocator.verify import Placed, score_of, verify
from tests.engines.reports import plain_report

TOO_MANY = 30_000
"""Decisions to list."""

TOO_MANY_FORBIDDEN = 1_500
"""Decisions to ask the verifier about, each of which looks better than the best and breaks a rule."""


class TooLargeError(Exception):
    """The instance has more decisions than brute force should try."""


@dataclass
class _Choice:
    """One thing that may happen to one workload: its use of nodes, and what it adds to the score."""

    row: int
    kind: str
    cost: int
    use: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    charged: tuple[int, int, int] | None = None
    placed: Placed | None = None


def best_decision(ent: Entitlement) -> tuple[int, Decision]:
    """The least score of any decision that keeps every rule, and one such decision.

    Raises
    ------
    TooLargeError
        If there are more than TOO_MANY decisions to look at, or more than TOO_MANY_FORBIDDEN of them seem better than the best.
    """
    found = sorted(all_plans(ent), key=lambda item: item[0])
    for score, plan in found[:TOO_MANY_FORBIDDEN]:
        terms = score_of(after_plan(ent, plan))
        assert terms.total == score, f"brute force says {score}, the verifier {terms}"
        decision = decision_of(ent, plan, "", plain_report(terms), {})
        if verify(ent.snapshot, decision, ent).ok:
            return score, decision
    assert len(found) > TOO_MANY_FORBIDDEN, "no decision keeps every rule"
    raise TooLargeError


def all_plans(ent: Entitlement) -> Iterator[tuple[int, Plan]]:
    """Every plan that fits the nodes, with its score; whether the rules allow it is not asked."""
    rows = range(len(ent.snapshot.workloads))
    choices = [own for row in rows if (own := list(_choices(ent, row)))]
    free = (ent.layout.capacity - _shared_places(ent)).T.tolist()
    base = 0
    score = _Scorer(ent)
    count = 0
    stack: list[_Choice] = []

    def walk(depth: int, cost: int) -> Iterator[tuple[int, Plan]]:
        nonlocal count
        if depth == len(choices):
            count += 1
            if count > TOO_MANY:
                raise TooLargeError
            yield cost + score.joint(stack, free), _plan(ent, stack)
            return
        for choice in choices[depth]:
            if all(all(f >= n for f, n in zip(free[node], need, strict=True)) for node, need in choice.use.items()):
                _take(free, choice, 1)
                stack.append(choice)
                yield from walk(depth + 1, cost + choice.cost)
                stack.pop()
                _take(free, choice, -1)

    yield from walk(0, base)


def _shared_places(ent: Entitlement) -> IntArray:
    """What victims that are leaving and ordered starts that have not begun take: the larger of the two, on each node."""
    works, taken = ent.works, np.zeros((2, *ent.layout.capacity.shape), dtype=np.int64)
    for row, work in enumerate(ent.snapshot.workloads):
        if work.run is not None and not works.forced[row] and (works.terminating[row] or works.ordered[row]):
            for name, tasks in work.run.placement.items():
                taken[int(works.ordered[row]), :, ent.layout.index[name]] += tasks * np.array(shape_of(work))
    return np.asarray(taken.max(axis=0))


def _take(free: list[list[int]], choice: _Choice, sign: int) -> None:
    for node, need in choice.use.items():
        free[node] = [f - sign * n for f, n in zip(free[node], need, strict=True)]


def _choices(ent: Entitlement, row: int) -> Iterator[_Choice]:
    works = ent.works
    if works.due[row]:
        yield _due(ent, row)
        return
    waits = _waits(ent, row)
    if works.running[row] and not works.forced[row]:
        yield from _running_choices(ent, row)
        return
    lost = int(works.lost_cost[row]) if works.forced[row] else 0
    yield _Choice(row, "wait", waits + lost)
    if works.candidate[row]:
        for pool in range(len(ent.layout.pools)):
            for nodes in _placements(ent, row, pool):
                for charged, express in _modes(ent, row):
                    yield _start(ent, row, pool, nodes, charged, express, lost)


def _due(ent: Entitlement, row: int) -> _Choice:
    """A gang whose reservation has come starts where its reservation says; every plan has it."""
    placement = next(dict(one.placement) for one in ent.reserved if one.row == row)
    return replace(_start(ent, row, int(ent.works.prepaid[row]), placement, True, False, 0), placed=None)


def _waits(ent: Entitlement, row: int) -> int:
    lane = express_cost(ent.snapshot.policy, int(ent.works.gpus[row])) if ent.works.express[row] else 0
    return int(ent.works.order_cost[row]) + lane


def _running_choices(ent: Entitlement, row: int) -> Iterator[_Choice]:
    works, work = ent.works, ent.snapshot.workloads[row]
    assert work.run is not None
    nodes = {ent.layout.index[name]: tasks for name, tasks in work.run.placement.items()}
    pool, leaf = int(works.run_pool[row]), int(works.leaf[row])
    spread = spread_cost(ent, row, np.array(sorted(nodes), dtype=np.int64))
    held = (leaf, pool, work.gpus)
    use = {} if works.terminating[row] or works.ordered[row] else _use(ent, row, nodes)
    yield _Choice(row, "keep", spread, use, held if works.charged[row] else None)
    if works.promotable[row]:
        yield _Choice(row, "promote", spread, use, held)
    if works.stoppable[row]:
        yield _Choice(row, "stop", int(works.lost_cost[row]) + _waits(ent, row))
    if works.movable[row]:
        for place in _placements(ent, row, pool):
            for charged, express in _modes(ent, row):
                yield replace(_start(ent, row, pool, place, charged, express, int(works.lost_cost[row])), kind="move")


def _modes(ent: Entitlement, row: int) -> list[tuple[bool, bool]]:
    if ent.works.express[row]:
        return [(True, True)]
    return [(False, False)] if ent.works.unallocated[row] else [(True, False), (False, False)]


def _placements(ent: Entitlement, row: int, pool: int) -> Iterator[dict[int, int]]:
    nodes = np.flatnonzero((ent.layout.pool == pool) & ent.layout.accepting).tolist()
    for chosen in combinations_with_replacement(nodes, ent.snapshot.workloads[row].tasks):
        placement: dict[int, int] = {}
        for node in chosen:
            placement[node] = placement.get(node, 0) + 1
        yield placement


def _start(ent: Entitlement, row: int, pool: int, nodes: dict[int, int], charged: bool, express: bool, lost: int) -> _Choice:
    cost = spread_cost(ent, row, np.array(sorted(nodes), dtype=np.int64)) + lost
    held = (int(ent.works.leaf[row]), pool, int(ent.works.gpus[row])) if charged else None
    return _Choice(row, "start", cost, _use(ent, row, nodes), held, Placed(nodes, charged=charged, express=express))


def _use(ent: Entitlement, row: int, nodes: dict[int, int]) -> dict[int, tuple[int, int, int]]:
    gpus, cpus, memory = shape_of(ent.snapshot.workloads[row])
    return {node: (gpus * tasks, cpus * tasks, memory * tasks) for node, tasks in nodes.items()}


class _Scorer:
    """The terms that depend on several workloads at once."""

    def __init__(self, ent: Entitlement) -> None:
        self.ent = ent
        self.whole = whole_before(ent)
        self.idle_cost = idle_cost(ent.snapshot.policy)
        self.fragmentation_cost = fragmentation_cost(ent.snapshot.policy)
        self.gpus = ent.layout.capacity[0].tolist()
        self.accepting = np.flatnonzero(ent.layout.accepting).tolist()
        self.domains = [
            np.flatnonzero((ent.layout.domain[level] == domain) & (ent.layout.pool == pool)).tolist()
            for level, free in enumerate(self.whole)
            for domain, pool in np.argwhere(free)
        ]

    def joint(self, chosen: list[_Choice], free: list[list[int]]) -> int:
        idle = sum(free[node][0] for node in self.accepting)
        broken = 0
        for nodes in self.domains:
            left = sum(free[node][0] for node in nodes)
            broken += min(left, sum(self.gpus[node] for node in nodes) - left)
        return self.idle_cost * idle + self.fragmentation_cost * broken + self._unfairness(chosen)

    def _unfairness(self, chosen: list[_Choice]) -> int:
        held: dict[tuple[int, int], int] = {}
        for choice in chosen:
            if choice.charged:
                leaf, pool, gpus = choice.charged
                for vertex in self.ent.tree.path(leaf):
                    held[vertex, pool] = held.get((vertex, pool), 0) + gpus
        return sum(curve.value(held.get(place, 0)) for place, curve in self.ent.market.curves.items())


def _plan(ent: Entitlement, chosen: list[_Choice]) -> Plan:
    return Plan(
        starts={choice.row: choice.placed for choice in chosen if choice.placed},
        stops=frozenset(choice.row for choice in chosen if choice.kind in ("stop", "move")) | forced_rows(ent),
        promotions=frozenset(choice.row for choice in chosen if choice.kind == "promote"),
    )
