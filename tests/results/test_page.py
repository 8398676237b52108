"""The page of results: what it stars, and what it says of other policies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from allocator.replay.metrics import METRICS
from benchmarks.results.__main__ import main
from benchmarks.results.page import COLUMNS, page_of
from benchmarks.results.studies import BASELINES, LOGS, OURS, SETTINGS, Size, Study, studies

SIZE = Size(gpus=64, days=1, seeds=1)


def study(name: str) -> Study:
    return next(one for one in studies(SIZE, None) if one.name == name)


def answer(of: Study, **apart: tuple[str, float, float]) -> dict[str, Any]:
    """Every metric 0.5 for every variant; `apart` gives the last variant's differences: metric -> (variant, low, high)."""
    names = [variant.name for variant in of.scenario.variants]
    rows = []
    for metric in METRICS:
        for name in names:
            variant, low, high = apart.get(metric.name, ("", None, None))
            own = variant == name
            rows.append({
                "metric": metric.name, "better": metric.better, "variant": name, "value": 0.25 if own else 0.5,
                "difference_low": low if own else None, "difference_high": high if own else None,
            })  # fmt: skip
    return {"variants": [{"name": name} for name in names], "comparison": rows, "sentences": ["a sentence"]}


def test_every_policy_has_a_row_at_every_load() -> None:
    found = list(studies(SIZE, None))
    assert [one.name for one in found] == ["load-1.06", "load-1.2", "load-1.5", "settings"]
    assert [variant.name for variant in found[0].scenario.variants] == [OURS, *BASELINES]
    assert found[3].scenario.baseline == "defaults"
    assert len(found[3].scenario.variants) == 1 + len(SETTINGS)


def test_settings_are_tried_on_other_seeds_than_those_of_the_tables() -> None:
    assert not set(study("settings").scenario.seeds) & set(study("load-1.2").scenario.seeds)


def test_a_win_of_another_policy_is_named() -> None:
    of = study("load-1.2")
    page = page_of(SIZE, "cmd", [(of, answer(of, goodput=("drf", 0.1, 0.2)))])
    assert "- goodput (50.0 %): `drf` 25.0 %\n" in page
    assert "25.0 % \\*" in page


@pytest.mark.parametrize(("low", "high"), [(-0.2, -0.1), (-0.1, 0.1)])
def test_a_loss_and_what_may_be_chance_are_no_win(low: float, high: float) -> None:
    of = study("load-1.2")
    page = page_of(SIZE, "cmd", [(of, answer(of, goodput=("drf", low, high)))])
    assert "- nowhere\n" in page
    assert ("25.0 % \\*" in page) == (high < 0)


def test_less_is_better_where_less_is_better() -> None:
    of = study("load-1.2")
    assert "- lost (50.0 %): `drf`" in page_of(SIZE, "cmd", [(of, answer(of, lost=("drf", -0.2, -0.1)))])


def test_settings_are_told_in_sentences() -> None:
    of = study("settings")
    page = page_of(SIZE, "cmd", [(of, answer(of))])
    assert "- a sentence\n" in page
    assert "*published*" not in page


def test_the_columns_are_metrics() -> None:
    assert set(COLUMNS) <= {metric.name for metric in METRICS}


def test_logs_are_left_out_without_their_folder(tmp_path: Path) -> None:
    names = [one.name for one in studies(SIZE, tmp_path)]
    assert names[-len(LOGS) :] == list(LOGS)


def test_an_unknown_study_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["load-7", "--out", str(tmp_path)])
    assert "there is no study load-7: choose from load-1.06" in capsys.readouterr().err
