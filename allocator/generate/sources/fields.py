"""Cells of job logs: numbers, moments and spans, each with the reason for which a row with another cannot be used."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime

from allocator.generate.sources.rows import UnusableError

Record = Mapping[str, str]
"""One row by column."""

_LIMIT = re.compile(r"^(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)(?:\.\d+)?$")


def text(record: Record, column: str) -> str:
    """A cell that must not be empty."""
    value = record[column].strip()
    if not value:
        raise UnusableError(f"{column} is empty")
    return value


def number(record: Record, column: str) -> float:
    """A finite number."""
    try:
        value = float(record[column])
    except ValueError as error:
        raise UnusableError(f"{column} is no number") from error
    if not math.isfinite(value):
        raise UnusableError(f"{column} is no number")
    return value


def moment(record: Record, column: str) -> int:
    """Seconds since the epoch of a date and time; without a zone it is taken as UTC."""
    value = record[column].strip()
    try:
        at = datetime.fromisoformat(value)
    except ValueError as error:
        raise UnusableError(f"{column} is no date and time" if value else f"{column} is empty") from error
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp())


def whole_gpus(record: Record, column: str) -> int:
    """A whole number of GPUs, at least one."""
    gpus = number(record, column)
    if gpus < 1:
        raise UnusableError("the job asks for no GPU")
    if gpus != int(gpus):
        raise UnusableError("the job asks for a part of a GPU")
    return int(gpus)


def run_time(start: int, end: int) -> int:
    """Seconds from start to end."""
    if end <= start:
        raise UnusableError("the job has no run time")
    return end - start


def slurm_limit(value: str) -> int | None:
    """Seconds of a time limit as Slurm writes it (`1-02:30:00`, `30:00`); None: no limit."""
    found = _LIMIT.match(value.strip())
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
