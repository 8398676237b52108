"""`allocator bench`: engines on instances, side by side."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from allocator.cli.documents import check_writable, write_lines, write_result
from allocator.cli.status import DONE, NO, tell

if TYPE_CHECKING:
    from rich.console import Console

    from allocator.bench import Catalogue, Run
    from allocator.bench.limits import Finding

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_MOST_ROWS = 80
"""A table with more runs is left to the CSV; the summary is always shown."""


def _numbers(text: str) -> list[float]:
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        values = []
    if not values or not all(0 < value < float("inf") for value in values):
        raise typer.BadParameter(f"{text!r}: give seconds above 0, for instance 10 or 0.5,1,2,5", param_hint="--budget")
    return values


def _seeds(text: str) -> list[int]:
    """Seeds from text like `1-5` or `1,3,7-9`."""
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:\s*-\s*(\d+))?\s*", part)
        if match is None or (match[2] is not None and int(match[2]) < int(match[1])):
            raise typer.BadParameter(f"{text!r}: give for instance 1-5 or 1,3,7", param_hint="--seeds")
        seeds += range(int(match[1]), int(match[2] or match[1]) + 1)
    return seeds


@app.command()
def bench(  # noqa: PLR0917  (typer reads options from the signature)
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME ...]", help="Suites, instances, families, files; absent: smoke.")
    ] = None,
    engine: Annotated[list[str] | None, typer.Option(help="Engine; may be given several times.")] = None,
    budget: Annotated[str | None, typer.Option(metavar="S[,S...]", help="Seconds for each call.")] = None,
    seeds: Annotated[str | None, typer.Option(metavar="SEEDS", help="Seeds of generated instances: 1-5 or 1,3,7.")] = None,
    csv: Annotated[str | None, typer.Option(metavar="FILE", help="Write all runs as CSV; - is standard output.")] = None,
    plot: Annotated[Path | None, typer.Option(metavar="DIR", help="Write plots; needs the extra `plots`.")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Run and check the limits too; exit status 1 if one is broken.")
    ] = False,
    limits: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Limits; absent: benchmarks/limits.toml beside the instances.")
    ] = None,
    instances: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder with families.toml; absent: instances here or in the checkout.")
    ] = None,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the numbers into a Markdown page.")] = None,
    record: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the bounds that were proven into a CSV.")] = None,
    refine: Annotated[bool, typer.Option(help="Time the building of exact models apart, by building them once more.")] = True,
    show: Annotated[bool, typer.Option("--list", help="List what there is, and stop.")] = False,
) -> None:
    """Run engines on instances and compare them.

    Every answer is checked by the verifier. Tables and progress go to standard error. Exit status 1 if an answer breaks a rule,
    if two engines contradict each other or, with --check, if a limit is not kept.
    """
    from allocator.bench import Catalogue, run_cases
    from allocator.bench.documents import LimitsDoc, read_toml
    from allocator.bench.limits import broken, cases_of
    from allocator.bench.limits import check as judge
    from allocator.bench.report import read_page
    from allocator.bench.runs import contradictions
    from allocator.bench.table import run_line
    from allocator.engine import ENGINES

    for path in (None if csv in (None, "-") else Path(csv or ""), report, record):
        check_writable(path)
    catalogue, name = Catalogue.open(instances), (names or ["smoke"])[0]
    if show:
        write_lines(_listing(catalogue))
        return
    if report is not None:
        read_page(report, name)
    console = _console()
    chosen = catalogue.cases(
        names or (),
        engines=engine or (),
        budgets=_numbers(budget) if budget else (),
        seeds=_seeds(seeds) if seeds else (),
    )
    bars = None
    if check:
        bars = read_toml(limits or catalogue.folder.parent / "benchmarks" / "limits.toml", LimitsDoc)
    every = [*chosen, *(cases_of(bars, catalogue) if bars else ())]
    runs = run_cases(every, refine=refine, report=lambda run: console.print(run_line(run)))
    findings = judge(bars, runs) if bars else []
    own = [run for run in runs if run.case in chosen]
    _show(console, own, findings)
    _write(own, csv, plot, report, record, name)
    wrong = [run_line(run) for run in runs if run.violations and run.case.engine in ENGINES] + contradictions(runs)
    for line in wrong:
        tell("wrong", line)
    raise typer.Exit(NO if broken(findings) or wrong else DONE)


def _console() -> Console:
    """Standard error; tables that go into a file are as wide as they need."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    return console if console.is_terminal else Console(stderr=True, highlight=False, width=160)


def _show(console: Console, runs: Sequence[Run], findings: Sequence[Finding]) -> None:
    """Summaries, steps and limits."""
    from allocator.bench.summary import summarise
    from allocator.bench.table import LIMIT_HEAD, STEPS_HEAD, SUMMARY_HEAD, limit_row, rich_table, steps_rows, summary_row

    summaries = summarise(runs)
    if len(summaries) > _MOST_ROWS:
        summaries = [summary for summary in summaries if not summary.instance]
    console.print(rich_table("Runs", SUMMARY_HEAD, map(summary_row, summaries)))
    console.print(rich_table("Mean seconds by step", STEPS_HEAD, steps_rows(runs)))
    if findings:
        console.print(rich_table("Limits", LIMIT_HEAD, map(limit_row, findings)))


def _write(
    runs: Sequence[Run], csv: str | None, plot: Path | None, report: Path | None, record: Path | None, name: str
) -> None:
    """The table, plots, pages and records, where they are wanted."""
    from allocator.bench import as_csv
    from allocator.bench.machine import machine_facts

    machine = machine_facts()
    if csv is not None:
        write_result(as_csv(runs, machine).encode(), None if csv == "-" else Path(csv))
    if plot is not None:
        from allocator.bench.plots import write_plots

        write_plots(runs, plot)
    if report is not None:
        from allocator.bench.report import markdown_report, write_report

        write_report(report, name, markdown_report(runs, machine))
    if record is not None:
        from allocator.bench.record import write_record

        write_record(record, runs, machine)


def _listing(catalogue: Catalogue) -> list[str]:
    """Every suite, generated instance and folder."""
    lines = [f"suite     {name:28} {suite.about}" for name, suite in catalogue.doc.suite.items()]
    lines += [f"generated {doc.name:28} {doc.special}" for doc in catalogue.doc.instance]
    return [*lines, *(f"file      {path.relative_to(catalogue.folder)}" for path in catalogue.folders())]
