"""Who gains and who loses, project by project, and what becomes of the pools."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from allocator.replay.report import columns, show_span

Document = Mapping[str, Any]
Cells = tuple[str, ...]
Shown = Callable[[float], str]


def gains_lines(projects: Sequence[Document], variant: str, base: str) -> list[str]:
    """`gains_table` as lines of text."""
    return columns(gains_table(projects, variant, base))


def has_speed(edits: Document) -> bool:
    """Whether jobs of a variant are faster than before, so that an hour of a GPU is not the same work."""
    return any("speed" in jobs for jobs in edits.get("jobs", ()))


def gains_table(projects: Sequence[Document], variant: str, base: str, *, faster: bool = False) -> list[Cells]:
    """A head, and a row for each project, those that gain the most useful time first.

    A project gains where the interval of its useful time lies above 0, or that of its median wait below; it loses the other
    way round. Where no interval leaves 0 out, or the two contradict each other, nothing is claimed.

    Parameters
    ----------
    projects
        As in `whatif.json`.
    faster
        Jobs of one of the two have a speed: their useful time is shown, and says nothing of who gains.
    """
    rows = {(row["allocation"], row["metric"], row["variant"]): row for row in projects}
    names = sorted({row["allocation"] for row in projects}, key=lambda name: _order(rows[name, "useful_per_day", variant]))
    head = ("project", "delivered", "difference", "useful GPU-h a day", "difference", "median wait", "difference", "")
    cells: list[Cells] = [head]
    for name in names:
        pairs = ((rows[name, metric, base], rows[name, metric, variant], shown) for metric, shown in _TOLD.items())
        verdict = _verdict(rows[name, "useful_per_day", variant], rows[name, "wait_p50", variant], faster=faster)
        cells.append((name, *(cell for pair in pairs for cell in _pair(*pair)), verdict))
    return cells


def pools_table(pools: Sequence[Document], variant: str, base: str) -> list[Cells]:
    """A head, and a row for each pool and for each project in it.

    Parameters
    ----------
    pools
        As in `whatif.json`.
    """
    rows = {(row["pool"], row.get("allocation", ""), row["metric"], row["variant"]): row for row in pools}
    subjects = dict.fromkeys((row["pool"], row.get("allocation", "")) for row in pools)
    cells: list[Cells] = [("pool", "project", "delivered", "difference", "assigned", "difference")]
    for pool, project in subjects:
        delivered = _pair(rows[pool, project, "delivered", base], rows[pool, project, "delivered", variant], _percent)
        key = (pool, project, "occupancy")
        occupied = ("", "") if project else _pair(rows[*key, base], rows[*key, variant], _percent)
        cells.append((pool, project or "all", *delivered, *occupied))
    return cells


def _pair(before: Document, after: Document, shown: Shown) -> tuple[str, str]:
    """From what to what, and the interval of the difference."""
    values = (before["value"], after["value"])
    pair = " -> ".join("-" if value is None else shown(value) for value in values)
    low, high = after["difference_low"], after["difference_high"]
    return pair, "" if low is None or high is None else f"{shown(low)} to {shown(high)}"


def _order(row: Document) -> tuple[float, str]:
    return -(row["difference"] or 0.0), row["allocation"]


def _verdict(useful: Document, wait: Document, *, faster: bool) -> str:
    """What the two differences say, unless they contradict each other; of faster jobs only the wait is asked."""
    signs = ({-apart(wait)} if faster else {apart(useful), -apart(wait)}) - {0}
    return {1: "gains", -1: "loses"}[signs.pop()] if len(signs) == 1 else ""


def apart(row: Document) -> int:
    """1 and -1 where the difference can be told from chance and is above or below 0; else 0."""
    low, high = row["difference_low"], row["difference_high"]
    if low is None or high is None:
        return 0
    return int(low > 0) - int(high < 0)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _hours(number: float) -> str:
    return f"{number:,.1f}"


_TOLD: Mapping[str, Shown] = {"delivered": _percent, "useful_per_day": _hours, "wait_p50": show_span}
