"""What a picture in a report consists of: a caption, two drawings, what its marks mean, and the numbers behind it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from allocator.pages.draw import Drawing
from allocator.pages.palette import MARKS, ROLE_OF
from allocator.pages.source import Names

MOST_ROWS = 200
"""A table in a report has no more rows; the tables of the replay have all."""


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as text; the first column names the row. `note` says what is left out."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Sign:
    """An entry of a legend: `look` is a class of the style sheet: fill, frame, hatch, dash, line, dot, cross, triangle,
    square, diamond."""

    role: str
    text: str
    look: str = "fill"
    letter: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture: `key` is unique on the page, `alt` says in words what is to be seen."""

    key: str
    title: str
    caption: str
    alt: str
    drawing: Drawing
    table: Table
    legend: tuple[Sign, ...] = ()


def table(head: Sequence[str], rows: Iterable[Sequence[str]], source: str = "") -> Table:
    """A table that is cut at `MOST_ROWS`; `source` names the file with all rows."""
    cells = [tuple(row) for row in rows]
    note = f"The first {MOST_ROWS} of {len(cells):,} rows; all of them are in {source}." if len(cells) > MOST_ROWS else ""
    return Table(tuple(head), tuple(cells[:MOST_ROWS]), note)


def signs_of(names: Names, letters: Iterable[str]) -> tuple[Sign, ...]:
    """The legend of allocations."""
    return tuple(Sign(ROLE_OF[letter], names.name(letter), letter=MARKS.get(letter, letter)) for letter in letters)
