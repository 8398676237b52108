"""The synthetic sample, a week of a small organisation: what cannot be worked out by hand has to be plausible."""

from __future__ import annotations

from collections import Counter

import pytest

from allocator.replay import ReplayOptions, Simulator, make_policy
from tests.generate.checks import shared_file
from tests.replay.first_fit import FirstFit
from tests.replay.sample import DAY, MONDAY, SAMPLE, sample_trace


@pytest.mark.slow
def test_a_week_first_come_first_served() -> None:
    trace = sample_trace(shared_file(SAMPLE))
    simulator = Simulator(trace, FirstFit(), ReplayOptions())
    simulator.run()
    world = simulator.world
    root = [row for row in world.hours if row.allocation == ""]
    assert sum(row.share for row in root) == 224 * 7 * DAY
    assert 0.6 < sum(row.charged + row.uncharged for row in root) / (224 * 7 * DAY) < 0.75
    ended = Counter(row.ended_by for row in world.runs)
    assert set(ended) == {"completed", "cut"}
    assert ended["completed"] > 1800
    assert all(row.start >= world.lives[row.job].submit for row in world.runs)
    assert all(life.runs <= 1 and life.worked == life.progress for life in world.lives.values())


def test_some_hours_of_our_own_policy() -> None:
    trace = sample_trace(shared_file(SAMPLE), days=1)
    simulator = Simulator(trace, make_policy("budgets_greedy"), ReplayOptions(until=MONDAY + 7 * 3600))
    simulator.run()
    assert not any(row.broken for row in simulator.world.runs)
    assert {row.rung for row in simulator.epochs} <= {"exact", "greedy", "keep"}
    waits = [life.first_start - life.submit for life in simulator.world.lives.values() if life.first_start is not None]
    assert max(waits) <= 15  # nothing competes yet, so that the next tick starts everything
