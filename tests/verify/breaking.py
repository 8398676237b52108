"""Breaks a valid decision at one random place: for each rule a function that returns the broken case, or None where the
decision offers no such place. A break may alter the snapshot instead, where the rule is about a limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np

from allocator.domain import Decision, LastStop, Preemption, Renewal, Reservation, Snapshot, Start, StopReason, Workload
from allocator.entitlement import Entitlement, entitle
from allocator.topology import BoolArray
from allocator.verify.case import Case
from tests.builders import with_score


@dataclass(frozen=True, slots=True)
class Valid:
    """A decision that keeps every rule, and what is known of it."""

    snap: Snapshot
    ent: Entitlement
    answer: Decision
    case: Case
    rng: Random

    @classmethod
    def of(cls, snap: Snapshot, answer: Decision, seed: int) -> Valid:
        answer = replace(answer, snapshot="", waiting=())
        ent = entitle(snap.canonical())
        return cls(snap, ent, answer, Case.of(ent, answer), Random(seed))

    def pick(self, mask: BoolArray) -> int | None:
        """A random row of the mask."""
        rows: list[int] = np.flatnonzero(mask).tolist()
        return self.rng.choice(rows) if rows else None

    def some_start(self, test: Callable[[Start, Workload], bool] = lambda start, work: True) -> Start | None:
        """A random start that passes the test."""
        works = {work.id: work for work in self.snap.workloads}
        starts = [start for start in self.answer.starts if test(start, works[start.workload])]
        return self.rng.choice(starts) if starts else None

    def with_start(self, old: Start, **fields: Any) -> tuple[Snapshot, Decision]:
        """The decision with one start changed."""
        starts = tuple(replace(start, **fields) if start is old else start for start in self.answer.starts)
        return self.snap, replace(self.answer, starts=starts)

    def with_stop(self, row: int) -> tuple[Snapshot, Decision]:
        """The decision with one stop more, for whoever starts on its nodes if anybody does."""
        work = self.ent.snapshot.workloads[row]
        assert work.run is not None
        there = [start.workload for start in self.answer.starts if set(start.placement) & set(work.run.placement)]
        stop = Preemption(
            workload=work.id,
            reason=StopReason.SHARE,
            beneficiaries=tuple(there),
            lost_gpu_seconds=int(self.ent.works.lost_gpu_seconds[row]),
            stop_by=self.snap.now,
        )
        return self.snap, replace(self.answer, preemptions=(*self.answer.preemptions, stop))


Broken = tuple[Snapshot, Decision] | None


def capacity(valid: Valid) -> Broken:
    """Move tasks to a node that is full."""
    layout, start = valid.ent.layout, valid.some_start()
    if start is None:
        return None
    tasks = sum(start.placement.values())
    use = tasks * next(work.gpus_per_task for work in valid.snap.workloads if work.id == start.workload)
    pool = layout.pool[layout.index[next(iter(start.placement))]]
    full = [
        name
        for name, node in layout.index.items()
        if name not in start.placement and layout.pool[node] == pool and valid.case.after.free[0, node] < use
    ]
    return valid.with_start(start, placement={valid.rng.choice(full): tasks}) if full else None


def gang(valid: Valid) -> Broken:
    """Drop or repeat a task."""
    start = valid.some_start()
    if start is None:
        return None
    name = valid.rng.choice(sorted(start.placement))
    return valid.with_start(start, placement={**start.placement, name: start.placement[name] + valid.rng.choice([-1, 1])})


def single_node_task(valid: Valid) -> Broken:
    """Cut a task in two."""
    start = valid.some_start()
    if start is None:
        return None
    name = valid.rng.choice(sorted(start.placement))
    return valid.with_start(start, placement={**start.placement, name: start.placement[name] - 0.5})


def topology(valid: Valid) -> Broken:
    """Move a task out of the required domain."""
    start = valid.some_start(lambda start, work: work.topology.required not in (None, "cluster") and work.tasks > 1)
    if start is None:
        return None
    layout = valid.ent.layout
    level = next(work.topology.required for work in valid.snap.workloads if work.id == start.workload)
    domain = layout.domain[layout.levels.index(str(level))]
    first = layout.index[next(iter(start.placement))]
    others = [
        name for name, node in layout.index.items() if domain[node] != domain[first] and layout.pool[node] == layout.pool[first]
    ]
    if not others:
        return None
    name, placement = valid.rng.choice(sorted(start.placement)), dict(start.placement)
    placement[name] -= 1
    moved = {name: tasks for name, tasks in placement.items() if tasks} | {valid.rng.choice(others): 1}
    return valid.with_start(start, placement=moved) if len(moved) > 1 else None


def eligibility(valid: Valid) -> Broken:
    """Let a node that is used be excluded, or start on a node that does not exist."""
    start = valid.some_start()
    if start is None:
        return None
    name = valid.rng.choice(sorted(start.placement))
    if valid.rng.random() < 0.5:
        return valid.with_start(start, placement={"no such node": sum(start.placement.values())})
    works = [replace(w, exclude_nodes=(name,)) if w.id == start.workload else w for w in valid.snap.workloads]
    return replace(valid.snap, workloads=tuple(works)), valid.answer


def protection(valid: Valid) -> Broken:
    """Stop protected work, or shorten a promise."""
    row = valid.pick(valid.ent.works.protected & (valid.ent.works.forced == 0))
    if row is not None and valid.rng.random() < 0.5:
        return valid.with_stop(row)
    start = valid.some_start(lambda start, work: start.charged)
    return None if start is None else valid.with_start(start, protected_until=(start.protected_until or 0) - 1)


def health(valid: Valid) -> Broken:
    """Keep what must stop, or start on a node that is leaving."""
    row = valid.pick(valid.ent.works.forced > 0)
    if row is not None:
        name = valid.case.id(row)
        keeps = tuple(stop for stop in valid.answer.preemptions if stop.workload != name)
        starts = tuple(start for start in valid.answer.starts if start.workload != name)
        return valid.snap, replace(valid.answer, preemptions=keeps, starts=starts)
    start, layout = valid.some_start(), valid.ent.layout
    bad = [name for name, node in layout.index.items() if not layout.accepting[node]]
    if start is None or not bad:
        return None
    return valid.with_start(start, placement={valid.rng.choice(bad): sum(start.placement.values())})


def funding(valid: Valid) -> Broken:
    """Charge what is not funded, leave what is uncharged, or leave a promotion out."""
    if valid.answer.promotions and valid.rng.random() < 0.5:
        return valid.snap, replace(valid.answer, promotions=valid.answer.promotions[1:])
    start = valid.some_start(lambda start, work: not start.express)
    if start is None:
        return None
    until = None if start.charged else valid.snap.now + int(valid.ent.works.promise[_row(valid, start.workload)])
    return valid.with_start(start, charged=not start.charged, protected_until=until)


def gpu_limit(valid: Valid) -> Broken:
    """Lower a limit below what is held where something starts."""
    start = valid.some_start()
    if start is None:
        return None
    vertex = valid.rng.choice(valid.ent.tree.path(int(valid.ent.works.leaf[_row(valid, start.workload)])))
    limit = int(valid.case.room.held[vertex]) - 1
    name = valid.ent.tree.ids[vertex]
    budgets = [replace(b, gpu_limit=limit) if b.id == name else b for b in valid.snap.budgets]
    return replace(valid.snap, budgets=tuple(budgets)), valid.answer


def express(valid: Valid) -> Broken:
    """Swap the mark of a start."""
    start = valid.some_start(lambda start, work: start.charged)
    return None if start is None else valid.with_start(start, express=not start.express)


def lease(valid: Valid) -> Broken:
    """Renew something."""
    row = valid.pick(valid.ent.works.running)
    if row is None:
        return None
    renewal = Renewal(workload=valid.case.id(row), protected_until=valid.snap.now + 60)
    return valid.snap, replace(valid.answer, renewals=(renewal,))


def reservation(valid: Valid) -> Broken:
    """Reserve the cluster."""
    row, now = valid.pick(~valid.case.after.running), valid.snap.now
    if row is None:
        return None
    pool = valid.ent.layout.pools[0]
    made = Reservation(workload=valid.case.id(row), pool=pool, domain=(), nodes=1, start=now, eligible_since=now, bound=now)
    return valid.snap, replace(valid.answer, reservations=(made,))


def max_preemptions(valid: Valid) -> Broken:
    """Allow one stop less than there are."""
    count = int((valid.case.after.voluntary & valid.ent.works.charged).sum())
    return (_with_policy(valid, max_preemptions=count - 1), valid.answer) if count else None


def licence(valid: Valid) -> Broken:
    """Stop charged work of a leaf that holds no more than its entitlement."""
    works = valid.ent.works
    row = valid.pick(works.stoppable & works.charged & ~works.licensed & valid.case.after.kept)
    if row is None or (valid.answer.starts and any(start.express for start in valid.answer.starts)):
        return None
    return valid.with_stop(row)


def relocation(valid: Valid) -> Broken:
    """Start elsewhere what was stopped: free of charge if it is charged, and in any case if it may not move."""
    after, works = valid.case.after, valid.ent.works
    row = valid.pick(after.voluntary & ~after.started & (works.charged | ~works.movable))
    if row is None:
        return None
    work = valid.ent.snapshot.workloads[row]
    node = valid.rng.choice(valid.ent.layout.names)
    again = Start(workload=work.id, placement={node: work.tasks}, charged=False, protected_until=None)
    return valid.snap, replace(valid.answer, starts=(*valid.answer.starts, again))


def commitment(valid: Valid) -> Broken:
    """Start again what is stopped by choice, or was stopped at this instant."""
    start = valid.some_start(lambda start, work: work.run is None)
    if start is None:
        return None
    works = {work.id: work for work in valid.snap.workloads}
    pool = valid.ent.layout.pools[0]
    work = works[start.workload]
    just = replace(work, stopped=_last_stop(valid.snap.now, pool, work))
    return replace(valid.snap, workloads=tuple(just if w.id == work.id else w for w in valid.snap.workloads)), valid.answer


def beneficiary(valid: Valid) -> Broken:
    """Take the beneficiaries of a stop away, or name the wrong reason."""
    if not valid.answer.preemptions:
        return None
    stop = valid.rng.choice(valid.answer.preemptions)
    wrong: list[dict[str, Any]] = [{"beneficiaries": ("nobody",)}, {"reason": StopReason.RELOCATE}]
    wrong += [{"beneficiaries": ()}] if stop.beneficiaries else []
    changed = replace(stop, **valid.rng.choice(wrong))
    return valid.snap, replace(valid.answer, preemptions=tuple(changed if s is stop else s for s in valid.answer.preemptions))


def charged_first(valid: Valid) -> Broken:
    """Stop charged work that nobody charged needs the place of."""
    works = valid.ent.works
    row = valid.pick(works.stoppable & works.charged & valid.case.after.kept)
    return None if row is None else valid.with_stop(row)


def minimal(valid: Valid) -> Broken:
    """Stop something that is in nobody's way."""
    row = valid.pick(valid.ent.works.stoppable & valid.case.after.kept)
    return None if row is None else valid.with_stop(row)


def work_conservation(valid: Valid) -> Broken:
    """Leave a start out, but for gangs whose reservation is due: those must start."""
    due = {valid.case.id(row) for row in np.flatnonzero(valid.ent.works.due).tolist()}
    start = valid.some_start(lambda start, work: work.id not in due)
    if start is None:
        return None
    return valid.snap, replace(valid.answer, starts=tuple(row for row in valid.answer.starts if row is not start))


def unallocated_last(valid: Valid) -> Broken:
    """Leave an entitled start out and keep the unallocated work that made room for it."""
    ent, entitled = valid.ent, valid.ent.works.entitled
    for start in valid.answer.starts:
        victims = [stop for stop in valid.answer.preemptions if start.workload in stop.beneficiaries]
        rows = [_row(valid, stop.workload) for stop in victims]
        alone = all(stop.beneficiaries == (start.workload,) for stop in victims)
        gpus = sum(int(ent.works.gpus[row]) for row in rows)
        row = _row(valid, start.workload)
        if not (rows and alone and entitled[row] and start.charged) or any(ent.works.charged[victim] for victim in rows):
            continue
        if gpus > int(ent.works.gpus[row]) or ent.works.forced[row]:
            continue
        return valid.snap, replace(
            valid.answer,
            starts=tuple(other for other in valid.answer.starts if other is not start),
            preemptions=tuple(stop for stop in valid.answer.preemptions if stop not in victims),
        )
    return None


def score(valid: Valid) -> Broken:
    """Claim another objective, another term, a bound that is too high, or another loss."""
    solver, off = valid.answer.solver, valid.rng.choice([-1, 1, 1000])
    name = valid.rng.choice(sorted(solver.terms))
    lies = [
        replace(solver, objective=solver.objective + off),
        replace(solver, terms={**solver.terms, name: solver.terms[name] + off}),
        replace(solver, bound=solver.objective + abs(off)),
        replace(solver, bound=solver.objective - 10**6, gap=0.0),
    ]
    if valid.answer.preemptions and valid.rng.random() < 0.3:
        first, *others = valid.answer.preemptions
        wrong = replace(first, lost_gpu_seconds=first.lost_gpu_seconds + 1)
        return valid.snap, replace(valid.answer, preemptions=(wrong, *others))
    return valid.snap, replace(valid.answer, solver=valid.rng.choice(lies))


def document(valid: Valid) -> Broken:
    """Answer another question, or name what is unknown."""
    lies: list[dict[str, Any]] = [{"now": valid.snap.now + 1}, {"snapshot": "sha256:0"}]
    if valid.answer.starts:
        lies.append({"starts": (*valid.answer.starts, replace(valid.answer.starts[0], workload="nobody"))})
    if valid.answer.preemptions:
        lies.append({"preemptions": (*valid.answer.preemptions, valid.answer.preemptions[0])})
    return valid.snap, replace(valid.answer, **valid.rng.choice(lies))


def _row(valid: Valid, name: str) -> int:
    return next(row for row, work in enumerate(valid.ent.snapshot.workloads) if work.id == name)


def _with_policy(valid: Valid, **fields: Any) -> Snapshot:
    return replace(valid.snap, policy=replace(valid.snap.policy, **fields))


def _last_stop(now: int, pool: str, work: Workload) -> LastStop:
    return LastStop(at=now, pool=pool, gpus=work.gpus, charged=True)


BREAKS: Mapping[str, Callable[[Valid], Broken]] = {
    function.__name__: function
    for function in (
        document, capacity, gang, single_node_task, topology, eligibility, protection, health, funding, gpu_limit, express,
        lease, max_preemptions, licence, relocation, reservation, commitment, beneficiary, charged_first, minimal,
        work_conservation, unallocated_last, score,
    )
}  # fmt: skip
"""How to break each rule, by its name."""


def broken_case(name: str, valid: Valid) -> Broken:
    """A case that breaks the rule, its score and bound in order unless they are what is broken."""
    found = BREAKS[name](valid)
    return found if found is None or name == "score" else (found[0], with_score(*found))
