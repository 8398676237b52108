"""What a node can hold: every content is part of a pattern, every decision a mix of patterns, and the bound tight for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.domain import Snapshot
from allocator.entitlement import entitle
from allocator.epoch import EpochProblem, EpochSolution, compile_epoch, value_of
from allocator.generate import generate_snapshot
from allocator.models.cpsat import solver as reference
from allocator.models.greedy import patterns, solver
from allocator.models.greedy.patterns import full_contents
from allocator.models.greedy.places import Counts
from allocator.models.greedy.relaxation import Relaxation
from allocator.models.protocol import Limits
from tests.builders import HOUR, NOW, budget, job, nodes, running, snapshot, weights
from tests.engines.mixes import mixed_snapshot
from tests.engines.scarce import scarce_snapshot
from tests.engines.seeds import LIMIT, chunks
from tests.engines.test_decode import any_point
from tests.engines.tiny import tiny_snapshot

NEEDS = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 5)), min_size=1, max_size=4)


def problem_of(snap: Snapshot) -> EpochProblem:
    return compile_epoch(entitle(snap))


@given(st.tuples(st.integers(0, 8), st.integers(0, 9)), NEEDS, st.data())
def test_patterns_are_all_that_nothing_can_be_added_to(
    room: tuple[int, int], needs: list[tuple[int, int]], data: st.DataObject
) -> None:
    most = data.draw(st.lists(st.integers(1, 9), min_size=len(needs), max_size=len(needs)))
    found = full_contents(room, needs, most)
    assert found is not None

    def fits(counts: tuple[int, ...]) -> bool:
        used = np.array(counts) @ np.array(needs)
        return bool((used <= np.array(room)).all()) and all(own <= limit for own, limit in zip(counts, most, strict=True))

    every = [counts for counts in product(*(range(10) for _ in needs)) if fits(counts)]
    more = [tuple(int(i == k) for k in range(len(needs))) for i in range(len(needs))]
    full = {own for own in every if not any(fits(tuple(np.add(own, one).tolist())) for one in more)}
    assert {tuple(row) for row in found.tolist()} == full


def test_too_many_contents_are_not_looked_at() -> None:
    needs = [(1, cpus) for cpus in range(1, 30)]
    assert full_contents((8, 200), needs, [8] * 29) is None


TIGHT: dict[str, Any] = {"cpus": 112, "memory_gib": 2048}


def short_of_cpus() -> Snapshot:
    """Two nodes of 8 GPUs, on each of which two of the tasks fit, of 40 and 60 CPUs but for two of 60."""
    works = [job(f"w{i}", gpus=1, cpus_per_task=40 + 20 * (i % 2)) for i in range(8)]
    return snapshot(nodes(2, **TIGHT), [budget("a")], works, weights=weights(fragmentation=0))


def test_what_no_task_fits_is_no_part_of_the_bound() -> None:
    problem = problem_of(short_of_cpus())
    relaxation = Relaxation(problem)
    found = relaxation.solve({})
    assert found is not None
    assert found.chosen.sum() == pytest.approx(4)
    assert relaxation.bound() == reference.solve(problem, Limits(LIMIT)).value


def test_without_patterns_the_bound_is_weaker_and_still_one(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = problem_of(short_of_cpus())
    tight = solver.solve(problem, Limits(0.0))
    monkeypatch.setattr(patterns, "MOST_PATTERNS", 0)
    loose = solver.solve(problem, Limits(0.0))
    assert loose.value == tight.value
    assert loose.bound is not None
    assert tight.bound is not None
    assert loose.bound < tight.bound <= (tight.value or 0)
    assert not Counts(problem, merged=True).groups.bundles


def half_held() -> Snapshot:
    """Unallocated work leaves 52 CPUs on each of two nodes: one task fits beside it, and two if it stops."""
    free: dict[str, Any] = {"charged": False, "min_runtime": 0}
    old = [running(f"old{i}", "b", {f"n{i}": 1}, 1, cpus_per_task=60, **free) for i in (1, 2)]
    works = [*old, *(job(f"w{i}", gpus=1, cpus_per_task=40) for i in range(8))]
    return snapshot(nodes(2, **TIGHT), [budget("a"), budget("b")], works)


def test_victims_that_stay_are_part_of_the_patterns() -> None:
    problem = problem_of(half_held())
    relaxation = Relaxation(problem)
    stop = len(problem.offers.work)
    assert stop == 4, "the queue is cut at what could start"
    for stops, starts in ((0, 2), (1, 3), (2, 4)):
        fixed = {stop + r: int(r < stops) for r in range(2)}
        assert relaxation.solve(fixed | {j: int(j < starts) for j in range(stop)}) is not None
        assert starts == stop or relaxation.solve(fixed | {j: int(j <= starts) for j in range(stop)}) is None


def test_nodes_of_one_kind_are_one_bundle_but_for_victims_without_a_licence() -> None:
    problem = problem_of(generate_snapshot(family="bound", gpus=512, seed=2))
    for merged in (True, False):
        counts = Counts(problem, merged=merged)
        classes = np.concatenate([bundle.classes for bundle in counts.groups.bundles])
        assert sorted(classes.tolist()) == sorted(set(classes.tolist()))
        assert len(counts.groups.bundles) < len(classes)
        alone = {k for k, own in enumerate(problem.classes.residents) if not all(problem.victims.licensed[r] for r, _ in own)}
        assert alone
        assert all(len(bundle.classes) == 1 or not alone & set(bundle.classes.tolist()) for bundle in counts.groups.bundles)


@pytest.mark.parametrize(("odd", "worth_while"), [(1, False), (4, True)])
def test_a_few_odd_sizes_are_not_worth_patterns(odd: int, worth_while: bool) -> None:
    """Less than a hundredth of the GPUs on offer: 3 of 307."""
    gang, jobs = job("gang", gpus=304), [job(f"w{i}", gpus=3) for i in range(odd)]
    problem = problem_of(snapshot(nodes(40), [budget("a")], [gang, *jobs]))
    assert bool(Counts(problem, merged=True).groups.bundles) == worth_while


def test_a_node_that_holds_more_than_it_has_follows_no_pattern() -> None:
    problem = problem_of(half_held())
    free = problem.classes.free.copy()
    free[1, 0] = -1
    over = replace(problem, classes=replace(problem.classes, free=free))
    before, after = (Counts(own, merged=True).groups.bundles for own in (problem, over))
    assert sorted(k for bundle in before for k in bundle.classes) == [0, 1]
    assert [bundle.classes.tolist() for bundle in after] == [[1]]


def admitted(problem: EpochProblem, solution: EpochSolution, *, merged: bool) -> None:
    """Check that the relaxation admits a decision, and for no more than it is worth."""
    relaxation = Relaxation(problem, merged=merged)
    relaxation.build()
    rows, value = relaxation._rows, value_of(problem, solution)
    chosen = relaxation.choices_of(solution)
    whole = np.concatenate(rows._whole)[len(chosen) :]
    for column, number in zip(whole.tolist(), relaxation._counts.whole_of(solution).tolist(), strict=True):
        rows.bound(column, number, number)
    found = relaxation.solve(dict(enumerate(chosen.astype(int).tolist())))
    assert found is not None
    assert found.value - relaxation._broken <= value + 1e-6 * 1000 * problem.step_gpus


@pytest.mark.parametrize("merged", [True, False])
@pytest.mark.parametrize(("family", "gpus"), [("bound", 512), ("odd", 512), ("nvl72", 1152), ("mixed", 512)])
def test_answers_are_admitted(family: str, gpus: int, merged: bool) -> None:
    for seed in range(1, 4):
        problem = problem_of(generate_snapshot(family=family, gpus=gpus, seed=seed))
        answer = solver.solve(problem, Limits(0.0)).solution
        assert answer is not None
        admitted(problem, answer, merged=merged)


@pytest.mark.parametrize("seeds", chunks(usual=60, long=3000, size=500))
def test_optima_of_scarce_epochs_are_admitted(seeds: range) -> None:
    for seed in seeds:
        problem = problem_of(scarce_snapshot(seed))
        if len(problem.offers.work):
            best = reference.solve(problem, Limits(LIMIT)).solution
            assert best is not None
            for merged in (True, False):
                admitted(problem, best, merged=merged)


@pytest.mark.parametrize("kind", [scarce_snapshot, mixed_snapshot, tiny_snapshot], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("seeds", chunks(usual=60, long=3000, size=500))
def test_whatever_the_reference_model_allows_is_admitted(kind: Callable[[int], Snapshot], seeds: range) -> None:
    """Decisions far from any optimum, too."""
    for seed in seeds:
        problem = problem_of(kind(seed))
        point = any_point(problem, Random(seed)) if len(problem.offers.work) else None
        if point is not None:
            for merged in (True, False):
                admitted(problem, point[0], merged=merged)


def test_many_classes_are_merged_and_their_patterns_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allocator.models.greedy.groups.MOST_CLASSES", 1)
    for seed in range(40):
        problem = problem_of(scarce_snapshot(seed))
        if len(problem.offers.work):
            result = solver.solve(problem, Limits(0.0))
            best = reference.solve(problem, Limits(LIMIT))
            assert best.value is not None
            assert result.bound is None or result.bound <= best.value


def test_promised_work_is_no_item() -> None:
    """Nobody may stop it, so that its room is simply gone."""
    old = running("old", "b", {"n1": 1}, 1, cpus_per_task=60, since=NOW - HOUR, protected_until=NOW + HOUR)
    waiting = [job(f"w{i}", gpus=1, cpus_per_task=40) for i in range(4)]
    problem = problem_of(snapshot(nodes(1, **TIGHT), [budget("a"), budget("b")], [old, *waiting]))
    bundle = Counts(problem, merged=True).groups.bundles[0]
    assert bundle.victims == ()
    assert bundle.counts.tolist() == [[1]]
