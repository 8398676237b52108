"""Engines in the middle of things, against brute force: commitments, leases and reservations of earlier decisions."""

from __future__ import annotations

import pytest

from allocator.domain import Decision, Snapshot
from allocator.engine import allocate
from allocator.entitlement import entitle
from allocator.epoch import compile_epoch
from allocator.transition import apply
from allocator.verify import verify
from tests import builders
from tests.builders import HOUR, NOW, budget, node, running
from tests.engines.brute_force import TooLargeError, best_decision
from tests.engines.seeds import FUZZ, chunks
from tests.engines.tiny_contract import tiny_contract

NAMES = ("portfolio", "greedy")
LIMIT = 60.0


def quiet(decision: Decision) -> bool:
    return not (decision.starts or decision.preemptions or decision.renewals or decision.promotions)


def actions(decision: Decision) -> str:
    rows = (*decision.starts, *decision.preemptions, *decision.renewals, *decision.promotions, *decision.reservations)
    return "\n".join(map(str, rows))


def check(seed: int, snapshot: Snapshot, name: str, best: int | None) -> bool:
    """The decision keeps every rule, claims nothing wrong and settles; whether it is as good as can be."""
    decision = allocate(snapshot, engine=name, time_limit=LIMIT)
    ent = entitle(snapshot)
    verdict = verify(snapshot, decision, ent)
    assert [str(violation) for violation in verdict.violations] == [], (seed, name)
    assert decision.solver.notes == (), (seed, name)
    again = allocate(apply(snapshot, decision), engine=name, time_limit=LIMIT)
    if (not decision.starts and not decision.preemptions) or name == "portfolio":
        assert quiet(again), (seed, name, actions(decision), actions(again))
    if best is None:
        return True
    assert decision.solver.objective >= best, (seed, name)
    if decision.solver.bound is not None:
        assert decision.solver.bound <= best, (seed, name)
    if decision.solver.status == "optimal":
        assert decision.solver.objective == best, (seed, name)
    return decision.solver.objective == best


@pytest.mark.parametrize("seeds", chunks(usual=40, long=2000, size=200 if FUZZ else 20))
def test_no_engine_errs(seeds: range) -> None:
    good = dict.fromkeys(NAMES, 0)
    for seed in seeds:
        snapshot = tiny_contract(seed)
        try:
            best: int | None = best_decision(entitle(snapshot))[0]
        except TooLargeError:
            best = None
        for name in NAMES:
            good[name] += check(seed, snapshot, name, best)
    assert good["portfolio"] >= 0.95 * len(seeds), good
    assert good["greedy"] >= 0.8 * len(seeds), good


@pytest.mark.parametrize("seed", [669, 1563, 3063, 3519])
def test_what_long_runs_have_found(seed: int) -> None:
    """A gang that was kept its nodes starts on them, or on others than it was kept: a lease is not renewed, nor anything
    promoted, at the same instant. Work that is leaving and work that comes in its place break up a node only once."""
    snapshot = tiny_contract(seed)
    best = best_decision(entitle(snapshot))[0]
    for name in NAMES:
        assert check(seed, snapshot, name, best)


def test_what_leaves_and_what_comes_in_its_place_are_placed_once() -> None:
    leaving = running("leaving", "a", {"n1": 1}, 4, since=NOW, terminating_until=NOW + 60)
    coming = running("coming", "a", {"n1": 1}, 3, since=NOW + 60, protected_until=NOW + HOUR)
    problem = compile_epoch(entitle(builders.snapshot([node("n1"), node("n2")], [budget("a")], [leaving, coming])))
    assert problem.whole_placed.tolist() == [4, 0]
