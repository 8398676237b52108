"""Random tiny traces: the books balance, the same replay gives the same bytes, and so does one that is split in two."""

from __future__ import annotations

import itertools
import pickle
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.domain import Decision, Policy, Snapshot, Workload
from allocator.domain.trace import Job, Maintenance, Outage, Revision, Trace
from allocator.replay import ReplayError, ReplayOptions, Simulator, make_policy, write_results
from allocator.replay import checkpoint as checkpoints
from allocator.replay.policy import SchedulingPolicy
from allocator.replay.tables import TABLES
from allocator.transition import apply
from tests.builders import HOUR, budget
from tests.replay.play import START, Told, job, trace

LENGTH = 2 * HOUR


@st.composite
def jobs(draw: st.DrawFn, number: int) -> Job:
    interval = draw(st.sampled_from([None, 40, 300]))
    fields: dict[str, Any] = {
        "gpus": draw(st.sampled_from([1, 2, 4, 8, 16, 24])),
        "allocation": draw(st.sampled_from(["a", "b"])),
        "work": draw(st.integers(1, 4000)),
        "min_runtime": draw(st.sampled_from([0, 600, 1800])),
        "resumable": draw(st.booleans()),
        "checkpoint_on_notice": draw(st.booleans()),
        "checkpoint_interval": interval,
        "checkpoint_cost": draw(st.integers(0, 20)) if interval else 0,
        "restart_time": draw(st.sampled_from([0, 17, 120])),
        "failing_resumes": draw(st.integers(0, 2)),
        "idle": draw(st.sampled_from([0, 500])),
        "user": draw(st.sampled_from(["u", "v", None])),
        "fails_after": draw(st.sampled_from([None, 30, 2000])),
    }
    after = f"j{draw(st.integers(0, number - 1))}" if number and draw(st.booleans()) else None
    return job(f"j{number}", draw(st.integers(0, LENGTH)), after=after, **fields)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    found = [draw(jobs(number)) for number in range(draw(st.integers(1, 8)))]
    moments = st.integers(START, START + LENGTH)
    outages = [
        Outage(node=f"n{draw(st.integers(1, 3))}", start=at, end=at + draw(st.sampled_from([3, 400])))
        for at in draw(st.lists(moments, max_size=3))
    ]
    maintenance = [
        Maintenance(node="n2", announced=at, deadline=at + draw(st.integers(0, 900)), end=at + 1500, drain=draw(st.booleans()))
        for at in draw(st.lists(moments, max_size=2))
    ]
    revisions = [
        Revision(at=at, budgets=(budget("a", draw(st.integers(0, 3))), budget("b", 1)))
        for at in draw(st.lists(moments, max_size=1))
    ]
    return trace(
        *found, hours=2, num_nodes=3, per_rack=2, slowdown={"rack": Fraction(1, 7)},
        outages=tuple(outages), maintenance=tuple(maintenance), revisions=tuple(revisions),
        policy=Policy(window=HOUR, protection_cap=1800),
    )  # fmt: skip


@st.composite
def policies(draw: st.DrawFn) -> Told:
    stops = {
        draw(st.integers(1, LENGTH // 15 - 1)) * 15: [f"j{n}" for n in draw(st.lists(st.integers(0, 7), max_size=3))]
        for _ in range(draw(st.integers(0, 6)))
    }
    return Told(stops=stops, back=draw(st.sampled_from([15, 300])), promise=draw(st.sampled_from([None, 400])))


def played(what: Trace, policy: SchedulingPolicy) -> Simulator:
    simulator = Simulator(what, policy, ReplayOptions())
    simulator.run()
    return simulator


def books(simulator: Simulator) -> tuple[Any, ...]:
    world = simulator.world
    return world.runs, world.hours, simulator.epochs, simulator.bounds.rows, sorted(world.lives.items(), key=lambda one: one[0])


def check_conservation(simulator: Simulator) -> None:
    """What must hold of every replay, counted anew from its tables; more is checked by the replay itself as it goes."""
    world, installed = simulator.world, 24
    for row in world.runs:
        assert row.restart + row.checkpoint + row.slow + row.work + row.parked + row.dead == row.end - row.start
        assert row.charged + row.uncharged == row.end - row.start
    for hour in world.hours:
        if hour.allocation == "":
            assert hour.charged + hour.uncharged + hour.idle == hour.share <= installed * hour.seconds
            assert hour.demand <= hour.charged + hour.uncharged + hour.waiting
    assert sum(row.seconds for row in world.hours if row.allocation == "") == LENGTH
    for key, life in world.lives.items():
        own = [row for row in world.runs if row.job == key]
        assert sum(row.work for row in own) == life.worked == life.progress + life.lost
        assert sum(row.queued for row in own) == life.queued
        if life.outcome is not None:
            assert life.progress == life.target
    for kind in ("lost", "restart", "checkpoint", "slow", "parked", "dead"):
        by_hour = sum(getattr(row, kind) for row in world.hours if row.allocation == "")
        assert by_hour == sum(getattr(row, kind) * row.gpus for row in world.runs)


@given(what=traces(), policy=policies())
def test_the_books_balance_and_a_replay_can_be_repeated(what: Trace, policy: Told) -> None:
    again = replace(policy, _hold={})
    first = played(what, policy)
    check_conservation(first)
    assert books(played(what, again)) == books(first)


@given(what=traces(), policy=policies(), steps=st.integers(0, 40))
def test_a_replay_can_be_split_anywhere(what: Trace, policy: Told, steps: int) -> None:
    again = replace(policy, _hold={})
    simulator = Simulator(what, policy, ReplayOptions())
    for _ in range(steps):
        simulator.step()
    simulator = pickle.loads(pickle.dumps(simulator))
    simulator.run()
    assert books(simulator) == books(played(what, again))


@settings(max_examples=15)
@given(what=traces())
def test_the_books_of_our_own_policy_balance_and_no_promise_breaks_but_by_force(what: Trace) -> None:
    simulator = played(what, make_policy("budgets_greedy"))
    check_conservation(simulator)
    assert sum(row.drains_by_hand for row in simulator.epochs) == 0
    assert all(row.ended_by in ("node_down", "drain", "crashed") for row in simulator.world.runs if row.broken)


class Recording:
    """Our own policy, and all it was shown and decided."""

    def __init__(self) -> None:
        self.inner = make_policy("budgets_greedy")
        self.name, self.idling = self.inner.name, self.inner.idling
        self.seen: list[tuple[Snapshot, Decision]] = []

    def decide(self, snapshot: Snapshot, previous: Decision | None) -> Decision:
        self.seen.append((snapshot, self.inner.decide(snapshot, previous)))
        return self.seen[-1][1]

    def wake(self, snapshot: Snapshot, decision: Decision) -> int | None:
        return self.inner.wake(snapshot, decision)


def _as_noted(work: Workload) -> Workload:
    """Without the checkpoint that follows from the interval."""
    return work if work.run is None else replace(work, run=replace(work.run, last_checkpoint=None))


@settings(max_examples=15)
@given(what=traces())
def test_what_the_policy_sees_next_is_what_apply_says(what: Trace) -> None:
    quiet = replace(what, outages=(), revisions=(), jobs=tuple(replace(job, failing_resumes=0) for job in what.jobs))
    policy = Recording()
    played(quiet, policy)
    for (before, decision), (after, _) in itertools.pairwise(policy.seen):
        told = apply(before, decision, after.now - before.now)
        shown = {work.id: work for work in after.workloads}
        for work in told.workloads:
            if work.id in shown:  # else it has ended
                assert _as_noted(work) == shown[work.id]
        assert set(shown) - {work.id for work in told.workloads} <= {
            job.workload.id for job in quiet.jobs if job.workload.submit_time > before.now or job.after is not None
        }
        assert [held for held in told.reservations if held.workload in shown] == list(after.reservations)


def test_results_are_the_same_bytes_whether_split_or_not(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    jobs = (job("a", 0, work=4000), job("b", 100, work=2000, allocation="b"), job("c", 200, min_runtime=0))
    what = trace(*jobs, hours=2, outages=(Outage(node="n1", start=START + 1000, end=START + 1300),))
    options = ReplayOptions(tick=10)
    write_results(_run(Simulator(what, make_policy("budgets_greedy"), options)), tmp_path / "whole")
    write_results(_run(Simulator(what, make_policy("budgets_greedy"), options)), tmp_path / "again")
    half = Simulator(what, make_policy("budgets_greedy"), options)
    while half.now < START + 900:
        half.step()
    checkpoints.save(half, tmp_path / "half")
    rest = checkpoints.load(tmp_path / "half", what, make_policy("budgets_greedy"), options)
    write_results(_run(rest), tmp_path / "split")
    names = [f"{table}.{kind}" for table in TABLES for kind in ("csv", "parquet")] + ["summary.json"]
    for name in names:
        whole = (tmp_path / "whole" / name).read_bytes()
        assert (tmp_path / "again" / name).read_bytes() == whole, name
        assert (tmp_path / "split" / name).read_bytes() == whole, name


def _run(simulator: Simulator) -> Simulator:
    simulator.run()
    return simulator


def test_a_checkpoint_of_something_else_is_refused(tmp_path: Path) -> None:
    what, options = trace(job("a")), ReplayOptions(tick=10)
    checkpoints.save(Simulator(what, Told(), options), tmp_path / "one")
    with pytest.raises(ReplayError, match="belongs to another trace and policy and options"):
        checkpoints.load(tmp_path / "one", trace(job("b")), make_policy("budgets"), ReplayOptions())
    (tmp_path / "junk").write_bytes(b"junk")
    with pytest.raises(ReplayError, match="no checkpoint of this version"):
        checkpoints.load(tmp_path / "junk", what, Told(), options)
    (tmp_path / "other").write_bytes(pickle.dumps("something else"))
    with pytest.raises(ReplayError, match="no checkpoint of this version"):
        checkpoints.load(tmp_path / "other", what, Told(), options)
