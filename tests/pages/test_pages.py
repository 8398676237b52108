"""What the page says: numbers of the results, differences, and what is missing."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from allocator.pages import build_report
from allocator.pages.costs import cost_figures
from allocator.pages.gains import gains_of
from allocator.pages.source import MOST_RUNS, read_runs
from allocator.replay import ReplayError
from allocator.replay.metrics import METRICS
from allocator.replay.tables import PLACES
from tests.cli.conftest import Invoke, invoke
from tests.pages.material import EVIL, quiet, study_document, write_replay

__all__ = ["invoke"]


def test_one_replay(one: str, ours: Path) -> None:
    summary = json.loads((ours / "summary.json").read_text())
    for metric in METRICS:
        assert f'<th scope="row">{metric.name} ' in one
    assert f"{100 * summary['metrics']['occupancy']['value']:.1f} %" in one
    assert summary["metrics"]["stops"]["value"] == 3
    assert "Work was stopped 3 times" in one
    for title in (
        "Who held the GPUs",
        "Owed and delivered",
        "Waits by class",
        "Map of the floor",
        "Stops and their cost",
        "Engine",
    ):
        assert title in one
    assert "No bound was stated for a reservation." in one


def test_names_do_no_harm(one: str) -> None:
    assert EVIL not in one
    assert "&lt;/script&gt;&lt;b&gt;evil\\u001b[31m\\u202e" in one
    assert {char for char in one if not char.isprintable()} == {"\n"}


def test_it_is_one_file_and_the_same_each_time(one: str, ours: Path) -> None:
    (run,) = read_runs([ours])
    for figure in cost_figures(run):
        assert figure.drawing.wide in one
        assert figure.drawing.narrow in one
    for outside in ("http://", "https://", "src=", "@import", "url(//"):
        assert outside not in one.replace("http://www.w3.org/", ""), outside


def test_ids_are_unique_and_references_lead_somewhere(one: str) -> None:
    ids = re.findall(r'\sid="([^"]+)"', one)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="|url\()#([^")]+)', one)) <= set(ids)


def test_every_colour_is_a_variable(one: str) -> None:
    drawings = "".join(re.findall(r"<svg.*?</svg>", one, flags=re.DOTALL))
    assert set(re.findall(r"#[0-9a-fA-F]{6}\b", drawings)) <= {"#000000"}, "a colour that does not follow the page"


def test_several_replays(both: str) -> None:
    assert "<h1>Before &amp; after</h1>" in both
    assert "ours, compared with theirs: " in both
    assert "points" in both
    assert both.count('class="account"') == 2
    assert "no difference can be told" in both


def test_too_many_replays_and_other_traces(nothing: Path, theirs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allocator.pages.source.MOST_RUNS", 1)
    page = build_report([nothing, theirs])
    assert "differences compare more than policies" in page
    assert "Pictures are of the first 1 of 2" in page
    assert "No job was submitted." in page
    assert "Nothing was stopped." in page
    assert MOST_RUNS > 1


def test_a_study(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allocator.pages.source.MOST_RUNS", 1)
    page = build_report([study])
    assert "<h1>Buy a rack</h1>" in page
    assert "A rack more shortens waits." in page
    assert "The rack" in page
    assert "base: The base" in page
    assert "12.1 EUR" in page
    assert "+10.0 points" in page
    assert "better" in page
    assert "The pictures are of the first seed." in page
    gains = page[page.index('<section id="gains"') : page.index('<section id="run1"')]
    assert '<h3 id="gains1">The rack</h3>' in gains
    for cell in ("50.0 % -&gt; 60.0 %", "5.0 % to 15.0 %", '<th scope="row">vision</th>', '<td class="number">vision</td>'):
        assert cell in gains


def test_a_study_of_an_earlier_version_tells_nothing_of_projects() -> None:
    document = study_document(["base", "rack"])
    assert [each.pools for each in gains_of(document | {"pools": []})] == [None]
    assert not list(gains_of({key: item for key, item in document.items() if key != "projects"}))
    assert not list(gains_of(document | {"projects": [row for row in document["projects"] if row["metric"] != "delivered"]}))


def test_a_study_stands_alone_and_is_whole(study: Path, ours: Path, tmp_path: Path) -> None:
    with pytest.raises(ReplayError, match="give it alone"):
        build_report([study, ours])
    broken = tmp_path / "broken"
    broken.mkdir()
    document = json.loads((study / "whatif.json").read_text())
    del document["sentences"]
    (broken / "whatif.json").write_text(json.dumps(document))
    with pytest.raises(ReplayError, match="lacks sentences"):
        build_report([broken])
    (broken / "whatif.json").write_text(json.dumps(document | {"sentences": [], "cells": []}))
    with pytest.raises(ReplayError, match="lacks cells"):
        build_report([broken])
    (broken / "whatif.json").write_text('{"cells": 1}')
    with pytest.raises(ReplayError, match="is no what-if study"):
        build_report([broken])


def test_the_command_and_results_of_an_earlier_version(invoke: Invoke, tmp_path: Path) -> None:
    old, out = write_replay(tmp_path / "old", what=quiet()), tmp_path / "report.html"
    (old / "timing.json").unlink()
    for name in PLACES:
        (old / f"{name}.parquet").unlink()
    assert invoke("report", old, "--out", out, "--title", "All quiet").status == 0
    page = out.read_text(encoding="utf-8")
    assert "<title>All quiet</title>" in page
    assert "replay again to see the map" in page
    assert "the time of decisions was not kept" in page
    missing = invoke("report", tmp_path / "none", "--out", out)
    assert missing.status == 2
    assert "holds no results" in " ".join(missing.err.split())
    assert invoke("report", old, "--out", tmp_path / "none" / "report.html").status == 2


def test_without_the_extra_it_says_what_to_install(nothing: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    result = invoke("report", nothing, "--out", nothing / "report.html")
    assert result.status == 2
    assert "jinja2 is not installed: pip install 'gpu-epoch-allocator[report]'" in " ".join(result.err.split())


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("jobs.parquet", b"PAR1"),
        ("hours.parquet", None),
        ("summary.json", b"{}"),
        ("summary.json", b"{"),
        ("summary.json", b"[1]"),
    ],
)
def test_damaged_results_are_told(ours: Path, tmp_path: Path, file: str, content: bytes | None) -> None:
    """Whatever is wrong with them, the folder is named."""
    damaged = tmp_path / "damaged"
    shutil.copytree(ours, damaged)
    (damaged / file).unlink()
    if content is not None:
        (damaged / file).write_bytes(content)
    with pytest.raises(ReplayError, match="damaged holds no results of a replay"):
        build_report([damaged])
