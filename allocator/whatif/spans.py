"""Spans in scenario files: where they stand, and how many seconds they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from allocator.domain import Issue, SnapshotError
from allocator.generate.instant import parse_span
from allocator.wire.shapes import show

_SECONDS: Mapping[str, tuple[str, ...]] = {
    "replay": ("tick", "drift", "until"),
    "policy": ("window", "horizon", "protection_cap", "planning_step", "half_life", "notice"),
    "express": ("min_runtime",),
    "set": ("min_runtime",),
}
"""By table, the fields that are seconds in the formats; in a scenario they may be written as spans."""


def seconds(text: str) -> int:
    """Seconds of a span; a minus sign turns it round."""
    return -parse_span(text[1:]) if text.startswith("-") else parse_span(text)


def span_issues(path: str, text: Any, *, signed: bool = False) -> Iterator[Issue]:
    """What is wrong with a span that stands at `path`; None is none."""
    if text is None:
        return
    if not isinstance(text, str):
        yield Issue(path=path, problem=f"{show(text)} is not valid here", remedy="give a span in quotes, as 12h or 3d6h")
        return
    if text.startswith("-") and not signed:
        yield Issue(path=path, problem=f"{text!r} is less than nothing", remedy="give a span without a sign")
        return
    try:
        seconds(text)
    except SnapshotError as error:
        yield from (Issue(path=path, problem=issue.problem, remedy=issue.remedy) for issue in error.issues)


def in_seconds(value: Any, table: str = "") -> Any:
    """The same tables with spans as integers where the formats have seconds; what is no span stays, for the checks to name."""
    if isinstance(value, list):
        return [in_seconds(item, table) for item in value]
    if not isinstance(value, dict):
        return value
    fields = _SECONDS.get(table, ())
    return {key: _number(item) if key in fields else in_seconds(item, key) for key, item in value.items()}


def _number(value: Any) -> Any:
    return value if not isinstance(value, str) or any(span_issues("", value)) else seconds(value)
