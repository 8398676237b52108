"""Thinning: series are averaged over spans, so that a report of a year is no larger than one of a week."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from allocator.replay.meters import ROOT

if TYPE_CHECKING:
    import pandas as pd

HOUR = 3600
MOST_SPANS = 168
"""Points of a series at most: hours of a week."""

_LENGTHS = (1, 2, 3, 4, 6, 8, 12, 24, 48, 168)
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Spans:
    """Spans of equal length that cover a replay; the first begins at or before it. Times in seconds since the epoch."""

    first: int
    length: int
    count: int
    start: int
    end: int

    @property
    def starts(self) -> Ints:
        """Where each begins, shape (count,)."""
        return np.arange(self.first, self.first + self.length * self.count, self.length, dtype=np.int64)

    @property
    def edges(self) -> Ints:
        """Where each begins inside the replay, and the end, shape (count + 1,)."""
        return np.append(np.maximum(self.starts, self.start), self.end)

    def index(self, times: pd.Series) -> Ints:
        """In which span instants lie."""
        place: Ints = (times.to_numpy(dtype=np.int64) - self.first) // self.length
        return place.clip(0, self.count - 1)

    def sums(self, times: pd.Series, amounts: pd.Series | None = None) -> Floats:
        """Amounts, or how many instants there are, in each span, shape (count,)."""
        weights = None if amounts is None else amounts.to_numpy(dtype=np.float64)
        return np.bincount(self.index(times), weights=weights, minlength=self.count).astype(np.float64)

    @property
    def name(self) -> str:
        """How long one is, in words."""
        hours = self.length // HOUR
        return "an hour" if hours == 1 else f"{hours} hours" if hours <= 24 else f"{hours // 24} days"


def spans_of(start: int, end: int, most: int = MOST_SPANS) -> Spans:
    """The shortest spans of full hours of which `most` suffice."""
    for length in (HOUR * hours for hours in (*_LENGTHS, *(168 * 2**power for power in range(1, 40)))):
        first = start // length * length
        count = max(1, -(-(end - first) // length))
        if count <= most:
            return Spans(first, length, count, start, end)
    raise AssertionError(f"no spans from {start} to {end}")


@dataclass(frozen=True, slots=True)
class Held:
    """Mean GPUs in each span, shape (count,) each: charged, uncharged, owed."""

    charged: Floats
    uncharged: Floats
    owed: Floats


def held_by(hours: pd.DataFrame, spans: Spans, allocation: str = ROOT) -> Held:
    """What an allocation, or the whole cluster, held and was owed, all pools together."""
    rows = hours[hours.allocation == allocation]
    seconds = np.diff(spans.edges)
    return Held(*(spans.sums(rows.start, rows[name]) / seconds for name in ("charged", "uncharged", "owed")))


def schedulable(hours: pd.DataFrame, spans: Spans) -> Floats:
    """Mean GPUs that could be used in each span, shape (count,)."""
    rows = hours[hours.allocation == ROOT]
    return spans.sums(rows.start, rows.share) / np.diff(spans.edges)
