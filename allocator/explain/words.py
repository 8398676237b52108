"""Numbers as people read them. Only for sentences and tables: nothing is decided on what stands here."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

HOUR = 3600


def clock(instant: int) -> str:
    """An instant in UTC, to the second."""
    return datetime.fromtimestamp(instant, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def duration(seconds: int) -> str:
    """A span in its two largest units: 2 d 3 h, 1 h 05 min, 40 s."""
    if seconds < 60:
        return f"{seconds} s"
    minutes, rest = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes} min" + (f" {rest} s" if rest else "")
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h" + (f" {minutes:02d} min" if minutes else "")
    days, hours = divmod(hours, 24)
    return f"{days} d" + (f" {hours} h" if hours else "")


def gpu_hours(gpu_seconds: int) -> str:
    """GPU-seconds as GPU-hours."""
    return f"{gpu_seconds / HOUR:,.1f}"


def gpus(milli: int) -> str:
    """Thousandths of a GPU as GPUs; whole ones without a point."""
    return f"{milli // 1000:,d}" if milli % 1000 == 0 else f"{milli / 1000:,.1f}"


def counted(number: int, noun: str) -> str:
    """A number with its noun: 1 node, 2 nodes."""
    return f"{number:,d} {noun}" + ("" if number == 1 else "s")


def listed(ids: Sequence[str], most: int = 3, of: int | None = None) -> str:
    """The first few of some ids, and how many more there are; `of`: how many in all, where not all are given."""
    more = (len(ids) if of is None else of) - most
    return ", ".join(ids[:most]) + (f" and {more} more" if more > 0 else "")
