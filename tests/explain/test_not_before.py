"""`not_before` is sound: whatever is decided, nothing starts earlier if no work ends by itself; and `never` is never.

Victims end by decision: they leave when their notice is over, and any time after that.

On tiny snapshots in the middle of things (victims that leave, ordered starts, leases, reservations, drains) all decisions are
enumerated at one instant after another, and the verifier says which of them the rules allow.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from random import Random

import pytest

from allocator.domain import Decision, Snapshot, Workload
from allocator.engine import allocate
from allocator.engine.plan import Plan, after_plan
from allocator.engine.report import decision_of
from allocator.entitlement import Entitlement, entitle
from allocator.explain import annotate
from allocator.explain.after import build_after
from allocator.explain.horizon import Horizon
from allocator.transition import apply
from allocator.verify import score_of, verify
from tests.engines.brute_force import TooLargeError, all_plans
from tests.engines.reports import plain_report
from tests.engines.seeds import FUZZ, chunks
from tests.engines.tiny_contract import tiny_contract
from tests.explain.test_soundness import has_place

STEPS = 6 if FUZZ else 4
"""Instants that are looked at, one after another."""

MOST_PLANS = 20_000 if FUZZ else 2_000
"""Plans that are enumerated at one instant."""

MOST_TRIES = 400 if FUZZ else 20
"""Plans that the verifier is asked about for one question."""


class Told:
    """What people were told of waiting work: not before which instant, and what never."""

    def __init__(self) -> None:
        self.before: dict[str, int] = {}
        self.never: set[str] = set()

    def listen(self, decision: Decision) -> None:
        """Every statement holds from when it is made on."""
        for row in decision.waiting:
            if row.not_before is not None:
                self.before[row.workload] = max(row.not_before, self.before.get(row.workload, 0))
            if row.never:
                self.never.add(row.workload)

    def too_early(self, now: int) -> set[str]:
        """Work that nobody may be able to start yet."""
        return self.never | {key for key, instant in self.before.items() if instant > now}


def allowed(ent: Entitlement, plans: list[Plan], rng: Random) -> Iterator[Decision]:
    """Those of the plans, in any order, that the rules allow; explained."""
    for plan in islice(rng.sample(plans, len(plans)), MOST_TRIES):
        decision = decision_of(ent, plan, "", plain_report(score_of(after_plan(ent, plan))), {})
        if verify(ent.snapshot, decision, ent).ok:
            yield annotate(ent, decision)


def plans_of(ent: Entitlement) -> list[Plan]:
    """All plans, or as many as there is time for."""
    found: list[Plan] = []
    with suppress(TooLargeError):
        found += islice((plan for _, plan in all_plans(ent)), MOST_PLANS)
    return found


def pass_time(snap: Snapshot, decision: Decision, told: Told, rng: Random) -> Snapshot:
    """To an instant at which something changes, or just before one."""
    ends = {instant for instant in told.before.values() if instant > snap.now}
    for work in apply(snap, decision).workloads:
        if work.run is not None:
            ends |= {work.run.protected_until or 0, work.run.terminating_until or 0}
    ends |= {node.drain_deadline or 0 for node in snap.cluster.nodes} | {held.start for held in decision.reservations}
    spans = sorted({instant - snap.now - early for instant in ends for early in (0, 1)} | {1, 60})
    return without_some_late(apply(snap, decision, rng.choice([span for span in spans if span > 0])), rng)


def without_some_late(snap: Snapshot, rng: Random) -> Snapshot:
    """Victims that should have left before leave some time."""

    def late(work: Workload) -> bool:
        return work.run is not None and work.run.terminating_until is not None and work.run.terminating_until <= snap.now

    works = (replace(work, run=None) if late(work) and rng.random() < 0.5 else work for work in snap.workloads)
    return replace(snap, workloads=tuple(works))


@pytest.mark.parametrize("seeds", chunks(usual=20, long=5000, size=20 if not FUZZ else 250))
def test_no_decision_starts_anything_before_it_was_told(seeds: range) -> None:
    checked = 0
    for seed in seeds:
        snap, rng, told = tiny_contract(seed), Random(seed), Told()
        decision = allocate(snap, engine="greedy")
        for _ in range(STEPS):
            told.listen(decision)
            snap = pass_time(snap, decision, told, rng)
            early, ent = told.too_early(snap.now), entitle(snap)
            keys = [work.id for work in snap.workloads]
            plans = plans_of(ent)
            wrong = [plan for plan in plans if any(keys[row] in early for row in plan.starts)]
            checked += len(early)
            found = next(allowed(ent, wrong, rng), None)
            assert found is None, (seed, snap.now, told.before, found)
            greedy = allocate(snap, engine="greedy")
            assert not early & {row.workload for row in greedy.starts}, (seed, snap.now)
            decision = next(allowed(ent, plans, rng), greedy)
    assert checked > len(seeds)


@pytest.mark.parametrize("seeds", chunks(usual=50, long=20_000, size=50 if not FUZZ else 2000))
def test_it_is_the_first_instant_with_a_place(seeds: range) -> None:
    """Beside all that holds its place by a promise, a notice, or an order: no earlier, and no later either."""
    for seed in seeds:
        snap = tiny_contract(seed)
        answer, ent = allocate(snap, engine="greedy"), entitle(snap)
        horizon, after = Horizon(ent, build_after(ent, answer)), apply(snap, answer)
        held = holds(after)
        works = {work.id: work for work in after.workloads}
        instants = sorted({snap.now, *(until for _, until in held.values() if until > snap.now)})
        for row in answer.waiting:
            if row.never:
                continue
            expected = next((at for at in instants if has_place(after, works[row.workload], held, at)), None)
            found = horizon.earliest(works[row.workload], late=True)
            assert (None if found is None else found.instant) == expected, (seed, row)
            assert row.not_before in (None, expected), (seed, row)


def holds(snap: Snapshot) -> dict[str, tuple[dict[str, int], int]]:
    """What runs, where, and until when it may not be touched (`now` if it may), read off the snapshot."""
    nodes, cap, found = {node.name: node for node in snap.cluster.nodes}, snap.policy.protection_cap, {}
    for work in snap.workloads:
        run = work.run
        if run is None:
            continue
        until = run.protected_until
        if until is None:
            known = [moment for moment in (run.granted_at, run.charged_since, run.start_time) if moment is not None]
            until = next(iter(known), snap.now) + min(work.min_runtime, cap)
        until = until if run.charged else snap.now
        until = run.terminating_until if run.terminating_until is not None else until
        deadlines = [nodes[name].drain_deadline for name in run.placement]
        until = min([until, *(deadline for deadline in deadlines if deadline is not None)])
        found[work.id] = (dict(run.placement), max(snap.now, until))
    return found
