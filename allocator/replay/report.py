"""Summaries of replays as plain text: one replay, or several side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allocator.replay.bootstrap import difference, value
from allocator.replay.errors import ReplayError
from allocator.replay.evidence import Evidence, evidence_of
from allocator.replay.metrics import METRICS, Metric
from allocator.replay.summary import read_summary
from allocator.replay.tables import read_frames

if TYPE_CHECKING:
    import pandas as pd

BY_NAME = {metric.name: metric for metric in METRICS}


@dataclass(frozen=True, slots=True)
class Played:
    """A replay as it was written to a folder."""

    label: str
    summary: Mapping[str, Any]
    evidence: Evidence


def read_played(folder: Path) -> Played:
    """Read the results of a replay. Raises as `read_results`."""
    summary, _, evidence = read_results(folder)
    return Played(folder.name or str(folder), summary, evidence)


def read_results(folder: Path) -> tuple[Mapping[str, Any], Mapping[str, pd.DataFrame], Evidence]:
    """The summary and the tables of a replay, and what its metrics are computed from.

    Raises
    ------
    ReplayError
        If the folder holds none.
    """
    try:
        summary, frames = read_summary(folder), read_frames(folder)
        evidence = evidence_of(frames, summary["start"], summary["end"])
    except (AttributeError, KeyError, OSError, TypeError, ValueError) as error:  # absent, damaged, or of other columns
        raise ReplayError(f"{folder} holds no results of a replay ({error}): give a folder that --out has written") from error
    return summary, frames, evidence


def compare(runs: Sequence[Played]) -> dict[str, Any]:
    """Every metric of every replay, and the differences of all others to the first, with intervals.

    The first and the others lose and gain the same days in each draw, so that what both share does not blur the difference.
    """
    labels = labels_of([run.label for run in runs])
    first = runs[0]
    rows = []
    for metric in METRICS:
        row: dict[str, Any] = {"metric": metric.name, "unit": metric.unit, "better": metric.better}
        row["values"] = {label: value(metric, run.evidence) for label, run in zip(labels, runs, strict=True)}
        row["differences"] = {
            label: dict(zip(("value", "low", "high"), difference(metric, first.evidence, run.evidence), strict=True))
            for label, run in zip(labels[1:], runs[1:], strict=True)
        }
        rows.append(row)
    return {
        "runs": [
            {"label": label, **{key: run.summary[key] for key in ("trace", "policy", "start", "end", "gpus", "decisions")}}
            for label, run in zip(labels, runs, strict=True)
        ],
        "comparable": len({(run.summary["trace"], run.summary["start"], run.summary["end"]) for run in runs}) == 1,
        "metrics": rows,
        "definitions": {metric.name: metric.definition for metric in METRICS},
    }


def summary_lines(summary: Mapping[str, Any]) -> list[str]:
    """A summary for people: values, intervals, definitions."""
    hours = (summary["end"] - summary["start"]) / 3600
    jobs = ", ".join(f"{count} {outcome}" for outcome, count in summary["jobs"].items())
    lines = [
        f"{summary['policy']} on {summary['trace']}: {hours / 24:.1f} days, {sum(summary['gpus'].values())} GPUs, "
        f"{summary['decisions']} decisions; jobs: {jobs}",
        "",
    ]
    cells = [("metric", "value", "95 % of draws", "definition")]
    for name, row in summary["metrics"].items():
        metric = BY_NAME[name]
        between = "" if row["low"] is None else f"{show(row['low'], metric)} to {show(row['high'], metric)}"
        cells.append((name, show(row["value"], metric), between, metric.definition))
    return [*lines, *columns(cells), "", *columns(_wait_cells(summary["waits"]))]


def compare_lines(found: Mapping[str, Any]) -> list[str]:
    """The table of a comparison: a column of values for each replay, and below each value its difference to the first."""
    labels = [run["label"] for run in found["runs"]]
    lines = [f"{run['label']}: {run['policy']} on {run['trace']}, {run['decisions']} decisions" for run in found["runs"]]
    if not found["comparable"]:
        lines.append("These replays are of different traces or spans: the differences compare more than policies.")
    cells = [("metric", *labels)]
    for row in found["metrics"]:
        metric = BY_NAME[row["metric"]]
        cells.append((metric.name, *(show(row["values"][label], metric) for label in labels)))
        apart = [_difference(row["differences"][label], metric) for label in labels[1:]]
        if any(apart):
            cells.append(("", "", *apart))
    notes = [f"{name}: {text}" for name, text in found["definitions"].items()]
    return [
        *lines,
        "",
        *columns(cells),
        "",
        "Below a value: its difference to the first, and 95 % of draws of days.",
        "",
        *notes,
    ]


def _wait_cells(waits: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> list[tuple[str, ...]]:
    """Waits by class and by gang size."""
    cells: list[tuple[str, ...]] = [("wait of", "jobs", "median", "p90", "p99", "queued p90")]
    for what, rows in (("class", waits["by_class"]), ("GPUs", waits["by_gpus"])):
        for name, row in rows.items():
            spans = ("-" if row[key] is None else show_span(row[key]) for key in ("p50", "p90", "p99", "queued_p90"))
            cells.append((f"{what} {name or '(none)'}", f"{row['jobs']:,.0f}", *spans))
    return cells


def show(number: float | None, metric: Metric) -> str:
    """A value with its unit: spans as people read them, shares in percent, counts as they are."""
    if number is None:
        return "-"
    if metric.unit == "s":
        return show_span(number)
    if metric.name in _COUNTS:
        return f"{number:,.0f}"
    return f"{number:.2f}" if metric.name in _PLAIN else f"{100 * number:.1f} %"


_PLAIN = frozenset({"load", "excess_domains"})
_COUNTS = frozenset(
    {"stops", "stops_max", "stopped_over_8", "stopped_over_20", "promises_broken", "drains_by_hand", "bound_missed"}
)


def show_span(seconds: float) -> str:
    """A span in the largest unit of which it holds two."""
    sign, size = ("-" if seconds < 0 else ""), abs(seconds)
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if size >= 2 * length:
            return f"{sign}{size / length:.1f} {unit}"
    return f"{sign}{size:.0f} s"


def _difference(apart: Mapping[str, float | None], metric: Metric) -> str:
    if not apart["value"]:
        return ""
    sign = "+" if apart["value"] > 0 else ""
    between = "" if apart["low"] is None else f" ({show(apart['low'], metric)} to {show(apart['high'], metric)})"
    return f"{sign}{show(apart['value'], metric)}{between}"


def labels_of(names: Sequence[str]) -> list[str]:
    """Names of columns: of the folders, numbered where two are the same."""
    return [name if names.count(name) == 1 else f"{name}#{index + 1}" for index, name in enumerate(names)]


def columns(cells: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows of cells as lines, each column as wide as its widest cell."""
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
