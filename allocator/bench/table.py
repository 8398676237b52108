"""Runs, summaries and limits as tables for a terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.table import Table

from allocator.bench.limits import Finding
from allocator.bench.runs import STEPS, Run
from allocator.bench.summary import Summary

SUMMARY_HEAD = (
    "instance", "engine", "budget", "runs", "GPUs", "call, s", "worst", "CPU, s", "worst", "optimal", "gap", "worst"
)  # fmt: skip
"""Columns of a summary: seconds of the whole call, CPU seconds and the gap to the best bound, each as median and worst."""


def summary_row(summary: Summary) -> list[str]:
    """The cells of a summary."""
    gap = ("-", "-") if summary.gap is None else tuple(f"{value:.3%}" for value in summary.gap)
    notes = {"without bound": summary.unbounded, "refused": summary.refused}
    noted = "".join(f", {count} {what}" for what, count in notes.items() if count)
    overran = f" ({summary.overran} late)" if summary.overran else ""
    return [
        summary.instance or "all",
        summary.engine,
        f"{summary.budget:g}",
        str(summary.runs),
        f"{summary.gpus:,}",
        _seconds(summary.seconds[0]),
        _seconds(summary.seconds[1]) + overran,
        _seconds(summary.cpu_seconds[0]),
        _seconds(summary.cpu_seconds[1]),
        f"{summary.optimal} of {summary.runs}{noted}",
        *gap,
    ]


def step_means(runs: Sequence[Run]) -> dict[str, dict[str, float]]:
    """By engine, the mean seconds of each step over all runs."""
    found: dict[str, dict[str, float]] = {}
    for engine in dict.fromkeys(run.case.engine for run in runs):
        own = [run.steps for run in runs if run.case.engine == engine]
        found[engine] = {step: sum(steps.get(step, 0.0) for steps in own) / len(own) for step in STEPS}
    return found


STEPS_HEAD = ("engine", *STEPS)
"""Columns of the table of steps."""


def steps_rows(runs: Sequence[Run]) -> list[list[str]]:
    """Mean seconds by engine and step."""
    return [[engine, *(_seconds(means[step]) for step in STEPS)] for engine, means in step_means(runs).items()]


LIMIT_HEAD = ("limit", "ratio", "at most", "measured", "kept")
"""Columns of the table of limits."""


def limit_row(finding: Finding) -> list[str]:
    """The cells of a limit."""
    limit = finding.limit
    ratio = "-" if finding.ratio is None else f"{finding.ratio:.4g}"
    kept = finding.why or ("yes" if finding.ok else "NO")
    return [limit.name, ratio, f"{limit.most:.4g}", f"{limit.measured:.4g} (x {limit.tolerance:g})", kept]


def run_line(run: Run) -> str:
    """One run while the others are still to come."""
    gap = run.gap_to(run.bound)
    proof = "no bound" if gap is None else f"gap {gap:.3%}"
    broken = f", BREAKS {', '.join(run.violations)}" if run.violations else ""
    seconds = f"{run.seconds:.2f} s (CPU {run.cpu_seconds:.2f} s)"
    return f"{run.case.instance.label}, {run.case.engine}, {run.case.budget:g} s: {run.status}, {proof}, {seconds}{broken}"


def rich_table(title: str, head: Iterable[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table for a terminal; all columns but the first two are numbers."""
    table = Table(title=title, title_justify="left")
    for index, name in enumerate(head):
        table.add_column(name, justify="left" if index < 2 else "right", no_wrap=index == 0)
    for row in rows:
        table.add_row(*row)
    return table


def markdown_table(head: Iterable[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The same as lines of Markdown."""
    names = list(head)
    return [_line(names), _line(["---"] * len(names)), *(_line(row) for row in rows)]


def facts_line(machine: Mapping[str, str]) -> str:
    """The machine and the versions in one sentence."""
    solvers = ", ".join(f"{name} {machine[name]}" for name in ("ortools", "highs", "numpy"))
    return f"{machine['cpu']}, {machine['cpus']} CPUs; Python {machine['python']}, {solvers}; version {machine['version']}."


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _seconds(value: float) -> str:
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"
