"""Thinning, tables, words and the pictures that the small replays do not show."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.pages.engine import engine_figures, rungs_of
from allocator.pages.figure import MOST_ROWS, table
from allocator.pages.promises import MOST_MARKS, reservation_figures
from allocator.pages.source import Run, read_runs
from allocator.pages.thin import HOUR, MOST_SPANS, held_by, schedulable, spans_of
from allocator.pages.words import shown, verdict
from allocator.replay.metrics import METRICS
from tests.replay.play import START

METRIC = {metric.name: metric for metric in METRICS}


@given(st.integers(0, 2_000_000_000), st.integers(1, 5000 * 86_400), st.integers(1, 300))
def test_spans_cover_all_and_are_few(start: int, length: int, most: int) -> None:
    spans = spans_of(start, start + length, most)
    assert 1 <= spans.count <= most
    assert spans.edges[0] == start
    assert spans.edges[-1] == start + length
    assert (np.diff(spans.edges) > 0).all()
    assert spans.first % HOUR == 0


def test_spans_have_names() -> None:
    assert spans_of(0, 7 * 86_400).name == "an hour"
    assert spans_of(0, 28 * 86_400).name == "4 hours"
    assert spans_of(0, 400 * 86_400).name == "7 days"


def test_thinned_series_keep_the_gpu_time(ours: Path) -> None:
    (run,) = read_runs([ours])
    hours = run.frames["hours"]
    root = hours[hours.allocation == ""]
    for most in (MOST_SPANS, 5, 1):
        spans = spans_of(run.start, run.end, most)
        seconds = np.diff(spans.edges)
        held = held_by(hours, spans)
        assert held.charged @ seconds == pytest.approx(root.charged.sum())
        assert held.uncharged @ seconds == pytest.approx(root.uncharged.sum())
        assert schedulable(hours, spans) @ seconds == pytest.approx(root.share.sum())


def test_tables_are_cut_and_say_so() -> None:
    cut = table(("a",), ([str(number)] for number in range(MOST_ROWS + 5)), "runs.csv")
    assert len(cut.rows) == MOST_ROWS
    assert cut.note == "The first 200 of 205 rows; all of them are in runs.csv."
    assert table(("a",), [["1"]]).note == ""


def test_differences_are_points_and_judged_by_their_interval() -> None:
    assert shown("occupancy", "", 0.054, signed=True) == "+5.4 points"
    assert shown("occupancy", "", -0.054, signed=True) == "\N{MINUS SIGN}5.4 points"
    assert shown("wait_p50", "s", 7200, signed=True) == "+2.0 h"
    assert shown("cost", "EUR", 1234.5) == "1,234 EUR"
    assert shown("delay", "s", 7200) == "2.0 h"
    assert shown("occupancy", "", None) == "\N{EN DASH}"
    said = [verdict(METRIC[name].better, {"low": low, "high": high}) for name, low, high in (
        ("occupancy", 0.1, 0.2), ("occupancy", -0.2, -0.1), ("wait_p50", 1, 2), ("wait_p50", -2, -1), ("occupancy", -0.1, 0.1),
        ("load", 0.1, 0.2), ("occupancy", None, None),
    )]  # fmt: skip
    assert said == ["better", "worse", "worse", "better", "unclear", "differs", ""]


def with_table(run: Run, name: str, rows: pd.DataFrame) -> Run:
    return replace(run, frames=MappingProxyType({**run.frames, name: rows}))


def test_reservations_that_were_kept_missed_and_pending(ours: Path) -> None:
    (run,) = read_runs([ours])
    number = MOST_MARKS + 100
    rows = pd.DataFrame({
        "job": [f"gang{place:03d}" for place in range(number)],
        "eligible_since": START,
        "bound": START + 4 * HOUR,
        "last_bound": START + 4 * HOUR,
        "start": pd.array([START + HOUR] * (number - 3) + [START + 6 * HOUR] * 2 + [None], dtype="Int64"),
        "late": [0] * (number - 3) + [2 * HOUR] * 2 + [0],
    })  # fmt: skip
    (figure,) = reservation_figures(with_table(run, "reservations", rows))
    assert "397 started within their bound, 2 did not, 1 had not started" in figure.alt
    assert f"{MOST_MARKS} of {number} are drawn" in figure.caption
    assert figure.table.rows[0][0] == "gang397"  # the latest first
    assert figure.table.rows[0][2:] == ("4.0 h", "6.0 h", "2.0 h")
    pending = reservation_figures(with_table(run, "reservations", rows.tail(1)))[0]
    assert pending.table.rows[0][3] == "not started"
    assert reservation_figures(with_table(run, "reservations", rows.head(0))) == []


def test_gaps_and_rungs(ours: Path) -> None:
    (run,) = read_runs([ours])
    epochs = run.frames["epochs"]
    assert [figure.title for figure in engine_figures(run)] == ["Time of a decision"]
    gaps = np.where(np.arange(len(epochs)) % 2, 0.0, 0.015)
    gapped = with_table(run, "epochs", epochs.assign(gap=np.where(np.arange(len(epochs)) < 9, np.nan, gaps)))
    gap, _ = engine_figures(gapped)
    assert "the worst gap is 1.50 %" in gap.alt
    assert rungs_of(run).rows[0][-2:] == (f"{len(epochs):,}", "100.0 %")
