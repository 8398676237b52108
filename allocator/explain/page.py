"""The parts of pages for people: headings, tables, pairs of names and values, and how numbers are written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from allocator.domain import printable
from allocator.explain.words import clock, duration

MOST_ROWS = 40

View = Mapping[str, Any]

WORDY = frozenset({"Pool", "Promised until", "Cause", "Longest waiting", "Free at", "Waits for", "For", "First not before"})
WORDY |= {"Largest", "Empty"}
"""Columns that hold words; they start at the left and may be folded."""


def heading(text: str) -> Text:
    """A line that stands out."""
    return Text(printable(text), style="bold")


def sentence(text: str) -> Text:
    """Plain text, wrapped at the width of the page."""
    return Text(printable(text))


def section(title: str, body: RenderableType, rows: Sequence[object]) -> Iterable[RenderableType]:
    """A title and its body, nothing where there are no rows."""
    if rows:
        yield Text()
        yield heading(title)
        yield body


def warning_section(warnings: Sequence[str]) -> Iterable[RenderableType]:
    """The warnings as a list, at most `MOST_ROWS` of them."""
    table = Table.grid(padding=(0, 1))
    for warning in warnings[:MOST_ROWS]:
        table.add_row(Text("-"), Text(printable(warning)))
    if len(warnings) > MOST_ROWS:
        table.add_row(Text("-"), Text(f"{len(warnings) - MOST_ROWS} more"))
    yield from section("Warnings", table, warnings)


def new_table(first: str, *others: str) -> Table:
    """A table whose first column is text and whose others are numbers or short."""
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold")
    table.add_column(Text(printable(first)), overflow="fold", min_width=12)
    for title in others:
        words = title in WORDY
        table.add_column(Text(printable(title)), justify="left" if words else "right", overflow="fold", no_wrap=not words)
    return table


def add_row(table: Table, *cells: object) -> None:
    """Add a row; numbers are grouped, None is a dash."""
    table.add_row(*map(_cell, cells))


def _cell(value: object) -> Text:
    return Text("-" if value is None else f"{value:,d}" if type(value) is int else printable(str(value)))


def named_values(pairs: Mapping[str, object]) -> Table:
    """Names and values, without those that have none."""
    table = Table.grid(padding=(0, 2))
    for name, value in pairs.items():
        if value is not None:
            table.add_row(Text(name), Text(printable(str(value))))
    return table


def indented_id(row: View) -> str:
    """The id of a vertex, further to the right the deeper it lies.

    An id that goes on from its parent's with a slash is not repeated: below `base` stands `/data`, not `base/data`. Rows that
    do not tell their parent may stand without it, so theirs are whole.
    """
    above = row.get("parent")
    own = row["id"].removeprefix(above) if above and row["id"].startswith(f"{above}/") else row["id"]
    return f"{'  ' * row['depth']}{own}"


def as_percent(share: float) -> str:
    """A share."""
    return f"{100 * share:.2f} %"


def as_hours(gpu_seconds: int | None) -> str | None:
    """GPU-hours; whole ones where they are many."""
    if gpu_seconds is None:
        return None
    return f"{gpu_seconds / 3600:,.0f}" if abs(gpu_seconds) >= 360_000 else f"{gpu_seconds / 3600:,.1f}"


def as_instant(instant: int | None, now: int) -> str | None:
    """An instant, and how far away it is; "any time" if it has come."""
    if instant is None:
        return None
    return f"{clock(instant)} (in {duration(instant - now)})" if instant > now else "any time"


def as_promise(until: int | None, now: int) -> str:
    """Until when work is protected."""
    if until is None:
        return "not protected"
    return as_instant(until, now) or "" if until > now else f"no longer, the promise ended {clock(until)}"
