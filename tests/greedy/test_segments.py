"""Segments are whole blocks: what racks cannot hold in whole segments is no part of the bound."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from allocator.entitlement import entitle
from allocator.epoch import EpochProblem, EpochSolution, compile_epoch
from allocator.generate import generate_snapshot
from allocator.models.cpsat import solver as reference
from allocator.models.greedy import bound, places, solver
from allocator.models.greedy.places import Counts
from allocator.models.greedy.relaxation import Relaxation
from allocator.models.protocol import Limits
from tests.builders import budget, job, nodes, snapshot
from tests.engines.seeds import LIMIT


def racks(per_rack: int, count: int, tasks: int, size: int) -> EpochProblem:
    """Racks with so many free nodes each, and one gang of whole nodes in segments of `size`."""
    gang = job("gang", gpus=8 * tasks, tasks=tasks, gpus_per_task=8, segment=("rack", size))
    return compile_epoch(entitle(snapshot(nodes(per_rack * count, per_rack=per_rack), [budget("a")], [gang])))


def test_blocks_are_whole_segments_and_one_rest() -> None:
    counts = Counts(racks(3, 3, 5, 2), merged=False)
    level = counts.segments.level
    assert [(kind.level, kind.size) for kind in counts.segments.kinds] == [(level, 1), (level, 2)]
    by_offer = {j: dict[int, int]() for j in counts.segments.offer.tolist()}
    for j, kind, number in zip(counts.segments.offer, counts.segments.kind, counts.segments.number, strict=True):
        by_offer[int(j)][counts.segments.kinds[int(kind)].size] = int(number)
    assert all(own == {1: 1, 2: 2} for own in by_offer.values())
    most = Counter({(counts.segments.kinds[k].size): 0 for k in range(2)})
    for kind, number in zip(counts.kind.tolist(), counts.most.tolist(), strict=True):
        most[counts.segments.kinds[kind].size] += number
    assert most == {1: 9, 2: 3}


def test_blocks_of_a_decision_are_counted_where_they_lie() -> None:
    problem = racks(3, 3, 5, 2)
    counts = Counts(problem, merged=False)
    found = counts.segments.blocks_of(EpochSolution(starts={0: {0: 1, 1: 1, 2: 1, 4: 1, 5: 1}}))
    domain = problem.node_domain[counts.segments.level]
    assert {(kind.size, here): number for (kind, here), number in found.items()} == {
        (2, domain[0]): 1,
        (1, domain[0]): 1,
        (2, domain[4]): 1,
    }


@pytest.mark.parametrize(
    ("per_rack", "count", "tasks", "size", "fits"), [(3, 3, 8, 2, False), (3, 3, 7, 2, True), (4, 2, 8, 2, True)]
)
def test_nodes_that_are_left_of_racks_are_no_segments(per_rack: int, count: int, tasks: int, size: int, fits: bool) -> None:
    """Nine nodes in racks of three hold three segments of two, and a rest: eight tasks do not fit, seven do."""
    problem = racks(per_rack, count, tasks, size)
    result = bound.solve(problem, Limits(LIMIT))
    best = reference.solve(problem, Limits(LIMIT))
    assert best.value is not None
    assert (best.value < 0) == fits
    assert result.bound is not None
    assert result.bound <= best.value
    if not fits:
        assert result.bound == best.value == 0


def test_segments_of_one_are_no_blocks() -> None:
    counts = Counts(racks(3, 3, 5, 1), merged=False)
    assert counts.segments.level == -1
    assert not len(counts.kind)
    assert not len(counts.whole_of(EpochSolution()))


def test_many_places_are_too_many_for_greedy_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "MOST_PLACES", 5)
    problem = racks(3, 3, 5, 2)
    assert not len(Counts(problem, merged=True).kind)
    assert len(Counts(problem, merged=False).kind)


def test_of_many_counts_those_are_whole_that_excuse_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = compile_epoch(entitle(generate_snapshot(family="nvl72", gpus=1152, seed=4)))
    assert Counts(problem, merged=False).whole.all()
    monkeypatch.setattr(places, "MOST_WHOLE", 0)
    counts = Counts(problem, merged=False)
    victims = np.unique(counts.groups.victim[np.isin(counts.groups.leaves_in, counts.group[counts.whole])])
    assert len(victims)
    assert not problem.victims.licensed[victims].all()
    assert 0 < counts.whole.sum() < len(counts.whole)
    guess = solver.solve(problem, Limits(0.0)).solution
    assert guess is not None
    assert len(counts.whole_of(guess)) == counts.whole.sum() + len(counts.kind)
    few = Relaxation(problem, merged=False).solve_whole(LIMIT, 0.001 * 1000 * problem.step_gpus, 0, guess)
    best = bound.solve(problem, Limits(LIMIT, gap=problem.step_gpus), guess)
    assert best.value is not None
    assert few[1] <= best.value
