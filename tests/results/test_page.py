"""The page of results: what it stars, and what it says of other policies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from allocator.replay.metrics import METRICS
from benchmarks.results.__main__ import main
from benchmarks.results.figures import PUBLISHED, UNFAIR
from benchmarks.results.page import SHARES, WAITS, page_of
from benchmarks.results.studies import BASELINES, CONFIRMED, LOGS, OURS, SETTINGS, Size, Study, studies

SIZE = Size(gpus=64, days=1, seeds=1, settings_days=2)


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
    return {
        "variants": [{"name": name} for name in names],
        "comparison": rows,
        "sentences": ["a sentence"],
        "seeds": [1],
        "notes": {1: "12 jobs"},
        "broken": {"node_down": 2, "drained": 1},
        "lost": {"eval that cannot resume": 60, "restarts": 38, "rl that can resume": 2},
    }


def test_every_policy_has_a_row_at_every_load() -> None:
    found = list(studies(SIZE, None))
    assert [one.name for one in found] == ["load-1.06", "load-1.2", "load-1.5", "settings", "confirmed"]
    assert [variant.name for variant in found[0].scenario.variants] == [OURS, *BASELINES]
    assert found[3].scenario.baseline == "defaults"
    assert len(found[3].scenario.variants) == 1 + len(SETTINGS)


def test_settings_are_tried_on_other_seeds_than_those_of_the_tables() -> None:
    assert not set(study("settings").scenario.seeds) & set(study("load-1.2").scenario.seeds)


def test_what_looked_worth_it_is_played_on_the_seeds_of_the_tables() -> None:
    of, table = study("confirmed").scenario, study("load-1.2").scenario
    assert (of.seeds, of.base) == (table.seeds, table.base)
    assert [variant.name for variant in of.variants] == ["defaults", *CONFIRMED]


def test_settings_have_days_of_their_own() -> None:
    of = study("settings")
    assert of.scenario.base.recipe is not None
    assert of.scenario.base.recipe.days == "2"
    assert "for 2 days of seeds 101 to 101" in of.about


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
    told = [
        "cap-4h: no difference to defaults can be told in the median wait.",
        "cap-4h: of no project can it be told that it gains or loses.",
        "tick-60s: the median wait rises.",
        "tick-60s: no difference to defaults can be told in goodput.",
        "Of 12 comparisons some differ.",
    ]
    page = page_of(SIZE, "cmd", [(of, answer(of) | {"sentences": told})])
    said = [line for line in page.splitlines() if line in [f"- {sentence}" for sentence in told]]
    assert said == ["- tick-60s: the median wait rises.", "- Of 12 comparisons some differ."]
    assert "- In " not in page
    silent = ", ".join(f"`{name}`" for name in SETTINGS if name != "tick-60s")
    assert f"- No difference to `defaults` can be told of: {silent}.\n" in page
    assert "*published*" not in page


def test_the_columns_are_metrics_and_defined() -> None:
    assert set(SHARES) | set(WAITS) <= {metric.name for metric in METRICS}
    assert all(set(row) <= set(SHARES) | set(WAITS) for row in PUBLISHED.values())
    of = study("load-1.2")
    page = page_of(SIZE, "cmd", [(of, answer(of))])
    assert "- *wait, median* `wait_p50`: 50th percentile of the wait" in page
    assert "`wait_p99`" not in page


def test_what_is_named_only_as_a_win_is_defined_too() -> None:
    of = study("load-1.2")
    assert "- `wait_p99`: 99th" in page_of(SIZE, "cmd", [(of, answer(of, wait_p99=("drf", -0.2, -0.1)))])


def test_the_summary_counts_wins_and_losses() -> None:
    of = study("load-1.2")
    page = page_of(SIZE, "cmd", [(of, answer(of, goodput=("drf", 0.1, 0.2), lost=("drf", 0.1, 0.2)))])
    compared = len(BASELINES) * sum(metric.better != "" and not metric.name.startswith(UNFAIR) for metric in METRICS)
    row = next(line for line in page.splitlines() if line.startswith(f"| [{of.heading}](#a-research-organisation-at-an-"))
    assert row.endswith(f"| 1 | 1 | {compared} |")
    assert "| 50.0 % (50.0 % `priority_optout`) |" in row


def test_ties_and_single_bests_are_counted_over_studies() -> None:
    one, other = study("load-1.06"), study("load-1.2")
    found = answer(other, goodput=("drf", 0.1, 0.2))
    for row in found["comparison"]:
        if row["metric"] == "goodput" and row["variant"] == "drf":
            row["value"] = 0.75
    page = page_of(SIZE, "cmd", [(one, answer(one)), (other, found)])
    assert "the useful part of the cluster in 1 of 2; the median wait in 2 of 2" in page
    assert "broke in all of this: 6 (2 by drained, 4 by node_down)." in page


def test_published_figures_are_set_beside_ours() -> None:
    of = study("load-1.2")
    found = answer(of)
    for row in found["comparison"]:
        if row["variant"] == OURS:
            row["value"] = {"delivered_7d": 0.98, "wait_p50": 25.0, "wait_debug_p90": None}.get(row["metric"], row["value"])
    page = page_of(SIZE, "cmd", [(of, found)])
    assert "reaches, where it is known: `delivered_7d` 98.0 % in 1 of 1; " in page
    assert "`wait_p50` 24 s in 0 of 1; `wait_p90` 108.0 min in 1 of 1." in page


def test_settings_alone_have_no_summary() -> None:
    of = study("settings")
    assert "No other policy does better" not in page_of(SIZE, "cmd", [(of, answer(of))])


def test_the_best_of_the_others_is_the_lowest_wait() -> None:
    of = study("load-1.2")
    found = answer(of, wait_p50=("drf", -0.2, -0.1))
    for row in found["comparison"]:
        if row["metric"] == "wait_p50":
            row["value"] = {OURS: 60.0, "drf": 10.0}.get(row["variant"], 90.0)
        if row["metric"] == "useful":
            row["value"] = None
    page = page_of(SIZE, "cmd", [(of, found)])
    assert "| - | 50.0 % (50.0 % `priority_optout`) |" in page
    assert "| 60 s (10 s `drf`) |" in page
    assert "as useful time" not in page


def test_a_star_alone_is_not_called_no_difference() -> None:
    of = study("settings")
    page = page_of(SIZE, "cmd", [(of, answer(of, goodput=("cap-4h", 0.1, 0.2)))])
    silent = next(line for line in page.splitlines() if line.startswith("- No difference to"))
    assert "`cap-4h`" not in silent
    assert "`tick-60s`" in silent


def test_limits_follow_from_the_size() -> None:
    small, large = page_of(SIZE, "cmd", []), page_of(Size(gpus=1792, days=28), "cmd", [])
    assert ("On so small a cluster" in small, "On so small a cluster" in large) == (True, False)
    assert ("ever leaves the window" in small, "ever leaves the window" in large) == (True, False)
    assert "1792 GPUs in 3 pools, 28 days" in large


def test_studies_with_room_to_spare_are_counted() -> None:
    of = study("load-1.2")
    assert "- In 1 of 1 studies less is asked for than there is" in page_of(SIZE, "cmd", [(of, answer(of))])


def test_what_is_charged_is_no_measure_of_others() -> None:
    of = study("load-1.2")
    page = page_of(SIZE, "cmd", [(of, answer(of, delivered_1d=("drf", 0.1, 0.2)))])
    assert "- nowhere\n" in page
    assert "| 0 | 0 | " in page


def test_what_was_played_is_told_by_seed() -> None:
    of = study("load-1.2")
    assert "- seed 1: 12 jobs\n" in page_of(SIZE, "cmd", [(of, answer(of))])
    assert "- played: 12 jobs\n" in page_of(SIZE, "cmd", [(of, answer(of) | {"seeds": [0], "notes": {0: "12 jobs"}})])


def test_broken_promises_are_told_by_cause() -> None:
    of = study("load-1.2")
    assert "all seeds together: 3 (1 by drained, 2 by node_down)." in page_of(SIZE, "cmd", [(of, answer(of))])
    assert "all seeds together: none." in page_of(SIZE, "cmd", [(of, answer(of) | {"broken": {}})])


def test_what_was_lost_is_told_by_whose_it_was() -> None:
    of = study("load-1.2")
    assert "Of what it lost: 60% eval that cannot resume, 38% restarts.\n" in page_of(SIZE, "cmd", [(of, answer(of))])
    assert "Of what it lost: nothing.\n" in page_of(SIZE, "cmd", [(of, answer(of) | {"lost": {"restarts": 0}})])


def test_a_single_broken_promise_is_not_rounded_away() -> None:
    of = study("load-1.2")
    found = answer(of)
    row = next(row for row in found["comparison"] if (row["metric"], row["variant"]) == ("promises_broken", OURS))
    row["value"] = 1 / 3
    assert "| 0.3 |" in page_of(SIZE, "cmd", [(of, found)])
    row["value"] = 3.0
    assert "| 3 |" in page_of(SIZE, "cmd", [(of, found)])


def test_a_page_from_a_run_says_how_it_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole command with the two cheapest policies."""
    monkeypatch.setattr("benchmarks.results.studies.OURS", "fifo_backfill")
    monkeypatch.setattr("benchmarks.results.studies.BASELINES", ("partitions",))
    page = tmp_path / "results.md"
    given = "--gpus 64 --pools 1 --days 1 --seeds 1 --settings-days 2 --jobs 1"
    texts = []
    for last in ((), (), ("--as-played",)):  # the second run keeps what the first has played
        main(["load-1.06", *given.split(), "--out", str(tmp_path / "out"), "--report", str(page), *last])
        texts.append(page.read_text(encoding="utf-8"))
    text, *others = texts
    assert others == [text, text]
    assert f"python -m benchmarks.results load-1.06 {given.removesuffix(' --jobs 1')} --out OUT --report PAGE" in text
    assert "jobs, offered load 1.0" in text
    assert "64 GPUs in one pool, 1 day" in text


def test_logs_are_left_out_without_their_folder(tmp_path: Path) -> None:
    names = [one.name for one in studies(SIZE, tmp_path)]
    assert names[-len(LOGS) - 2 :] == [*LOGS, "settings", "confirmed"]


def test_logs_are_looked_for_in_their_folder(tmp_path: Path) -> None:
    of = next(one for one in studies(SIZE, tmp_path) if one.name == "elasticflow-kalos-1.2")
    recipe = of.scenario.base.recipe
    assert recipe is not None
    assert (recipe.log, recipe.on_top) == (
        tmp_path / "elasticflow_itp_2021.csv.gz",
        tmp_path / "acme_kalos_completed_training.csv",
    )
    assert (recipe.tenants, recipe.load, of.scenario.seeds) == ("cluster04", 1.2, ())


def test_an_unknown_study_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["load-7", "--out", str(tmp_path)])
    assert "there is no study load-7: choose from load-1.06" in capsys.readouterr().err
