"""Who gains and who loses, project by project."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from allocator.replay.report import columns, span

Document = Mapping[str, Any]


def gains_lines(projects: Sequence[Document], variant: str, base: str) -> list[str]:
    """A table with a row for each project, those that gain the most useful time first.

    A project gains or loses where the interval of the difference leaves 0 out; else nothing is claimed.

    Parameters
    ----------
    projects
        As in `whatif.json`.
    """
    rows = {(row["allocation"], row["metric"], row["variant"]): row for row in projects}
    names = sorted({row["allocation"] for row in projects}, key=lambda name: _order(rows[name, "useful_per_day", variant]))
    cells = [("project", "useful GPU-h a day", "difference", "median wait", "difference", "")]
    for name in names:
        useful, wait = (rows[name, metric, variant] for metric in ("useful_per_day", "wait_p50"))
        before, waited = (rows[name, metric, base] for metric in ("useful_per_day", "wait_p50"))
        pair = f"{_hours(before['value'])} -> {_hours(useful['value'])}"
        waits = f"{_span(waited['value'])} -> {_span(wait['value'])}"
        cells.append((name, pair, _between(useful, _hours), waits, _between(wait, _span), _verdict(useful)))
    return columns(cells)


def _order(row: Document) -> tuple[float, str]:
    return -(row["difference"] or 0.0), row["allocation"]


def _verdict(useful: Document) -> str:
    low, high = useful["difference_low"], useful["difference_high"]
    if low is None or high is None:
        return ""
    return "gains" if low > 0 else "loses" if high < 0 else ""


def _between(row: Document, shown: Any) -> str:
    if row["difference_low"] is None:
        return ""
    return f"{shown(row['difference_low'])} to {shown(row['difference_high'])}"


def _hours(number: float | None) -> str:
    return "-" if number is None else f"{number:,.1f}"


def _span(number: float | None) -> str:
    return "-" if number is None else span(number)
