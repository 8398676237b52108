"""Rules about promises and limits: protection, funding, gpu_limit, express, lease, commitment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TypeVar

import numpy as np

from allocator.domain import BrokenContract, Lapse, Renewal, Unfunded
from allocator.entitlement.forced import UNFORCED
from allocator.entitlement.model import Forced
from allocator.verify.case import Case
from allocator.verify.lane import Lane
from allocator.verify.verdict import Violation

Named = TypeVar("Named", Renewal, Lapse)

_CAUSES = {Forced.NODE_DOWN: "node_down", Forced.DRAIN_DEADLINE: "drain_deadline"}
"""The forced stops that break a promise, and how `contract_broken` calls them."""


def protection(case: Case) -> Iterator[Violation]:
    """Ensures that protected work is neither stopped nor moved, that promises are recorded in full, and that the promises
    which dead nodes and passed deadlines break are reported."""
    works = case.ent.works
    breaks = works.forced != UNFORCED
    for row in (case.after.stopped & works.protected & ~breaks).nonzero()[0].tolist():
        yield Violation("protection", case.id(row), f"is stopped, but protected until {works.protected_until[row]}")
    for row, start in case.rows.starts.items():
        promised = case.promise_end(row) if start.charged else None
        if start.protected_until != promised:
            yield Violation("protection", case.id(row), f"starts protected until {start.protected_until}, not {promised}")
    for row, promotion in case.rows.promotions.items():
        if promotion.protected_until != case.promise_end(row):
            detail = f"is promoted until {promotion.protected_until}, not {case.promise_end(row)}"
            yield Violation("protection", case.id(row), detail)
    yield from _broken_contracts(case)


def _broken_contracts(case: Case) -> Iterator[Violation]:
    """Ensures that `contract_broken` names exactly the promises that are broken."""
    works = case.ent.works
    due = Counter(
        BrokenContract(workload=case.id(row), promised=int(works.protected_until[row]), cause=cause)
        for code, cause in _CAUSES.items()
        for row in (works.protected & (works.forced == code)).nonzero()[0].tolist()
    )
    said = Counter(case.rows.broken)
    for row in due - said:
        yield Violation("protection", row.workload, f"promise until {row.promised} is broken ({row.cause}), but not reported")
    for row in said - due:
        yield Violation("protection", row.workload, f"no promise until {row.promised} is broken ({row.cause})")


def funding(case: Case) -> Iterator[Violation]:
    """Ensures that new promises are funded at every vertex of their path, that work without min runtime makes none, and that
    funded work is not run uncharged."""
    if np.any(case.after.started | case.after.promoted):
        yield from _overspent(case)
    yield from _never_charged(case)
    yield from _uncharged_starts(case)
    yield from _missed_promotions(case)


def _overspent(case: Case) -> Iterator[Violation]:
    """Ensures that new promises cost no more than is available."""
    tree, market, left = case.ent.tree, case.ent.market, case.room.left
    for vertex, pool in np.argwhere((left < 0) & tree.funds[:, None]).tolist():
        spent = market.available[vertex, pool] - left[vertex, pool]
        detail = f"new promises in {case.ent.layout.pools[pool]} cost {spent} GPU-seconds of {market.available[vertex, pool]}"
        yield Violation("funding", tree.ids[vertex], detail)


def _never_charged(case: Case) -> Iterator[Violation]:
    """Ensures that work without min runtime is neither charged nor promoted."""
    for row in (case.after.charged & (case.after.started | case.after.promoted)).nonzero()[0].tolist():
        if case.ent.works.unallocated[row]:
            yield Violation("funding", case.id(row), "has no min runtime, so it is never charged")


def _uncharged_starts(case: Case) -> Iterator[Violation]:
    """Ensures that only unfunded work which accepts it starts without being charged."""
    for row in (case.after.started & ~case.after.charged & ~case.ent.works.express).nonzero()[0].tolist():
        work, pool = case.work(row), int(case.after.pool[row])
        if case.ent.works.unallocated[row] or pool < 0:
            continue
        if work.unfunded is Unfunded.WAIT:
            yield Violation("funding", work.id, "starts uncharged, but waits where it is not funded")
        elif case.room.funded(row, pool):
            yield Violation(
                "funding", work.id, f"starts uncharged, but its promise of {case.room.cost(row, pool)} GPU-seconds is funded"
            )


def _missed_promotions(case: Case) -> Iterator[Violation]:
    """Ensures that work which runs uncharged and is funded is promoted, unless its nodes drain before the promise ends."""
    layout = case.ent.layout
    kept = case.after.kept & case.ent.works.promotable & ~case.after.charged
    for row in kept.nonzero()[0].tolist():
        pool = int(case.after.pool[row])
        in_time = all(layout.promise_by[node] >= case.promise_end(row) for node in case.after.placement[row])
        if in_time and case.room.funded(row, pool):
            detail = f"runs on uncharged, but its promise of {case.room.cost(row, pool)} GPU-seconds is funded"
            yield Violation("funding", case.id(row), detail)


def gpu_limit(case: Case) -> Iterator[Violation]:
    """Ensures that no vertex under which something starts holds more GPUs than its limit."""
    tree, works = case.ent.tree, case.ent.works
    leaves = set(works.leaf[case.after.started & (works.leaf >= 0)].tolist())
    for vertex in sorted({vertex for leaf in leaves for vertex in tree.path(leaf)}):
        held, limit = int(case.room.held[vertex]), int(tree.gpu_limit[vertex])
        if 0 <= limit < held:
            yield Violation("gpu_limit", tree.ids[vertex], f"would hold {held} GPUs, its limit is {limit}")


def express(case: Case) -> Iterator[Violation]:
    """Ensures that the lane takes exactly its candidates, charged, within its room and a few workloads per user."""
    candidates, lane = case.ent.works.express, Lane(case.ent)
    for row, start in case.rows.starts.items():
        if start.express != bool(candidates[row]) or (start.express and not start.charged):
            how = "as express" if start.express else "not as express"
            how += ", charged" if start.charged else ", uncharged"
            member = "a candidate" if candidates[row] else "no candidate"
            yield Violation("express", case.id(row), f"starts {how}, but is {member} of the lane")
    for row in case.after.express.nonzero()[0].tolist():
        lane.enter(row, int(case.after.pool[row]))
    started = case.after.started & case.after.express
    for pool in np.unique(case.after.pool[started & (case.after.pool >= 0)]).tolist():
        full = lane.over(pool)
        if full:
            yield Violation("express", case.ent.layout.pools[pool], full)
    for user in sorted({case.work(row).user or "" for row in started.nonzero()[0].tolist()}):
        crowded = lane.crowded(user)
        if crowded:
            yield Violation("express", user, crowded)


def lease(case: Case) -> Iterator[Violation]:
    """Ensures that exactly the leases are renewed that lapse and may be (funds, entitlement, `interactive_limit`), and that
    every lease says when it lapses."""
    works = case.ent.works
    due = Counter(
        Renewal(workload=case.id(row), protected_until=int(works.protected_until[row]))
        for row in works.renewed.nonzero()[0].tolist()
    )
    yield from _compare("lease", "renewal", due, Counter(case.rows.renewals))
    yield from _compare("lease", "lapse", Counter(case.ent.lapsing), Counter(case.rows.lapsing))


def _compare(rule: str, what: str, due: Counter[Named], said: Counter[Named]) -> Iterator[Violation]:
    """Ensures that the rows are exactly those that follow from the snapshot."""
    for row in due - said:
        yield Violation(rule, row.workload, f"misses the {what} {row}")
    for row in said - due:
        yield Violation(rule, row.workload, f"has a {what} that does not follow from the snapshot: {row}")


def commitment(case: Case) -> Iterator[Violation]:
    """Ensures that what was ordered before is honoured: victims leave undisturbed, whoever fits their place waits for it
    rather than for new victims, nothing is placed beside a victim that is overdue, and work stopped at this instant waits."""
    works, after = case.ent.works, case.after
    for row in (after.stopped | after.promoted).nonzero()[0].tolist():
        run = case.work(row).run
        if run is not None and run.terminating_until is not None:
            yield Violation("commitment", case.id(row), "is leaving already; it can be neither stopped again nor promoted")
    for row in (after.started & works.patient).nonzero()[0].tolist():
        yield Violation("commitment", case.id(row), "is started, but is to wait for victims that leave it their place")
    for row, placement in case.rows.placements.items():
        late = [case.node(node) for node in placement if case.ent.layout.overdue[node]]
        if late:
            yield Violation("commitment", case.id(row), f"is placed on {late[0]}, where a victim is overdue")
    for row in (after.started & works.held_before & ~works.running).nonzero()[0].tolist():
        yield Violation("commitment", case.id(row), "is started at the instant at which it was stopped")
