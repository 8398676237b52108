"""Mutations: decisions of the engine hold; broken at one random place, each is caught under the right name."""

from __future__ import annotations

from functools import cache

import pytest

from allocator.domain import Snapshot
from allocator.engine import allocate
from allocator.transition import apply
from allocator.verify import RULES, verify
from tests.builders import HOUR, NOW, budget, decision, job, node, nodes, running, snapshot
from tests.engines.tiny import tiny_snapshot
from tests.verify.breaking import BREAKS, Valid, broken_case

LEAST = 5
"""Every rule is broken at least so often."""


def busy(name: int) -> Snapshot:
    """Two racks, full: `a` beyond its share and its promises, partly unallocated; gangs and short jobs of `b` wait."""
    works = [running(f"old{n}", "a", {f"n{n}": 1}, resumable=n > 1) for n in (1, 2)]
    works += [running(f"free{n}", "a", {f"n{n}": 1}, charged=False, min_runtime=0) for n in (3, 4)]
    works += [running("safe", "a", {"n5": 1}, protected_until=NOW + HOUR), running("lost", "b", {"n6": 1})]
    works += [job("rack", "b", 16, required="rack"), job("quick", "b", 1, min_runtime=600, user="u1")]
    works += [job(f"more{n}", "b", 8, priority=n) for n in range(name)]
    machines = [*nodes(5, per_rack=2), node("n6", "r3", state="down")]
    return snapshot(machines, [budget("a"), budget("b")], works, slowdown={"rack": 0.05})


CASES = [("tiny", seed) for seed in range(70)] + [("busy", size) for size in range(6)]


@cache
def decided(family: str, number: int) -> Valid:
    """A snapshot and what the engine decides for it."""
    snap = tiny_snapshot(number) if family == "tiny" else busy(number)
    return Valid.of(snap, allocate(snap, engine="greedy"), number)


def test_there_is_a_way_to_break_every_rule() -> None:
    assert BREAKS.keys() == RULES.keys()


@pytest.mark.parametrize(("family", "number"), CASES)
def test_decisions_hold(family: str, number: int) -> None:
    valid = decided(family, number)
    assert verify(valid.snap, valid.answer).violations == ()


@pytest.mark.parametrize(("family", "number"), CASES)
def test_nothing_has_to_change_afterwards(family: str, number: int) -> None:
    """Once a decision is carried out, doing nothing at the same instant keeps every rule: no rule works against another."""
    valid = decided(family, number)
    after = apply(valid.snap, valid.answer)
    assert verify(after, decision(after)).violations == ()


@pytest.mark.parametrize("rule", RULES)
def test_broken_decisions_are_caught(rule: str) -> None:
    cases = {case: found for case in CASES if (found := broken_case(rule, decided(*case)))}
    missed = [case for case, found in cases.items() if rule not in verify(*found).broken]
    assert not missed, f"{len(missed)} of {len(cases)} were missed"
    assert len(cases) >= LEAST
