"""Playing a plan: jobs that ask for what they should, and what is delivered beside what was promised."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from allocator.domain.trace import Trace
from allocator.generate.params import HOUR
from allocator.models.protocol import Status
from allocator.planning import Templates, replay_plan, solve
from allocator.planning.check import asked_by_key
from allocator.planning.document import ReplayDoc
from allocator.planning.measure import as_toml, measure_utilisation
from allocator.planning.plan import needs_of
from allocator.planning.played import PoolPlan, play_trace, with_failures
from allocator.planning.solver import Answer
from allocator.planning.utilisation import MEASURED, Utilisation
from allocator.replay.check import check_trace
from tests.planning.questions import question, there, unit

POOL = PoolPlan(name="pool0", gpus_per_node=8, num_nodes=8)
SHARES = {("project0", "pool0"): Fraction(3, 4), ("project1", "pool0"): Fraction(1, 4)}
WANTED = {("project0", "pool0"): 30.0, ("project1", "pool0"): 12.0}


@pytest.fixture(scope="module")
def templates() -> Templates:
    return Templates(None)


def drawn(templates: Templates, seed: int = 0, hours: int = 48) -> Trace:
    return play_trace("drawn", (POOL,), SHARES, WANTED, templates, WANTED, hours * HOUR, seed)


def test_jobs_ask_for_what_is_wanted(templates: Templates) -> None:
    trace = drawn(templates)
    check_trace(trace)
    for key, seconds in asked_by_key(trace).items():
        assert seconds / (48 * HOUR) == pytest.approx(WANTED[key], rel=0.03)
    assert {job.workload.gpus for job in trace.jobs} <= set(range(1, 9))
    assert {row.gpus for row in trace.usage} == {30, 12}


@pytest.mark.slow
def test_nodes_fail_at_the_rate_that_is_asked_for(templates: Templates) -> None:
    assert with_failures(drawn(templates), 0.0, 0) == drawn(templates)
    failing = [with_failures(drawn(templates, seed), 0.05, seed) for seed in range(20)]
    for trace in failing:
        check_trace(trace)
    # 64 GPUs for two days, twenty times; a node that is down cannot fail
    assert 60 < sum(len(trace.outages) for trace in failing) < 0.05 * 64 * 2 * 20 * 1.2


def test_demand_is_there_from_the_first_instant(templates: Templates) -> None:
    # Jobs at the start, over many draws: as many GPUs as on average.
    at_start = [
        sum(job.workload.gpus for job in trace.jobs if job.workload.submit_time == trace.start)
        for trace in (drawn(templates, seed, 12) for seed in range(12))
    ]
    assert np.mean(at_start) == pytest.approx(42, rel=0.2)


def test_a_seed_is_a_trace(templates: Templates) -> None:
    assert drawn(templates) == drawn(templates)
    assert drawn(templates).jobs != drawn(templates, seed=1).jobs


def test_templates_are_those_of_the_project_where_a_trace_has_them(templates: Templates) -> None:
    trace = drawn(templates)
    own = Templates(trace)
    assert {job.workload.allocation for job in own.of(("project1", "pool0"))} == {"project1"}
    assert len(own.of(("nobody", "pool0"))) == len(trace.jobs)


def test_a_plan_is_played_small_and_compared(templates: Templates) -> None:
    # 512 GPUs are played as 64; the first quarter is hardly loaded, so everything is promised and delivered.
    demand = np.array([[[[[180.0], [90.0]], [[10.0], [0.0]]], [[[100.0], [50.0]], [[10.0], [0.0]]]]])
    asked = question(
        demand, units=(unit(gpus=64, nodes=8),), existing=(there(gpus=512, nodes=64),), utilisation=MEASURED,
        required=np.array([0.95, 0.95]), replay=ReplayDoc(gpus=64, hours=12, draws=1),
    )  # fmt: skip
    answer = solve(asked)
    rows = replay_plan(asked, answer, templates)
    assert [(row.quarter, row.scenario, row.project, row.gpus, row.owed) for row in rows] == [
        ("2027Q1", "scenario0", "project0", 512, 180.0), ("2027Q1", "scenario0", "project1", 512, 90.0),
    ]  # fmt: skip
    assert all(row.promised == 1 and row.replayed > 0.97 for row in rows)
    assert rows[0].as_dict()["difference"] == pytest.approx(rows[0].replayed - 1, abs=1e-6)
    later = replace(asked, replay=ReplayDoc(gpus=64, hours=6, draws=1, quarters=["2027Q2"], policy="fifo_backfill"))
    assert [row.project for row in replay_plan(later, answer, templates)] == ["project0"]


def test_only_a_plan_can_be_played(templates: Templates) -> None:
    asked = question([[[[[1.0]]]]])
    answer = Answer(status=Status.UNKNOWN, needs=needs_of(asked))
    with pytest.raises(ValueError, match="no plan"):
        replay_plan(asked, answer, templates)


def test_a_curve_is_measured_and_written_for_the_file(templates: Templates) -> None:
    found = measure_utilisation(ReplayDoc(gpus=64, hours=6, draws=1, tick=900, policy="fifo_backfill"), templates)
    assert list(found.delivered) == sorted(found.delivered, reverse=True)
    assert 0.5 < found.delivered[-1] <= found.delivered[0] <= 1
    assert as_toml(Utilisation(loads=(0.7,), delivered=(1.0,))) == ["[utilisation]", "loads = [0.7]", "delivered = [1.0]"]
