"""`allocator bench` and `python -m benchmarks`: exit statuses, streams and files."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

import benchmarks.__main__ as own
from allocator.bench.engines import engine_names
from tests.cli.conftest import Invoke, invoke

__all__ = ["invoke"]

ROOT = Path(__file__).resolve().parents[2]
QUICK = ("bench", "tiny/give-way", "--engine", "greedy")

LIMIT = """
version = 1
[[limit]]
name = "impossible"
about = "nothing is ten times as fast as itself"
over = { instance = "mixed-64", engine = "greedy", quantity = "objective" }
under = { instance = "mixed-64", engine = "greedy", quantity = "objective" }
seeds = [1]
budget = 5.0
measured = %s
tolerance = 1.0
"""

FAMILIES = """
version = 1
suite = {}
[[instance]]
name = "mixed-64"
family = "mixed"
gpus = 64
special = "small"
"""


def test_the_table_goes_to_standard_error_and_the_csv_where_it_is_wanted(invoke: Invoke, tmp_path: Path) -> None:
    quiet = invoke(*QUICK)
    assert (quiet.status, quiet.out) == (0, b"")
    assert "tiny/give-way" in quiet.err
    printed = invoke(*QUICK, "--csv", "-")
    (row,) = csv.DictReader(io.StringIO(printed.text))
    assert (row["instance"], row["engine"], row["objective"]) == ("tiny/give-way", "greedy", "367.2")
    written = invoke(*QUICK, "--csv", tmp_path / "runs.csv")
    assert written.out == b""
    assert (tmp_path / "runs.csv").read_text().startswith("instance,family,seed,")


def test_the_list(invoke: Invoke) -> None:
    lines = invoke("bench", "--list").text.splitlines()
    assert any(line.startswith("suite     foundation ") for line in lines)
    assert any(line.startswith("generated mixed-1024 ") for line in lines)
    assert "file      rules/capacity" in lines


@pytest.mark.parametrize(
    "wrong",
    [
        ("nought",),
        ("tiny/give-way", "--engine", "nought"),
        ("tiny/give-way", "--budget", "0"),
        ("tiny/give-way", "--budget", "soon"),
        ("mixed-256", "--seeds", "5-1"),
        ("tiny/give-way", "--instances", "nowhere"),
        ("tiny/give-way", "--csv", "nowhere/runs.csv"),
        ("tiny/give-way", "--check", "--limits", "nowhere.toml"),
    ],
)
def test_bad_usage_is_told_before_anything_runs(invoke: Invoke, wrong: tuple[str, ...]) -> None:
    result = invoke("bench", *wrong)
    assert (result.status, result.out) == (2, b"")
    assert "seed" not in result.err.replace("--seeds", "")
    assert "Traceback" not in result.err


@pytest.mark.parametrize(("measured", "status"), [("1.0", 0), ("0.1", 1)])
def test_a_limit_that_is_not_kept_is_a_no(invoke: Invoke, tmp_path: Path, measured: str, status: int) -> None:
    (tmp_path / "families.toml").write_text(FAMILIES)
    (tmp_path / "limits.toml").write_text(LIMIT % measured)
    known = ("--instances", tmp_path, "--limits", tmp_path / "limits.toml")
    result = invoke("bench", "mixed-64", "--engine", "greedy", "--seeds", "2", "--budget", "5", "--check", *known)
    assert result.status == status
    assert "impossible" in result.err
    assert "mixed-64 seed 1, greedy" in result.err


def test_pages_records_and_plots(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "families.toml").write_text(FAMILIES)
    page, bounds = tmp_path / "page.md", tmp_path / "bounds.csv"
    page.write_text("<!-- bench mixed-64 -->\n<!-- end -->\n")
    options = ("--instances", tmp_path, "--report", page, "--record", bounds)
    assert invoke("bench", "mixed-64", "--engine", "portfolio", *options).status == 0
    assert "| mixed-64 | portfolio |" in page.read_text()
    assert bounds.read_text().splitlines()[1].startswith("mixed-64,1,64,sha256:")
    pytest.importorskip("matplotlib")
    assert invoke(*QUICK, "--plot", tmp_path / "plots").status == 0
    assert (tmp_path / "plots" / "time-by-size.svg").exists()


def test_a_page_without_marks_is_refused_before_anything_is_measured(invoke: Invoke, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("no marks\n")
    result = invoke(*QUICK, "--report", page)
    assert result.status == 2
    assert "has no marks for" in result.err
    assert "greedy" not in result.err  # no line of a run


def test_the_checkout_knows_the_naive_engine(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    with pytest.raises(SystemExit) as ended:
        own.run(["tiny/give-way", "--engine", "naive", "--csv", "-"])
    assert ended.value.code == 0
    (row,) = csv.DictReader(io.StringIO(capsysbinary.readouterr().out.decode()))
    assert (row["engine"], row["status"], row["objective"]) == ("naive", "optimal", "367.2")
    assert "naive" in engine_names()


def test_smoke_stands_for_the_suite_with_its_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[list[str]] = []
    monkeypatch.setattr(own, "main", given.append)
    own.run(["--smoke", "--csv", "x.csv"])
    assert given == [["bench", "smoke", "--check", "--csv", "x.csv"]]
