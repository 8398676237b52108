"""`allocator plan`: what it prints, writes and returns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from allocator.cli.main import main
from allocator.planning.utilisation import Utilisation

QUESTION = """
title = "Lab"
first = "2027Q1"
quarters = 2
discount = 0.1

[replay]
gpus = 64
hours = 6
draws = 1
tick = 900
policy = "fifo_backfill"

[[units]]
name = "rack"
pool = "h100"
gpus = 32
nodes = 4
uses = { power_kw = 40 }
[[prices]]
unit = "rack"
price = 1000
[[limits]]
resource = "power_kw"
limit = 100
[[shares]]
project = "robots"
share = 1
[[demand]]
project = "robots"
pool = "h100"
gpus = 40
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "plan.toml"
    path.write_text(QUESTION)
    return path


def run(*args: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["plan", *map(str, args)])
    return int(ended.value.code or 0)


def test_the_plan_is_printed_written_and_played(file: Path, tmp_path: Path, capfdbinary: Any) -> None:
    assert run(file, "--out", tmp_path / "found", "--json") == 0
    printed = capfdbinary.readouterr().out
    assert printed == (tmp_path / "found" / "plan.json").read_bytes()
    view = json.loads(printed)
    assert (view["status"], view["cost"], view["bound"], view["gap"]) == ("optimal", 2000, 2000, 0)
    order = {"quarter": "2027Q1", "unit": "rack", "pool": "h100", "units": 2, "gpus": 64, "in_service": "2027Q1", "price": 2000}
    assert view["orders"] == [order]
    assert view["fleet"][1] == {"quarter": "2027Q2", "gpus": {"h100": 64}, "needed": {"h100": 64}, "used": {"power_kw": 80}}
    assert [(row["project"], row["promised"]) for row in view["replay"]["rows"]] == [("robots", 1)]


def test_failures_are_played_and_said(file: Path, capfdbinary: Any) -> None:
    file.write_text(QUESTION.replace("draws = 1", "draws = 1\nfailures = 0.9"))
    assert run(file) == 0
    text = " ".join(capfdbinary.readouterr().out.decode().split())
    assert "1 draw of jobs, 0.9 node failures per GPU and day; largest difference" in text
    row = next(line for line in text.split("Replayed ")[1].split("robots")[1:] if "%" in line)
    assert float(row.split()[6]) < 95  # of 100.0 % that were promised


def test_as_text_in_a_hundred_columns(file: Path, capfdbinary: Any) -> None:
    assert run(file) == 0
    text = capfdbinary.readouterr().out.decode()
    for part in ("answer     optimal", "cost       2,000 EUR, discounted", "Orders", "64 (64)", "Replayed", "1 draw of jobs"):
        assert part in text
    assert max(map(len, text.splitlines())) <= 100
    assert run(file, "--no-replay") == 0
    assert "Replayed" not in capfdbinary.readouterr().out.decode()


def test_no_plan_is_the_answer_no(file: Path, capfdbinary: Any) -> None:
    file.write_text(QUESTION.replace("gpus = 40", "gpus = 90"))
    assert run(file) == 1
    text = capfdbinary.readouterr().out.decode()
    assert "infeasible" in text
    assert "32 of 96" in text
    assert "limit of power_kw" in text
    assert "Orders" not in text


def test_an_instant_is_not_enough(file: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: Any) -> None:
    monkeypatch.setattr("allocator.planning.solver.has_solution", lambda rows: False)
    assert run(file, "--json") == 1
    view = json.loads(capfdbinary.readouterr().out)
    assert (view["status"], view["cost"], view["note"]) == ("unknown", None, "no plan was found in 60 s")


def test_a_plan_that_breaks_a_rule_is_none(file: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: Any) -> None:
    monkeypatch.setattr("allocator.planning.solver.broken_rules", lambda *_: iter(["limit: power_kw in 2027Q1"]))
    assert run(file) == 3
    printed = capfdbinary.readouterr()
    assert "invalid: the plan of HiGHS breaks limit" in printed.out.decode()
    assert b"breaks limit: power_kw in 2027Q1" in printed.err


def test_a_measured_curve_is_printed_for_the_file(file: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: Any) -> None:
    curve = Utilisation(loads=(0.7, 1.0), delivered=(1.0, 0.9))
    monkeypatch.setattr("allocator.planning.measure_utilisation", lambda *_: curve)
    assert run(file, "--measure") == 0
    assert capfdbinary.readouterr().out == b"[utilisation]\nloads = [0.7, 1.0]\ndelivered = [1.0, 0.9]\n"


def test_what_cannot_be_used_is_refused(file: Path, capfdbinary: Any) -> None:
    assert run(file, "--out", file) == 2
    file.write_text(QUESTION.replace('pool = "h100"\ngpus = 40', 'pool = "h200"\ngpus = 40'))
    assert run(file) == 2
    assert b'unknown pool "h200"; did you mean "h100"?' in capfdbinary.readouterr().err
