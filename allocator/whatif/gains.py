"""Who gains and who loses, project by project."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from allocator.replay.report import columns, show_span

Document = Mapping[str, Any]


def gains_lines(projects: Sequence[Document], variant: str, base: str) -> list[str]:
    """A table with a row for each project, those that gain the most useful time first.

    A project gains where the interval of its useful time lies above 0, or that of its median wait below; it loses the other
    way round. Where no interval leaves 0 out, or the two contradict each other, nothing is claimed.

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
        cells.append((name, pair, _between(useful, _hours), waits, _between(wait, _span), _verdict(useful, wait)))
    return columns(cells)


def _order(row: Document) -> tuple[float, str]:
    return -(row["difference"] or 0.0), row["allocation"]


def _verdict(useful: Document, wait: Document) -> str:
    """What the two differences say, unless they contradict each other."""
    signs = {_sign(useful), -_sign(wait)} - {0}
    return {1: "gains", -1: "loses"}[signs.pop()] if len(signs) == 1 else ""


def _sign(row: Document) -> int:
    """On which side of 0 the interval of the difference lies; 0: on neither."""
    low, high = row["difference_low"], row["difference_high"]
    if low is None or high is None:
        return 0
    return int(low > 0) - int(high < 0)


def _between(row: Document, shown: Any) -> str:
    if row["difference_low"] is None:
        return ""
    return f"{shown(row['difference_low'])} to {shown(row['difference_high'])}"


def _hours(number: float | None) -> str:
    return "-" if number is None else f"{number:,.1f}"


def _span(number: float | None) -> str:
    return "-" if number is None else show_span(number)
