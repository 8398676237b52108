"""The bars: every one names an instance that exists, and a row says what was kept and what was not."""

from __future__ import annotations

from pathlib import Path

import pytest

from allocator.bench import Catalogue
from allocator.bench.documents import read_toml
from benchmarks import bars
from benchmarks.bars import FILE, BarDoc, BarsDoc, call_seconds, row_of, seeds_of
from tests.bench.runs import run

INSTANCES = Path(__file__).resolve().parents[2] / "instances"


def bar(**fields: object) -> BarDoc:
    usual: dict[str, object] = {"name": "one", "about": "one thing", "instance": "one", "budget": 1.0, "seconds": 0.9}
    return BarDoc(**(usual | fields))  # type: ignore[arg-type]


def test_every_bar_names_an_instance() -> None:
    doc, catalogue = read_toml(FILE, BarsDoc), Catalogue.open(INSTANCES)
    for name in [*(one.instance for one in doc.bar), doc.naive.instance]:
        assert catalogue.generated(name).name == name
    assert len({one.name for one in doc.bar}) == len(doc.bar)


def test_reading_and_writing_are_not_part_of_the_call() -> None:
    assert call_seconds(run(seconds=2.0, steps={"decode": 0.5, "encode": 0.25, "verify": 1.0})) == 1.25


def test_a_row_says_what_is_missing() -> None:
    quick, slow = run(seconds=0.5, bound=2_880_000), run(seed=2, seconds=1.2, bound=2_880_000 - 288_000)
    assert row_of(bar(), [quick], 10)[-1] == "yes"
    assert row_of(bar(seconds=0.9, worst=1.0), [quick, quick, slow], 10)[-1] == "no: slow"
    assert row_of(bar(gap=0.001, seconds=2.0), [quick, slow], 10)[-1] == "no: gap"
    assert row_of(bar(gap=0.01, seconds=2.0), [quick, slow], 10)[-1] == "yes"
    assert row_of(bar(gap=0.5), [quick, run(seconds=0.5)], 10)[-1] == "no: gap"
    assert row_of(bar(mebibytes=5), [quick], 10)[-1] == "no: memory"
    assert row_of(bar(), [run(seconds=0.5, violations=("capacity",))], 10)[-1] == "no: rules"


def test_seeds_are_read() -> None:
    assert seeds_of("1-3,7") == [1, 2, 3, 7]
    with pytest.raises(Exception, match="give for instance"):
        seeds_of("a")


def test_the_table_goes_into_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- bench bars -->\nold\n<!-- end -->\nafter\n", encoding="utf-8")
    small = "[[bar]]\nname='tiny'\nabout='a tiny one'\ninstance='mixed-256'\nbudget=30.0\nseconds=30.0\ngap=1.0\nask=0.5\n"
    file = tmp_path / "bars.toml"
    file.write_text(f"version=1\n{small}[naive]\nabout='naive'\ninstance='mixed-256'\ngap=0.9\nbudget=20.0\ntimes=0.001\n")
    monkeypatch.setattr(bars, "FILE", file)
    assert bars.main(["--only", "tiny", "naive", "--seeds", "1", "--report", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert "old" not in text
    assert "a tiny one" in text
    assert "times our CPU time" in text
    assert text.startswith("before")
    assert text.endswith("after\n")
    assert "a tiny one" in capsys.readouterr().out


def test_a_page_that_cannot_take_the_table_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bars, "read_toml", lambda *_: pytest.fail("measured"))
    for page in (tmp_path / "nought.md", tmp_path):
        with pytest.raises(SystemExit) as ended:
            bars.main(["--report", str(page)])
        assert ended.value.code == 2
        assert "give a Markdown page with" in capsys.readouterr().err
