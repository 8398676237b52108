"""Rules about where work lies: capacity, gang, single_node_task, topology, eligibility, health."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from allocator.entitlement.forced import UNFORCED
from allocator.entitlement.model import Forced
from allocator.verify.case import RESOURCES, Case
from allocator.verify.physical import unsuitable
from allocator.verify.verdict import Violation


def capacity(case: Case) -> Iterator[Violation]:
    """Ensures that on every node the GPUs, CPUs and memory of kept and started tasks fit."""
    used, limit = case.after.used, case.ent.layout.capacity
    for node in np.flatnonzero((used > limit).any(axis=0)).tolist():
        amounts = zip(RESOURCES, used[:, node].tolist(), limit[:, node].tolist(), strict=True)
        over = [f"{use} of {most} {name}" for name, use, most in amounts if use > most]
        there = np.array(sorted(row for row, nodes in case.after.placement.items() if node in nodes), dtype=np.int64)
        yield Violation("capacity", case.node(node), f"{', '.join(over)} would be in use by {case.names(there)}")


def gang(case: Case) -> Iterator[Violation]:
    """Ensures that all tasks of a workload run, in one pool, or none."""
    layout = case.ent.layout
    for row, placement in case.rows.placements.items():
        placed, tasks = sum(placement.values()), case.work(row).tasks
        if placed != tasks:
            yield Violation("gang", case.id(row), f"{placed} of its {tasks} tasks are placed")
        pools = sorted({layout.pools[layout.pool[node]] for node in placement})
        if len(pools) > 1:
            yield Violation("gang", case.id(row), f"is spread over the pools {', '.join(pools)}")


def single_node_task(case: Case) -> Iterator[Violation]:
    """Ensures that a task lies on one node."""
    limit = case.ent.layout.capacity
    for row, placement in case.rows.placements.items():
        shape = case.after.shapes[:, row]
        for node in placement:
            short = [name for r, name in enumerate(RESOURCES) if shape[r] > limit[r, node]]
            if short:
                detail = f"one task needs more {' and '.join(short)} than {case.node(node)} has"
                yield Violation("single_node_task", case.id(row), detail)
                break


def topology(case: Case) -> Iterator[Violation]:
    """Ensures that a required level is met, and that segments stay together but for one remainder."""
    for row, placement in case.rows.placements.items():
        wish = case.work(row).topology
        if wish.required is not None:
            domains = _tasks_by_domain(case, placement, wish.required)
            if domains is None or len(domains) > 1:
                touched = "a level that does not exist" if domains is None else f"{len(domains)} domains"
                yield Violation("topology", case.id(row), f"must lie in one {wish.required}, but is placed on {touched}")
        if wish.segment is not None:
            domains = _tasks_by_domain(case, placement, wish.segment.level) or Counter[int]()
            torn = [tasks for tasks in domains.values() if tasks % wish.segment.tasks]
            if len(torn) > 1:
                detail = f"has {len(torn)} domains of level {wish.segment.level} without whole segments of {wish.segment.tasks}"
                yield Violation("topology", case.id(row), detail)


def eligibility(case: Case) -> Iterator[Violation]:
    """Ensures that work lies in a pool it accepts, on nodes with its labels that it has not excluded."""
    nodes = case.ent.layout.nodes
    for row, placement in case.rows.placements.items():
        work = case.work(row)
        if case.ent.works.leaf[row] < 0:
            yield Violation("eligibility", work.id, f"belongs to {work.allocation}, which is no leaf of the budget tree")
        for node in placement:
            why = unsuitable(work, nodes[node])
            if why:
                yield Violation("eligibility", work.id, f"is placed on {case.node(node)}, {why}")
                break


def health(case: Case) -> Iterator[Violation]:
    """Ensures that nothing starts on a node that is down, draining or drains before the promise ends, and that work leaves
    dead and draining nodes."""
    layout, forced = case.ent.layout, case.ent.works.forced
    for row, placement in case.rows.placements.items():
        for node in placement:
            if not layout.accepting[node]:
                state = "down" if layout.down[node] else "draining"
                yield Violation("health", case.id(row), f"is started on {case.node(node)}, which is {state}")
                break
    for row in (case.after.charged & (case.after.started | case.after.promoted)).nonzero()[0].tolist():
        for node in case.after.placement[row]:
            if layout.accepting[node] and layout.deadline[node] < case.promise_end(row):
                detail = (
                    f"is promised {case.node(node)} until {case.promise_end(row)}, but it drains at {layout.deadline[node]}"
                )
                yield Violation("health", case.id(row), detail)
                break
    for row in ((forced != UNFORCED) & case.after.kept).nonzero()[0].tolist():
        why = Forced(int(forced[row])).name.lower()
        yield Violation("health", case.id(row), f"must stop ({why}), but is named in no preemption")


def _tasks_by_domain(case: Case, placement: Mapping[int, int], level: str) -> Counter[int] | None:
    """Tasks by domain of a level; None if there is no such level."""
    layout = case.ent.layout
    if level not in layout.levels:
        return None
    domain = layout.domain[layout.levels.index(level)]
    found: Counter[int] = Counter()
    for node, tasks in placement.items():
        found[int(domain[node])] += tasks
    return found
