"""Slurm host lists: `n[001-003,007],login1` and the like."""

from __future__ import annotations

import math
import re
from itertools import product

_RANGE = re.compile(r"^(\d+)(?:-(\d+))?$")
MAX_HOSTS = 1_000_000
"""More names than this in one item are a typing error, not a cluster."""


def expand_hosts(text: str) -> list[str]:
    """All names of a host list, in order.

    Raises
    ------
    ValueError
        Where brackets do not match or a range makes no sense; the message says which.
    """
    return [name for item in _split(text) for name in _expand_item(item)]


def _split(text: str) -> list[str]:
    """Items between commas outside brackets."""
    items, depth, start = [], 0, 0
    for position, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if depth not in (0, 1):
            raise ValueError(f"brackets do not match in {text!r}")
        if char == "," and depth == 0:
            items.append(text[start:position])
            start = position + 1
    if depth:
        raise ValueError(f"brackets do not match in {text!r}")
    items.append(text[start:])
    return [item.strip() for item in items if item.strip()]


def _expand_item(item: str) -> list[str]:
    parts = re.split(r"\[([^\]]*)\]", item)
    choices = [_expand_ranges(part, item) if index % 2 else [part] for index, part in enumerate(parts)]
    if math.prod(map(len, choices)) > MAX_HOSTS:
        raise ValueError(f"{item!r} stands for more than {MAX_HOSTS:,} names")
    return ["".join(combination) for combination in product(*choices)]


def _expand_ranges(ranges: str, item: str) -> list[str]:
    names: list[str] = []
    for part in ranges.split(","):
        match = _RANGE.match(part.strip())
        if not match:
            raise ValueError(f"{part!r} in {item!r} is neither a number nor a range")
        first, last = match[1], match[2] or match[1]
        if not int(first) <= int(last) <= int(first) + MAX_HOSTS:
            raise ValueError(f"range {part!r} in {item!r} runs backwards or is too long")
        names.extend(f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1))
    return names
