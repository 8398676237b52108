"""The synthetic organisation against the marginals of its workload model, and scenarios against their recipes.

Targets are those of the model; tolerances are several standard errors at 28 days and 1,792 GPUs, so a wrong rate, size or
run time falls outside. The seed is fixed, so nothing here is left to chance.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from allocator.domain import SnapshotError
from allocator.domain.trace import Job, Trace
from allocator.generate.flow import DIURNAL, FLOWS, WEEK, surge_by_day
from allocator.generate.offered import asked, offered_load
from allocator.generate.organisation_trace import TraceParams, generate_trace
from allocator.generate.scenario import generate_scenario, scenarios
from allocator.wire import decode_trace, encode_trace

pytestmark = pytest.mark.slow  # all of them look at the same few traces, which each process has to make

DAY, HOUR = 86_400, 3_600


@cache
def whole() -> Trace:
    """Four weeks at the reference load, as the shipped instance of the model."""
    return generate_trace(TraceParams(seed=20_261_129))


@cache
def small(**fields: object) -> Trace:
    return generate_trace(TraceParams(**{"gpus": 256, "pools": 1, "days": 7, "seed": 3, **fields}))  # type: ignore[arg-type]


def by_class(trace: Trace) -> dict[str, list[Job]]:
    found: dict[str, list[Job]] = {}
    for job in trace.jobs:
        found.setdefault(job.workload.job_class or "", []).append(job)
    return found


def run_times(jobs: list[Job]) -> np.ndarray:
    return np.array([job.work if job.fails_after is None else job.fails_after for job in jobs])


def test_as_many_jobs_of_each_class_a_day() -> None:
    for flow in FLOWS:
        count = len(by_class(whole())[flow.job_class.name]) / 28
        assert count == pytest.approx(flow.per_day, rel=0.15 if count > 30 else 0.3), flow.job_class.name
    assert len(whole().jobs) == pytest.approx(75_000, rel=0.12)


@pytest.mark.parametrize(
    ("name", "share", "tolerance"),
    [
        ("debug", 0.016, 0.003),
        ("eval", 0.032, 0.006),
        ("experiment", 0.150, 0.03),
        ("post-training", 0.095, 0.025),
        ("rl", 0.14, 0.05),
        ("ablation", 0.24, 0.07),
        ("flagship", 0.32, 0.07),
    ],
)
def test_each_class_asks_for_its_part_of_the_gpu_time(name: str, share: float, tolerance: float) -> None:
    total = sum(map(asked, whole().jobs))
    assert sum(map(asked, by_class(whole())[name])) / total == pytest.approx(share, abs=tolerance)


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.job_class.name)
def test_sizes(flow: object) -> None:
    job_class = flow.job_class  # type: ignore[attr-defined]
    jobs = by_class(whole())[job_class.name]
    counts = Counter(job.workload.gpus for job in jobs)
    assert set(counts) <= set(job_class.sizes)
    for gpus, part in job_class.sizes.items():
        assert counts[gpus] / len(jobs) == pytest.approx(part, abs=0.02 + 1.5 / len(jobs) ** 0.5), gpus


@pytest.mark.parametrize(
    ("name", "p50", "p90"),
    [
        ("eval", 240, 3_655),
        ("debug", 925, 9_760),
        ("experiment", 5_543, 47_174),
        ("post-training", 8_168, 44_988),
        ("rl", 33_052, 132_791),
        ("ablation", 10_657, 139_488),
    ],
)
def test_run_times_with_early_failures(name: str, p50: int, p90: int) -> None:
    """Realised quantiles of the published instance."""
    spans = run_times(by_class(whole())[name])
    rel = 0.12 if len(spans) > 2_000 else 0.35
    assert np.quantile(spans, 0.9) == pytest.approx(p90, rel=rel)
    assert np.quantile(spans, 0.5) == pytest.approx(p50, rel=rel if name != "ablation" else 0.6)


def test_large_gangs_hold_most_of_the_time() -> None:
    total = sum(map(asked, whole().jobs))
    for least, jobs, time in ((8, 0.145, 0.95), (16, 0.022, 0.83), (64, 0.007, 0.66), (256, 0.0008, 0.37), (512, 0.0002, 0.17)):
        large = [job for job in whole().jobs if job.workload.gpus >= least]
        assert len(large) / len(whole().jobs) == pytest.approx(jobs, rel=0.35, abs=0.0003), least
        assert sum(map(asked, large)) / total == pytest.approx(time, abs=0.09), least


def test_the_day_and_the_week() -> None:
    """5.7 to 1 between 10-16 and 3 o'clock for all but evals; a weekend day has 0.55 of a weekday."""
    assert max(DIURNAL) / min(DIURNAL) == pytest.approx(5.7, abs=0.05)
    assert (WEEK[5] + WEEK[6]) / 2 / (sum(WEEK[:5]) / 5) == pytest.approx(0.55, abs=0.01)
    at = np.array([job.workload.submit_time for job in whole().jobs if job.workload.job_class in ("debug", "experiment")])
    hours = np.bincount((at - whole().start) // HOUR % 24, minlength=24)
    assert hours[10:16].mean() / hours[2:5].mean() == pytest.approx(5.3, rel=0.15)
    days = np.bincount((at - whole().start) // DAY % 7, minlength=7)
    assert days[5:].mean() / days[:5].mean() == pytest.approx(0.55, rel=0.12)
    evals = np.array([job.workload.submit_time for job in by_class(whole())["eval"]])
    eval_hours = np.bincount((evals - whole().start) // HOUR % 24, minlength=24)
    assert eval_hours[10:16].mean() / eval_hours[2:5].mean() == pytest.approx(2.0, rel=0.25)


def test_arrivals_come_in_bursts() -> None:
    """A third of the jobs share their second with the one before, and gaps vary four times as much as they are long."""
    at = np.array([job.workload.submit_time for job in whole().jobs])
    gaps = np.diff(at)
    assert np.mean(gaps == 0) == pytest.approx(0.33, abs=0.05)
    assert gaps.std() / gaps.mean() == pytest.approx(4.0, rel=0.25)


def test_early_failures_and_declarations() -> None:
    """Ablations: 45 % die early, in four minutes at the median and within half an hour; all resume, RL nine in ten."""
    ablations = by_class(whole())["ablation"]
    early = [job.fails_after for job in ablations if job.fails_after is not None and job.fails_after < job.work]
    assert len(early) / len(ablations) == pytest.approx(0.45, abs=0.1)
    assert max(early) <= 30 * 60
    assert np.median(early) == pytest.approx(240, rel=0.35)
    assert all(job.workload.resumable for job in ablations)
    rl = by_class(whole())["rl"]
    assert sum(job.workload.resumable for job in rl) / len(rl) == pytest.approx(0.9, abs=0.06)
    assert all(job.workload.min_runtime == 0 for job in by_class(whole())["eval"])
    limits = [job.workload.max_runtime for job in whole().jobs if job.workload.max_runtime is not None]
    assert all(limit % HOUR == 0 for limit in limits)


def test_campaigns_run_in_segments_after_failed_attempts() -> None:
    flagship = by_class(whole())["flagship"]
    names = {job.workload.id.partition("-")[0] for job in flagship}
    assert names == {"flag7b", "flag32b", "mm", "mid7b"}
    gangs = {job.workload.id.partition("-")[0]: (job.workload.gpus, job.workload.pools) for job in flagship}
    assert gangs == {"flag7b": (512, ("b200",)), "flag32b": (256, ("h100",)), "mm": (128, ("b300",)), "mid7b": (256, ("b300",))}
    for name in names:
        chain = [job for job in flagship if job.workload.id.startswith(f"{name}-")]
        attempts = [job for job in chain if "-try" in job.workload.id]
        assert 3 <= len(attempts) <= 8
        assert all(job.fails_after is not None and job.fails_after <= 30 * 60 for job in attempts)
        assert [job.after for job in chain] == [None, *(job.workload.id for job in chain[:-1])]
        assert all(20 * 60 <= (job.fails_after or job.work) <= 7 * DAY for job in chain[len(attempts) :])


@pytest.mark.parametrize("load", [0.85, 1.2, 1.5])
def test_the_load_that_was_asked_for(load: float) -> None:
    assert offered_load(small(load=load)) == pytest.approx(load, rel=0.002)


def test_the_same_seed_gives_the_same_bytes_and_another_one_others() -> None:
    data = encode_trace(small())
    assert decode_trace(data) == decode_trace(encode_trace(generate_trace(TraceParams(gpus=256, pools=1, days=7, seed=3))))
    assert encode_trace(generate_trace(TraceParams(gpus=256, pools=1, days=7, seed=3))) == data
    assert encode_trace(small(seed=4)) != data


def test_squatters_keep_sessions_and_nothing_else() -> None:
    """All or none of the researchers: every session of half an hour and more is kept, or none."""
    sessions = [job for job in small(squatters=1.0).jobs if job.workload.job_class == "debug" and job.work >= 1_800]
    assert sessions
    assert all(job.idle > 0 for job in sessions)
    assert np.median([job.idle for job in sessions]) == pytest.approx(6 * HOUR, rel=0.3)
    assert all(job.idle == 0 for job in small(squatters=1.0).jobs if job not in sessions)
    assert all(job.idle == 0 for job in small(squatters=0.0).jobs)


def test_a_deadline_brings_more_work_and_then_less() -> None:
    factor = surge_by_day(30, 14)
    assert factor.tolist() == [1.0] * 4 + [1.8] * 10 + [0.6] * 5 + [1.0] * 11
    trace = generate_trace(TraceParams(gpus=256, pools=1, days=21, seed=1, deadline=14))
    at = np.array([job.workload.submit_time for job in by_class(trace)["experiment"]])
    days = np.bincount((at - trace.start) // DAY, minlength=21)
    assert days[7:14].sum() / days[14:19].sum() > 2


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"days": 0}, "days"),
        ({"load": 0.0}, "load"),
        ({"load": 0.05}, "campaigns alone"),
        ({"pools": 2}, "pools"),
        ({"gpus": 8}, "gpus"),
        ({"squatters": 2.0}, "squatters"),
        ({"seed": -1}, "seed"),
        ({"failures": 3.0}, "failures"),
    ],
)
def test_parameters_that_make_no_sense(fields: dict[str, object], word: str) -> None:
    with pytest.raises(SnapshotError, match=word):
        small(**fields)


# --- scenarios -------------------------------------------------------------------------------------------------------------


def events(trace: Trace) -> list[Job]:
    return [job for job in trace.jobs if "-event" in job.workload.id]


@pytest.mark.parametrize("name", [name for name in scenarios() if not name.startswith("steady")])
def test_every_shipped_scenario_is_a_trace(name: str) -> None:
    trace = generate_scenario(name)
    data = encode_trace(trace)
    assert encode_trace(decode_trace(data)) == data
    assert trace.name == scenarios()[name]


def test_steady_has_three_loads() -> None:
    assert [name for name in scenarios() if name.startswith("steady")] == ["steady-085", "steady-106", "steady-130"]
    for name, load in (("steady-085", 0.85), ("steady-130", 1.3)):
        assert offered_load(generate_scenario(name, {"days": 3, "gpus": 448})) == pytest.approx(load, rel=0.03)


def test_big_gangs_of_half_and_all_of_the_cluster() -> None:
    trace = generate_scenario("big-gang-arrival")
    assert [(job.workload.gpus, job.workload.submit_time - trace.start) for job in events(trace)] == [
        (512, 2 * DAY + 10 * HOUR),
        (1024, 4 * DAY + 10 * HOUR),
    ]


def test_the_flood_comes_in_five_minutes() -> None:
    trace = generate_scenario("eval-flood")
    flood = [job.workload for job in events(trace)]
    assert len(flood) == 2_000
    assert flood[-1].submit_time - flood[0].submit_time < 301
    assert {(work.gpus, work.min_runtime) for work in flood} == {(1, 0)}
    assert {work.allocation.rpartition("/")[0] for work in flood} == {"climate/emulation"}


def test_bring_up_is_a_chain_of_failures() -> None:
    chain = [job for job in events(generate_scenario("bring-up-loop")) if "event0" in job.workload.id]
    assert [job.fails_after for job in chain] == [360] * 8
    assert [job.after for job in chain] == [None, *(job.workload.id for job in chain[:-1])]
    assert chain[-1].workload.submit_time - chain[0].workload.submit_time < 3 * HOUR


def test_storm_maintenance_and_revision() -> None:
    storm = [outage for outage in generate_scenario("node-loss-storm").outages if outage.reason == "scenario"]
    assert len(storm) == 3 + 5
    assert {outage.end - outage.start for outage in storm} == {6 * HOUR}
    week = generate_scenario("maintenance-week")
    assert len({work.node for work in week.maintenance}) == 128
    assert Counter(work.deadline for work in week.maintenance) == {
        week.start + 2 * DAY + 8 * HOUR * (batch + 1): 16 for batch in range(8)
    }
    assert {(work.deadline or 0) - work.announced for work in week.maintenance} == {DAY}
    revised = generate_scenario("budget-revision")
    shares = {vertex.id: vertex.share for vertex in revised.revisions[0].budgets}
    assert (revised.revisions[0].at, shares["base"], shares["adapt"], shares["science"]) == (
        revised.start + 7 * DAY,
        Fraction(30),
        Fraction(37),
        Fraction(7),
    )


def test_fragments_are_half_a_node() -> None:
    trace = generate_scenario("fragmentation")
    assert len(trace.jobs) == len(events(trace)) == 77 + 77 + 51 + 1
    assert trace.jobs[-1].workload.topology.required == "leaf"
    assert trace.jobs[-1].workload.gpus == 32 * 8


RECIPE = (
    '[organisation]\ngpus = 256\npools = 1\ndays = 2\n\n[[jobs]]\nat = "1d"\ngpus = 8\nwork = "1h"\nproject = "base/pretrain"\n'
)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (RECIPE + 'class = "nope"', "no class is called 'nope'"),
        (RECIPE.replace("base/pretrain", "x") + 'class = "eval"', "no project is called 'x'"),
        (RECIPE + 'class = "eval"\ncolour = 1', "colour"),
        (RECIPE + 'class = "eval"\n[[outages]]\nat = "1d"\nlasts = "1h"\npool = "tpu"\npart = 0.1', "no pool 'tpu'"),
        (RECIPE + 'class = "eval"\n[[revisions]]\nat = "1d"\n[revisions.shares]\nnope = 1', "unknown budgets org/nope"),
        (RECIPE + 'class = "eval"\n[weather]\nrain = 1', "unknown parts weather"),
        (RECIPE.replace("gpus = 256", "gpu = 256") + 'class = "eval"', "gpu"),
        (RECIPE.replace('"1d"', '"soon"') + 'class = "eval"', "no span"),
        ("[[jobs]", "no TOML"),
    ],
)
def test_recipes_that_cannot_be_carried_out(text: str, word: str, tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    with pytest.raises(SnapshotError, match=word):
        generate_scenario(str(path))


def test_a_recipe_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text('title = "mine"\n' + RECIPE + 'class = "rl"\nuser = 2\ngpus_per_task = 4\npool = "h100"\n')
    (job,) = events(generate_scenario(str(path)))
    assert (job.workload.tasks, job.workload.gpus_per_task, job.workload.pools, job.work) == (2, 4, ("h100",), HOUR)
    with pytest.raises(SnapshotError, match="no scenario is called 'nope'"):
        generate_scenario("nope")
