"""What becomes of runs: the table, summaries, limits, pages, records and plots."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from allocator.bench.documents import LimitDoc, LimitsDoc, SideDoc
from allocator.bench.limits import Finding, broken, check
from allocator.bench.machine import machine_facts
from allocator.bench.record import read_record, write_record
from allocator.bench.report import markdown_report, write_report
from allocator.bench.runs import FIELDS, STEPS, as_csv, best_bounds, contradictions
from allocator.bench.summary import summarise
from allocator.bench.table import limit_row, run_line, steps_rows, summary_row
from allocator.domain import SnapshotError
from tests.bench.runs import instance, run

MACHINE = machine_facts()
TWO = [run(), run(engine="cp-sat", objective=2_592_000, bound=2_592_000, status="optimal", seconds=3.0)]


def test_a_row_for_every_run_and_a_column_for_every_variable() -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv(TWO, MACHINE))))
    assert list(rows[0]) == list(FIELDS)
    greedy, exact = rows
    assert (greedy["engine"], greedy["bound"], greedy["gap"], greedy["gap_to_best_bound"]) == ("greedy", "", "", "0.01")
    assert (exact["objective"], exact["gap"], exact["status"]) == ("2592.0", "0.0", "optimal")
    assert (exact["compile_seconds"], exact["solve_seconds"]) == ("0.25", "")
    assert greedy["ortools"] == MACHINE["ortools"]


def test_the_best_bound_is_that_of_any_engine_or_known_beforehand() -> None:
    assert best_bounds(TWO) == {("one", 1): 2_592_000}
    known = run("file", None)
    case = replace(known.case, instance=instance("file", None, lower_bound=5))
    assert best_bounds([replace(known, case=case)]) == {("file", -1): 5}
    assert best_bounds([replace(known, case=case)], with_known=False) == {}
    other = replace(known.case, instance=instance("file", None, lower_bound=5, digest="sha256:1"))
    assert best_bounds([replace(known, case=other)]) == {}
    assert best_bounds([run()]) == {}


def test_engines_that_contradict_each_other() -> None:
    assert contradictions(TWO) == []
    low = run(engine="milp", objective=2_591_999)
    assert contradictions([*TWO, low]) == ["one seed 1: milp reached 2591.999, a bound says 2592.0"]
    assert contradictions([*TWO, replace(low, violations=("capacity",))]) == []


def test_median_and_worst_by_instance_and_over_all() -> None:
    runs = [run(seed=1, seconds=1), run(seed=2, seconds=2), run(seed=3, seconds=12), run("two", seconds=5)]
    one, two, every = summarise(runs)
    assert (one.instance, one.runs, one.seconds, one.overran) == ("one", 3, (2, 12), 1)
    assert (two.instance, every.instance, every.runs, every.seconds) == ("two", "", 4, (3.5, 12))
    assert one.gap is None
    assert [summary.optimal for summary in summarise(TWO)] == [0, 1]
    assert summarise(TWO)[0].gap == (0.01, 0.01)


def test_rows_for_people() -> None:
    cells = summary_row(summarise([*TWO, run(seed=2, violations=("gang",), seconds=11)])[0])
    assert cells[:5] == ["one", "greedy", "10", "2", "8"]
    assert cells[5:9] == ["6.000", "11.0 (1 late)", "0.500", "0.500"]
    assert cells[9:] == ["0 of 2, 1 without bound, 1 refused", "1.000%", "1.000%"]
    assert steps_rows(TWO)[0][0] == "greedy"
    assert len(steps_rows(TWO)[0]) == 1 + len(STEPS)
    assert run_line(TWO[1]) == "one seed 1, cp-sat, 10 s: optimal, gap 0.000%, 3.00 s (CPU 0.50 s)"
    assert "BREAKS gang" in run_line(run(violations=("gang",)))


def limit(
    over: str = "cp-sat", under: str = "greedy", quantity: str = "seconds", measured: float = 2.0, **fields: Any
) -> LimitDoc:
    sides = [SideDoc(instance="one", engine=engine, quantity=quantity, **fields) for engine in (over, under)]
    return LimitDoc(
        name="l", about="a", over=sides[0], under=sides[1], seeds=(1,), budget=10.0, measured=measured, tolerance=1.4
    )


def judged(one: LimitDoc, runs: Any = TWO) -> Finding:
    (finding,) = check(LimitsDoc(version=1, limit=[one]), runs)
    return finding


@pytest.mark.parametrize(
    ("one", "ratio", "ok"),
    [
        (limit(), 3.0, False),
        (limit(measured=2.2), 3.0, True),
        (limit("greedy", "cp-sat"), 1 / 3, True),
        (limit(quantity="objective"), 0.9, True),
        (limit(quantity="compile_seconds", per_gpu=True), 1.0, True),
        (limit("greedy", "cp-sat", "shortfall", 0.5), 1.01, False),
        (limit(quantity="solve_seconds"), None, True),
        (limit("nought"), None, True),
    ],
)
def test_limits_are_ratios(one: LimitDoc, ratio: float | None, ok: bool) -> None:
    finding = judged(one)
    assert finding.ratio == (None if ratio is None else pytest.approx(ratio))
    assert finding.ok == ok
    assert broken([finding]) == ([] if ok else [finding])
    assert limit_row(finding)[-1] == (finding.why or ("yes" if ok else "NO"))


def test_a_limit_needs_a_run_of_every_seed() -> None:
    two = limit(measured=3.0)
    two.seeds = (1, 2)
    assert judged(two).ratio is None
    more = [run(seed=2, seconds=2.0), run(seed=2, engine="cp-sat", seconds=5.0)]
    assert judged(two, [*TWO, *more]).ratio == pytest.approx(4.0 / 1.5)


def test_an_unknown_quantity_is_refused() -> None:
    with pytest.raises(SnapshotError, match="unknown: luck"):
        judged(limit(quantity="luck"))


def test_numbers_are_written_between_their_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- bench other -->\nother\n<!-- end -->\n<!-- bench smoke -->\nold\n<!-- end -->\nafter\n")
    for _ in range(2):
        write_report(page, "smoke", markdown_report(TWO, MACHINE))
    text = page.read_text()
    assert text.startswith("before\n<!-- bench other -->\nother\n<!-- end -->\n<!-- bench smoke -->\n\n| instance | engine |")
    assert text.endswith("\n\n<!-- end -->\nafter\n")
    assert "| one | cp-sat | 10 | 1 | 8 | 3.000 | 3.000 |" in text
    assert text.count("Measured on ") == 1
    with pytest.raises(SnapshotError, match="no marks for nought"):
        write_report(page, "nought", "")
    with pytest.raises(SnapshotError, match="cannot be read"):
        write_report(tmp_path / "nought.md", "smoke", "")


def test_known_bounds_are_kept_by_instance_and_seed(tmp_path: Path) -> None:
    path = tmp_path / "bounds.csv"
    write_record(path, [*TWO, run("file", None, bound=1), run("unbounded"), run("bad", bound=1, violations=("gang",))], MACHINE)
    write_record(path, [run("another", 2, bound=1_000, objective=2_000, budget=5.0)], MACHINE)
    another, one = read_record(path)
    assert (another.instance, another.seed, another.lower_bound, another.upper_bound) == ("another", 2, 1_000, 2_000)
    assert (one.instance, one.lower_bound, one.upper_bound, one.digest) == ("one", 2_592_000, 2_592_000, "sha256:0")
    assert path.read_text().splitlines()[2].split(",")[6] == "cp-sat"
    write_record(path, [run(bound=1, objective=2_592_001)], MACHINE)
    assert read_record(path)[1] == one, "says less"
    write_record(path, [run(bound=1, objective=2_592_001, digest="sha256:1")], MACHINE)
    assert read_record(path)[1].lower_bound == 1, "of another snapshot"
    write_record(path, [run(bound=5, objective=2_592_000, digest="sha256:1")], MACHINE)
    assert read_record(path)[1].lower_bound == 5, "says more"
    path.write_text("instance,seed\none,1\n")
    with pytest.raises(SnapshotError, match=r"bounds\.csv"):
        read_record(path)


def test_plots_need_matplotlib_and_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from allocator.bench.plots import write_plots

    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(SnapshotError, match=r"pip install 'gpu-epoch-allocator\[plots\]'"):
        write_plots(TWO, tmp_path)


def test_plots(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from allocator.bench.plots import write_plots

    larger = replace(run("two", seconds=4.0), facts=replace(run().facts, gpus=64))
    names = [path.name for path in write_plots([*TWO, larger], tmp_path)]
    assert names == ["time-by-size.svg", "gap-by-size.svg"]
    early = [run(budget=1.0, objective=3_000_000), run(engine="cp-sat", budget=1.0, objective=2_880_000)]
    names = [path.name for path in write_plots([*TWO, *early], tmp_path / "deeper" / "still")]
    assert names == ["time-by-size.svg", "gap-by-size.svg", "anytime.svg"]
    assert (tmp_path / "time-by-size.svg").read_text().startswith("<?xml")
