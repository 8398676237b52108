"""Rows that hold from a quarter on, as one value for each quarter."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

from allocator.planning.quarters import parse_quarter

T = TypeVar("T")


class Since(Protocol):
    """A row that may say from when on it holds."""

    @property
    def since(self) -> str | None:
        """A quarter; None: from the first one on."""


def by_quarter(rows: Iterable[tuple[Since, T]], first: int, quarters: int, before: T) -> list[T]:
    """The value of each quarter: of the latest row that holds by then, `before` where none does."""
    begins = sorted(((_begin(row, first), value) for row, value in rows), key=lambda pair: pair[0])
    found = []
    for quarter in range(quarters):
        held = [value for begin, value in begins if begin <= quarter]
        found.append(held[-1] if held else before)
    return found


def _begin(row: Since, first: int) -> int:
    """The quarter of the plan in which a row begins to hold; it may lie before the plan."""
    number = None if row.since is None else parse_quarter(row.since)
    return -(10**6) if number is None else number - first
