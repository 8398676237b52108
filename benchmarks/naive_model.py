"""The naive model: one integer variable per workload and node (a Boolean where one task fits), rule by rule."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from ortools.sat.python import cp_model

from allocator.domain import Run
from allocator.entitlement import Entitlement
from allocator.entitlement.costs import express_cost, fragmentation_cost, idle_cost, spread_cost, spread_costs, whole_before
from allocator.entitlement.model import Forced
from allocator.epoch.solution import steps_between
from allocator.topology import shape_of, suitable
from allocator.topology.layout import IntArray

Var = cp_model.IntVar
Expr = cp_model.LinearExpr
Mode = tuple[int, bool, bool]
"""Pool, whether charged, whether express."""


@dataclass(slots=True)
class Work:
    """Variables of a workload that may start: how it does (`modes`), and its tasks on each node."""

    row: int
    modes: dict[Mode, Var]
    tasks: dict[int, Var]


@dataclass(slots=True)
class Model:
    """The model while it is built; `terms` add up to the objective relative to keep."""

    ent: Entitlement
    cp: cp_model.CpModel = field(default_factory=cp_model.CpModel)
    works: list[Work] = field(default_factory=list)
    stops: dict[int, Var] = field(default_factory=dict)
    promotions: dict[int, Var] = field(default_factory=dict)
    terms: list[Expr] = field(default_factory=list)

    def flag(self) -> Var:
        """A new Boolean."""
        return self.cp.new_bool_var("")

    def count(self, most: int) -> Var:
        """A new integer from 0 on."""
        return self.cp.new_int_var(0, max(0, most), "")


def total(terms: Iterable[Expr | int]) -> Expr:
    """A sum, also of nothing."""
    return cp_model.LinearExpr.sum(list(terms))


def build(ent: Entitlement) -> Model:
    """The whole model."""
    model = Model(ent)
    _add_running(model)
    for row in np.flatnonzero(ent.works.candidate).tolist():
        _add_start(model, row)
    for row in np.flatnonzero(ent.works.movable).tolist():
        _add_move(model, row)
    _capacity(model)
    _funding(model)
    _limits(model)
    _licence(model)
    _fragmentation(model)
    _unfairness(model)
    model.cp.minimize(total(model.terms))
    return model


def _add_running(model: Model) -> None:
    """Stops and promotions of what runs."""
    ent = model.ent
    works, policy = ent.works, ent.snapshot.policy
    for row in np.flatnonzero(works.stoppable).tolist():
        stop = model.stops[row] = model.flag()
        nodes = _nodes_of(ent, row)
        cost = int(works.lost_cost[row]) + int(works.order_cost[row]) + idle_cost(policy) * int(works.gpus[row])
        model.terms.append((cost - spread_cost(ent, row, nodes)) * stop)
    for row in np.flatnonzero(works.promotable).tolist():
        until = ent.snapshot.now + int(works.promise[row])
        if np.all(ent.layout.deadline[_nodes_of(ent, row)] >= until):
            model.promotions[row] = model.flag()
            if row in model.stops:
                model.cp.add_implication(model.promotions[row], model.stops[row].negated())


def _add_move(model: Model, row: int) -> None:
    """How running work may start elsewhere: if it is stopped, in its pool, and charged if it is (relocation)."""
    _add_start(model, row)
    own, pool, charged = model.works[-1], int(model.ent.works.run_pool[row]), bool(model.ent.works.charged[row])
    for mode, variable in own.modes.items():
        if mode[0] != pool or (charged and not mode[1]):
            model.cp.add(variable == 0)
    model.cp.add(total(own.modes.values()) <= model.stops[row])


def _add_start(model: Model, row: int) -> None:
    """How a workload may start, its tasks on every node, and what starting saves (gang, topology, eligibility, health)."""
    ent = model.ent
    work, layout = ent.snapshot.workloads[row], ent.layout
    nodes = np.flatnonzero(suitable(layout, work) & layout.accepting).tolist()
    shape = shape_of(work)
    room = {n: min([work.tasks, *(int(layout.capacity[r, n]) // need for r, need in enumerate(shape) if need)]) for n in nodes}
    modes = {(pool, *mode): model.flag() for pool in sorted({int(layout.pool[n]) for n in nodes}) for mode in _modes(ent, row)}
    tasks = {node: model.count(most) for node, most in room.items() if most > 0}
    own = Work(row, modes, tasks)
    model.works.append(own)
    model.cp.add_at_most_one(modes.values())
    for pool in sorted({mode[0] for mode in modes}):
        here = [variable for mode, variable in modes.items() if mode[0] == pool]
        model.cp.add(total(tasks[n] for n in tasks if layout.pool[n] == pool) == work.tasks * total(here))
    _before_drains(model, own)
    _topology(model, own)
    saved = int(ent.works.order_cost[row]) + idle_cost(ent.snapshot.policy) * int(ent.works.gpus[row])
    saved += express_cost(ent.snapshot.policy, int(ent.works.gpus[row])) if ent.works.express[row] else 0
    model.terms.extend(-saved * variable for variable in modes.values())


def _modes(ent: Entitlement, row: int) -> list[tuple[bool, bool]]:
    """Whether charged, whether express."""
    work = ent.snapshot.workloads[row]
    if ent.works.express[row]:
        return [(True, True)]
    if ent.works.unallocated[row]:
        return [(False, False)]
    return [(True, False), (False, False)] if work.unfunded == "run" else [(True, False)]


def _before_drains(model: Model, own: Work) -> None:
    """Charged starts only where the promise ends before an announced drain."""
    until = model.ent.snapshot.now + int(model.ent.works.promise[own.row])
    free = total(variable for (_, charged, _), variable in own.modes.items() if not charged)
    for node, tasks in own.tasks.items():
        if model.ent.layout.deadline[node] < until:
            model.cp.add(tasks <= model.ent.snapshot.workloads[own.row].tasks * free)


def _topology(model: Model, own: Work) -> None:
    """The required level, segments, and the cost of every domain beyond the fewest."""
    ent = model.ent
    work, levels = ent.snapshot.workloads[own.row], ent.layout.levels
    started = total(own.modes.values())
    if work.topology.required is not None:
        domains = _by_domain(ent, own, levels.index(work.topology.required))
        inside = [model.flag() for _ in domains]
        for chosen, tasks in zip(inside, domains, strict=True):
            model.cp.add(total(tasks) == work.tasks * chosen)
        model.cp.add(total(inside) == started)
    if work.topology.segment is not None:
        size, odd = work.topology.segment.tasks, []
        for tasks in _by_domain(ent, own, levels.index(work.topology.segment.level)):
            odd.append(model.flag())
            rest = model.count(size - 1)
            model.cp.add(total(tasks) == size * model.count(work.tasks // size) + rest)
            model.cp.add(rest <= (size - 1) * odd[-1])
        model.cp.add_at_most_one(odd)
    if work.tasks > 1:
        for pool in sorted({mode[0] for mode in own.modes}):
            _spread(model, own, pool)


def _spread(model: Model, own: Work, pool: int) -> None:
    cost, fewest = spread_costs(model.ent, own.row, pool)
    tasks_of = model.ent.snapshot.workloads[own.row].tasks
    started = total(variable for mode, variable in own.modes.items() if mode[0] == pool)
    for level in np.flatnonzero(cost).tolist():
        touched = []
        for tasks in _by_domain(model.ent, own, level, pool):
            touched.append(model.flag())
            model.cp.add(total(tasks) <= tasks_of * touched[-1])
        model.cp.add(total(touched) >= int(fewest[level]) * started)
        model.terms.append(int(cost[level]) * (total(touched) - int(fewest[level]) * started))


def _by_domain(ent: Entitlement, own: Work, level: int, pool: int | None = None) -> list[list[Var]]:
    found: dict[int, list[Var]] = {}
    for node, tasks in own.tasks.items():
        if pool is None or ent.layout.pool[node] == pool:
            found.setdefault(int(ent.layout.domain[level, node]), []).append(tasks)
    return list(found.values())


def _capacity(model: Model) -> None:
    """On every node, GPUs, CPUs and memory of what stays and what starts."""
    ent = model.ent
    free, needs = _room(model)
    for node in np.flatnonzero(ent.layout.accepting).tolist():
        for r in range(3):
            starts = _needs_on(model, model.works, node, r)
            leaves = [own[node][r] * model.stops[row] for row, own in needs.items() if node in own]
            model.cp.add(total(starts) <= int(free[r, node]) + total(leaves))


def _room(model: Model) -> tuple[IntArray, dict[int, dict[int, tuple[int, int, int]]]]:
    """What is free while nothing stops by choice, and what each run that may be stopped holds on its nodes."""
    ent = model.ent
    free, needs = ent.layout.capacity.copy(), {}
    for row in np.flatnonzero(ent.works.running & (ent.works.forced == Forced.NONE)).tolist():
        gpus, cpus, memory = shape_of(ent.snapshot.workloads[row])
        own = {node: (gpus * t, cpus * t, memory * t) for node, t in _placement(ent, row).items()}
        for node, need in own.items():
            free[:, node] -= need
        if row in model.stops:
            needs[row] = own
    return free, needs


def _needs_on(model: Model, works: Iterable[Work], node: int, resource: int) -> list[Expr]:
    """What the starts of some workloads need on a node."""
    shapes = ((shape_of(model.ent.snapshot.workloads[own.row])[resource], own) for own in works)
    return [need * own.tasks[node] for need, own in shapes if need and node in own.tasks]


def _funding(model: Model) -> None:
    """New promises are funded, and nothing runs uncharged that could be funded."""
    ent = model.ent
    made: dict[tuple[int, int], list[Expr]] = {}
    free: list[tuple[int, int, Expr | int, list[Expr | int]]] = []
    for own in model.works:
        for (pool, charged, express), variable in own.modes.items():
            if charged and not express:
                _promise(ent, own.row, pool, variable, made)
            elif not charged and not ent.works.unallocated[own.row]:
                free.append((own.row, pool, variable, []))
    for row, variable in model.promotions.items():
        pool = int(ent.works.run_pool[row])
        _promise(ent, row, pool, variable, made)
        free.append((row, pool, 1, [variable, model.stops.get(row, 0)]))
    for (vertex, pool), costs in made.items():
        model.cp.add(total(costs) <= int(ent.market.available[vertex, pool]))
    for row, pool, runs, excuses in free:
        cost = int(ent.works.promise_cost[row])
        short = [_short(model, made, vertex, pool, cost) for vertex in ent.tree.funding_path(int(ent.works.leaf[row]))]
        model.cp.add(total([*short, *excuses]) >= runs)


def _promise(ent: Entitlement, row: int, pool: int, variable: Var, made: dict[tuple[int, int], list[Expr]]) -> None:
    cost = int(ent.works.promise_cost[row])
    for vertex in ent.tree.funding_path(int(ent.works.leaf[row])):
        made.setdefault((vertex, pool), []).append(cost * variable)


def _short(model: Model, made: dict[tuple[int, int], list[Expr]], vertex: int, pool: int, cost: int) -> Var:
    """True only if what this decision leaves of a budget is less than a cost."""
    short, available = model.flag(), int(model.ent.market.available[vertex, pool])
    model.cp.add(total(made.get((vertex, pool), [])) >= available - cost + 1).only_enforce_if(short)
    return short


def _limits(model: Model) -> None:
    """gpu_limit, the express lane, and max_preemptions."""
    ent = model.ent
    for vertex in np.flatnonzero(ent.tree.gpu_limit >= 0).tolist():
        under = [own for own in model.works if vertex in ent.tree.path(int(ent.works.leaf[own.row]))]
        starts = total(int(ent.works.gpus[own.row]) * total(own.modes.values()) for own in under)
        rows = [row for row in _staying(ent) if vertex in ent.tree.path(int(ent.works.leaf[row]))]
        kept = total(int(ent.works.gpus[row]) * (1 - model.stops.get(row, 0)) for row in rows)
        anything = model.flag()
        for own in under:
            model.cp.add(total(own.modes.values()) <= anything)
        if under:
            model.cp.add(starts + kept <= int(ent.tree.gpu_limit[vertex])).only_enforce_if(anything)
    for pool in range(len(ent.layout.pools)):
        fresh = [row for row in _staying(ent) if ent.works.fresh[row] and ent.works.run_pool[row] == pool]
        held = sum(int(ent.works.gpus[row]) for row in fresh if _run(ent, row).express)
        lane = [(own.row, v) for own in model.works for (p, _, express), v in own.modes.items() if express and p == pool]
        if lane:
            used = total(int(ent.works.gpus[row]) * variable for row, variable in lane)
            model.cp.add(used <= int(ent.express_room[pool]) - held)
    if ent.snapshot.policy.max_preemptions is not None:
        now = ent.snapshot.now
        done = sum(1 for work in ent.snapshot.workloads if work.stopped and work.stopped.at == now and work.stopped.charged)
        charged = [stop for row, stop in model.stops.items() if ent.works.charged[row]]
        model.cp.add(total(charged) <= max(0, ent.snapshot.policy.max_preemptions - done))


def _licence(model: Model) -> None:
    """Charged work without a licence stops only where express starts need its place, or to move."""
    ent = model.ent
    free, needs = _room(model)
    moves = {own.row: list(own.modes.values()) for own in model.works if ent.works.movable[own.row]}
    express = [own for own in model.works if ent.works.express[own.row]]
    for row, stop in model.stops.items():
        if not ent.works.charged[row] or ent.works.licensed[row]:
            continue
        reasons = [stop.negated(), *moves.get(row, [])]
        for node in needs[row]:
            for r in range(3):
                wanted = _needs_on(model, express, node, r)
                if not wanted:
                    continue
                left = [own[node][r] * model.stops[other] for other, own in needs.items() if other != row and node in own]
                reasons.append(model.flag())
                model.cp.add(total(wanted) - total(left) >= int(free[r, node]) + 1).only_enforce_if(reasons[-1])
        model.cp.add_bool_or(reasons)


def _fragmentation(model: Model) -> None:
    """Nodes and domains that were wholly free and are broken up."""
    ent = model.ent
    cost = fragmentation_cost(ent.snapshot.policy)
    for level, whole in enumerate(whole_before(ent) if cost else ()):
        for domain, pool in np.argwhere(whole).tolist():
            nodes = np.flatnonzero((ent.layout.domain[level] == domain) & (ent.layout.pool == pool)).tolist()
            _broken(model, nodes, cost)


def _broken(model: Model, nodes: Sequence[int], cost: int) -> None:
    ent = model.ent
    capacity = int(ent.layout.capacity[0, nodes].sum())
    now = sum(
        _placement(ent, row).get(node, 0) * ent.snapshot.workloads[row].gpus_per_task
        for row in _staying(ent)
        if ent.works.fresh[row]
        for node in nodes
    )
    placed = total([now, *(need for node in nodes for need in _needs_on(model, model.works, node, 0))])
    broken, mostly_full = model.count(capacity // 2), model.flag()
    model.cp.add(broken >= placed).only_enforce_if(mostly_full.negated())
    model.cp.add(broken >= capacity - placed).only_enforce_if(mostly_full)
    model.terms.append(cost * (broken - min(now, capacity - now)))


def _unfairness(model: Model) -> None:
    """The curve of every vertex: steps that fill in order, since their slopes rise."""
    ent = model.ent
    rows = [row for row in _staying(ent) if ent.works.charged[row]]
    change: dict[tuple[int, int], list[Expr | int]] = {}
    base: dict[tuple[int, int], int] = {}
    for row in rows:
        for vertex in ent.tree.path(int(ent.works.leaf[row])):
            place = vertex, int(ent.works.run_pool[row])
            base[place] = base.get(place, 0) + int(ent.works.gpus[row])
            change.setdefault(place, []).append(-int(ent.works.gpus[row]) * model.stops.get(row, 0))
    added = [(own.row, pool, v) for own in model.works for (pool, charged, _), v in own.modes.items() if charged]
    added += [(row, int(ent.works.run_pool[row]), v) for row, v in model.promotions.items()]
    for row, pool, variable in added:
        for vertex in ent.tree.path(int(ent.works.leaf[row])):
            change.setdefault((vertex, pool), []).append(int(ent.works.gpus[row]) * variable)
    for (vertex, pool), curve in ent.market.curves.items():
        if not (moves := change.get((vertex, pool))):
            continue
        held, capacity = base.get((vertex, pool), 0), int(ent.market.installed[pool])
        steps = [(model.count(stop - start), slope) for start, stop, slope in steps_between(curve, 0, capacity)]
        model.cp.add(held + total(moves) == total(step for step, _ in steps))
        model.terms.append(total(slope * step for step, slope in steps) + curve.value(0) - curve.value(held))


def _staying(ent: Entitlement) -> list[int]:
    """Running work that no forced stop ends."""
    rows: list[int] = np.flatnonzero(ent.works.running & (ent.works.forced == Forced.NONE)).tolist()
    return rows


def _run(ent: Entitlement, row: int) -> Run:
    run = ent.snapshot.workloads[row].run
    assert run is not None, f"row {row} does not run"
    return run


def _placement(ent: Entitlement, row: int) -> dict[int, int]:
    return {ent.layout.index[name]: tasks for name, tasks in _run(ent, row).placement.items()}


def _nodes_of(ent: Entitlement, row: int) -> IntArray:
    return np.array(sorted(_placement(ent, row)), dtype=np.int64)
