"""Quarters as people write them: 2027Q1."""

from __future__ import annotations

import re

_FORM = re.compile(r"^(\d{4})Q([1-4])$")


def parse_quarter(text: str) -> int | None:
    """The number of a quarter, counted through; None if the text is none."""
    found = _FORM.match(text)
    return 4 * int(found[1]) + int(found[2]) - 1 if found else None


def name_quarter(number: int) -> str:
    """The quarter of that number."""
    return f"{number // 4:04d}Q{number % 4 + 1}"
