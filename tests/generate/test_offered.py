"""The offered load is met, by thinning and by repeating, and campaigns are left alone."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.domain import Allocation, SnapshotError, Workload
from allocator.domain.trace import Job, Trace
from allocator.generate.fleet import H100, build_cluster
from allocator.generate.offered import asked, jitter, offered_load, scale_load
from allocator.generate.outages import LEMON_FAILURES, draw_outages
from allocator.wire import encode_trace

DAY = 86_400
START = 1_764_547_200


def job(key: str, submit: int, gpus: int = 8, work: int = 3_600, after: str | None = None, fails: int | None = None) -> Job:
    workload = Workload(
        id=key, allocation="a", user="u", submit_time=START + submit, tasks=1, gpus_per_task=gpus, min_runtime=0, resumable=True
    )
    return Job(workload=workload, work=work, after=after, fails_after=fails)


def trace(jobs: list[Job], days: int = 28, nodes: int = 2) -> Trace:
    return Trace(
        name="t",
        start=START,
        end=START + days * DAY,
        cluster=build_cluster([(H100, nodes)]),
        budgets=(Allocation(id="a", parent=None, share=Fraction(1)),),
        jobs=tuple(sorted(jobs, key=lambda one: (one.workload.submit_time, one.workload.id))),
    )


def many(count: int, days: int = 28) -> list[Job]:
    rng = np.random.default_rng(5)
    return [
        job(f"j{number:05}", int(rng.integers(0, days * DAY)), int(rng.integers(1, 9)), max(1, int(rng.lognormal(7, 1.5))))
        for number in range(count)
    ]


def test_offered_load_by_hand() -> None:
    """16 GPUs for a day; 8 for 6 h, and 4 for 12 h of which the job dies after 3 h: (48 + 12) / 384."""
    made = trace([job("a", 0, 8, 6 * 3_600), job("b", 0, 4, 12 * 3_600, fails=3 * 3_600)], days=1)
    assert offered_load(made) == (48 + 12) / 384
    assert asked(made.jobs[1]) == 12 * 3_600


@pytest.mark.parametrize("load", [0.01, 0.05, 0.5, 1.7])
def test_the_load_is_met_with_every_size_of_job(load: float) -> None:
    made = trace(many(3_000))
    scaled = scale_load(made, load, seed=4)
    assert offered_load(scaled) == pytest.approx(load, rel=0.002)
    factor = load / offered_load(made)
    for gpus in (1, 4, 8):
        before = sum(one.workload.gpus == gpus for one in made.jobs)
        after = sum(one.workload.gpus == gpus for one in scaled.jobs)
        assert after == pytest.approx(before * factor, rel=0.25, abs=4)
    assert len({one.workload.id for one in scaled.jobs}) == len(scaled.jobs)
    assert all(made.start <= one.workload.submit_time < made.end for one in scaled.jobs)
    assert encode_trace(scaled) == encode_trace(scale_load(made, load, seed=4))


def test_thinned_jobs_stay_as_they_are_and_repeated_ones_keep_hour_and_weekday() -> None:
    made = trace(many(800))
    known = {one.workload.id: one for one in made.jobs}
    thinned = scale_load(made, offered_load(made) / 2, seed=1)
    assert all(known[one.workload.id] == one for one in thinned.jobs)
    for one in scale_load(made, offered_load(made) * 2.5, seed=1).jobs:
        key, _, copy = one.workload.id.partition("~")
        moved = one.workload.submit_time - known[key].workload.submit_time
        assert moved % (7 * DAY) == 0
        assert bool(moved) == bool(copy)


def test_campaigns_are_neither_cut_nor_doubled() -> None:
    chain = [job("c0", 0, 8, DAY), job("c1", 1, 8, DAY, after="c0"), job("c2", 2, 8, DAY, after="c1")]
    made = trace([*chain, *many(500)])
    for load in (0.6, 2.0):
        scaled = scale_load(made, load, seed=0)
        assert [one for one in scaled.jobs if one.workload.id.startswith("c")] == chain
        assert offered_load(scaled) == pytest.approx(load, rel=0.02)
    with pytest.raises(SnapshotError, match=r"campaigns alone are 0\.054"):
        scale_load(made, 0.05, seed=0)
    with pytest.raises(SnapshotError, match="campaigns alone"):
        scale_load(trace(chain), 0.5, seed=0)


@given(st.integers(0, 50), st.integers(1, 7_200))
def test_jitter_moves_what_was_submitted_together_together(seed: int, spread: int) -> None:
    pairs = [
        job(f"{name}{number}", 7_200 * number + offset) for number in range(1, 9) for name, offset in (("a", 0), ("b", 30))
    ]
    made = trace([*pairs, job("z", 5, after="a1")])
    moved = {one.workload.id: one.workload.submit_time for one in jitter(made, spread, seed).jobs}
    assert moved["z"] == START + 5
    for number in range(1, 9):
        assert moved[f"b{number}"] - moved[f"a{number}"] == 30 or moved[f"a{number}"] == START
        assert abs(moved[f"a{number}"] - START - 7_200 * number) <= spread


def test_outages_have_the_rate_the_lemons_and_the_repairs() -> None:
    """8,000 GPUs for 100 days at 5e-4: 400 failures, half of them on 50 of 1,000 nodes; four in ten take days."""
    cluster = build_cluster([(H100, 1_000)])
    outages = draw_outages(cluster, START, START + 100 * DAY, np.random.default_rng(2))
    assert len(outages) == pytest.approx(400, rel=0.12)
    by_node: dict[str, int] = {}
    for outage in outages:
        by_node[outage.node] = by_node.get(outage.node, 0) + 1
    worst = sum(sorted(by_node.values(), reverse=True)[:50])
    assert worst / len(outages) == pytest.approx(LEMON_FAILURES, abs=0.12)
    repairs = np.array([outage.end - outage.start for outage in outages])
    assert np.mean(repairs > DAY) == pytest.approx(0.4, abs=0.08)
    assert np.median(repairs[repairs < DAY / 2]) == pytest.approx(4 * 3_600, rel=0.25)
    spans = sorted((outage.node, outage.start, outage.end) for outage in outages)
    assert all(one[2] <= other[1] for one, other in pairwise(spans) if one[0] == other[0])
    assert draw_outages(cluster, START, START + DAY, np.random.default_rng(2), 0.0) == ()
