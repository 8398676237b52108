"""Metrics of a replay that can be worked out by hand, and their intervals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.replay import Simulator, compare, compare_lines, read_played, summary_lines, write_results
from allocator.replay.bootstrap import difference, interval, value
from allocator.replay.evidence import DAY, Evidence, evidence_of
from allocator.replay.ladder import RUNG, Ladder
from allocator.replay.metrics import METRICS, Metric, wait_table
from allocator.replay.report import show
from tests.builders import budget
from tests.replay.play import START, Told, job, play, trace

pytest.importorskip("pyarrow")

from allocator.replay.tables import frames_of

METRIC = {metric.name: metric for metric in METRICS}


def evidence(simulator: Simulator) -> Evidence:
    return evidence_of(frames_of(simulator), simulator.trace.start, simulator.end)


def two_projects() -> Simulator:
    """One node for an hour. a runs [0, 900), b [900, 3600); a wants more from 1800 on and waits; no share is used up.

    a: 8 GPUs for 900 s charged. Demand of a: 900 s running, then 1800 s waiting.
    """
    jobs = (job("a1", 0, work=900), job("b1", 5, allocation="b", work=2700), job("a2", 1800, work=600, job_class="debug"))
    return play(trace(*jobs))


def test_the_numbers_of_an_hour() -> None:
    found = evidence(two_projects())
    # Assigned all the time; waiting: b from 5 to 900, a2 from 1800 to 3600.
    assert value(METRIC["occupancy"], found) == 1.0
    assert value(METRIC["load"], found) == pytest.approx(1 + (895 + 1800) / 3600)
    # Half of the node is owed to each: 1800 s x 8. a got 900, b 2700 which is cut at what it is owed.
    assert value(METRIC["delivered_7d"], found) == pytest.approx((900 + 1800) / 3600)
    assert value(METRIC["delivered_strict"], found) == pytest.approx((900 + 1800) / 3600)
    assert value(METRIC["delivered_lowest"], found) == pytest.approx(0.5)
    assert value(METRIC["delivered_at_95"], found) == 0.5
    assert value(METRIC["unallocated"], found) == 0.0
    # Waits: a1 0 s, b1 895 s, a2 1800 s (it has not started).
    assert [value(METRIC[f"wait_p{share}"], found) for share in (50, 90)] == [895, 1800]
    assert value(METRIC["wait_debug_p50"], found) == 1800
    assert value(METRIC["wait_eval_p50"], found) is None
    assert wait_table(found)["by_gpus"]["8"]["jobs"] == 3
    assert wait_table(found)["by_class"]["debug"]["p50"] == 1800


def test_lost_work_restarts_and_stops() -> None:
    # 100 s run, lost wholly; 50 s away; 30 s of restart and 300 s of work: 430 s assigned, of them 130 wasted.
    one = job("a", work=300, resumable=False, restart_time=30)
    found = evidence(play(trace(one), Told(stops={100: ["a"]}, back=50, promise=120)))
    assert value(METRIC["lost"], found) == pytest.approx(130 / 430)
    assert value(METRIC["goodput"], found) == pytest.approx(300 / 3600)
    assert value(METRIC["useful"], found) == pytest.approx(300 / 480)  # owed: the demand of 480 s, below its share of 1800
    assert [value(METRIC[name], found) for name in ("stops", "stops_max", "stopped_over_8", "promises_broken")] == [1, 1, 0, 1]
    assert value(METRIC["queued_p90"], found) == 50


def test_the_table_of_allocations_adds_up() -> None:
    tree = (budget("p", 3), budget("a", parent="p", funds=False), budget("b", 1))
    jobs = (job("a1", 0, work=900), job("b1", 5, allocation="b", work=2700))
    table = frames_of(play(trace(*jobs, budgets=tree)))["allocations"]
    table = table[table.pool == ""].set_index("allocation")
    assert list(table.index) == ["", "a", "b", "p"]
    assert table.charged.to_dict() == {"": 8 * 3600, "a": 8 * 900, "b": 8 * 2700, "p": 8 * 900}
    assert table.share["p"] == 8 * 2700
    assert table.owed["b"] == 8 * 900
    assert table.project.to_dict() == {"": False, "a": False, "b": True, "p": True}
    assert table.delivered_share["b"] == 1.0
    assert table.useful_share["b"] == pytest.approx(3.0)


def test_a_weighted_quantile_counts_days() -> None:
    values, day = np.array([1, 2, 3, 4]), np.array([0, 1, 0, 1])
    ladder = Ladder.of(values, day, 2)
    assert ladder.quantile(np.array([1.0, 1.0]), 0.5) == 2
    assert ladder.quantile(np.array([2.0, 0.0]), 0.9) == 3
    assert ladder.quantile(np.array([0.0, 0.0]), 0.5) is None
    assert Ladder.of(values[:0], day[:0], 1).quantile(np.array([1.0]), 0.5) is None


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 6)), max_size=3 * RUNG),
    st.lists(st.integers(0, 3), min_size=5, max_size=5),
    st.sampled_from([0.1, 0.5, 0.9, 1.0]),
)
def test_a_weighted_quantile_is_that_of_every_value_written_out(
    rows: list[tuple[int, int]], counts: list[int], share: float
) -> None:
    rows.sort()
    values, day = (np.array([row[side] for row in rows], dtype=np.int64) for side in (0, 1))
    written = [value for value, on in rows for _ in range(counts[min(on, 4)])]
    found = Ladder.of(values, day, 5).quantile(np.array(counts, dtype=np.float64), share)
    assert found == (next(x for n, x in enumerate(written, 1) if n >= share * len(written)) if written else None)


def six_days(busy: int = 40_000) -> Evidence:
    jobs = [job(f"j{number}", number * DAY + 3, work=busy + 1000 * number) for number in range(6)]
    return evidence(play(trace(*jobs, hours=144)))


def test_intervals_hold_the_value_and_are_the_same_each_time() -> None:
    found = six_days()
    low, high = interval(METRIC["occupancy"], found)
    middle = value(METRIC["occupancy"], found)
    assert low is not None
    assert high is not None
    assert middle is not None
    assert low < middle < high
    assert interval(METRIC["occupancy"], found) == (low, high)
    assert interval(METRIC["stops_max"], found) == (None, None)  # the most of all is the most of all


def test_a_difference_is_sharper_than_its_parts() -> None:
    one, other = six_days(), six_days(44_000)
    apart, low, high = difference(METRIC["occupancy"], one, other)
    # Each day has 4,000 s more, whatever the days that are drawn.
    assert [apart, low, high] == pytest.approx([4000 / DAY] * 3)


def test_too_few_days_give_no_interval() -> None:
    found = evidence(two_projects())
    assert interval(METRIC["occupancy"], found) == (None, None)
    assert difference(METRIC["load"], found, found) == (0.0, None, None)
    assert difference(METRIC["wait_eval_p50"], found, found) == (None, None, None)


def test_every_metric_has_a_definition_and_a_value_or_none() -> None:
    found = evidence(play(trace()))
    for metric in METRICS:
        assert metric.definition
        assert show(value(metric, found), metric)
        assert metric.better in ("higher", "lower", "")


def test_values_are_shown_with_their_units() -> None:
    def shown(name: str, number: float) -> str:
        return show(number, METRIC[name])

    assert [shown("wait_p50", seconds) for seconds in (14, 900, 9000, -400_000)] == ["14 s", "15.0 min", "2.5 h", "-4.6 d"]
    assert (shown("occupancy", 0.953), shown("load", 2.5), shown("stops", 12_000)) == ("95.3 %", "2.50", "12,000")


def test_replays_side_by_side(tmp_path: Path) -> None:
    summary = write_results(two_projects(), tmp_path / "one")
    slower = play(trace(job("a1", 0, work=900), job("b1", 5, allocation="b", work=2700)), tick=60)
    write_results(slower, tmp_path / "other")
    found = compare([read_played(tmp_path / name) for name in ("one", "other")])
    assert found["comparable"]
    row = next(row for row in found["metrics"] if row["metric"] == "load")
    assert row["values"]["one"] == pytest.approx(summary["metrics"]["load"]["value"])
    assert row["differences"]["other"]["value"] == pytest.approx(-1800 / 3600, abs=1e-9)
    text = "\n".join(compare_lines(found))
    assert "occupancy" in text
    assert METRIC["occupancy"].definition in text
    told = "\n".join(summary_lines(summary))
    assert METRIC["occupancy"].definition in told
    assert "class (none)" in told


def test_different_traces_are_said_to_be_different(tmp_path: Path) -> None:
    for folder in ("x/run", "y/run"):
        write_results(play(replace(trace(job("a")), name=folder)), tmp_path / folder)
    found = compare([read_played(tmp_path / folder) for folder in ("x/run", "y/run")])
    assert not found["comparable"]
    assert [run["label"] for run in found["runs"]] == ["run#1", "run#2"]
    assert "different traces" in "\n".join(compare_lines(found))


def test_the_worst_wait_is_of_what_has_not_started() -> None:
    simulator = play(trace(job("a", 0, work=5000), job("b", 100)))
    assert [metric_value(simulator, name) for name in ("wait_p99", "wait_large_p100")] == [3500, 3500]
    assert simulator.end - START == 3600


def metric_value(simulator: Simulator, name: str) -> float | None:
    metric: Metric = METRIC[name]
    return value(metric, evidence(simulator))
