"""Intervals by the bootstrap: days are drawn with replacement, with a fixed seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from allocator.replay.evidence import Evidence, Floats
from allocator.replay.metrics import Metric, Value

DRAWS = 500
LEVEL = 0.95
FEWEST_DAYS = 3
"""From fewer days no interval can be drawn."""


@lru_cache(maxsize=8)
def draws(num_days: int, seed: int = 0) -> Floats:
    """How often each day counts in each draw, shape (DRAWS, num_days), read-only."""
    chosen = np.random.default_rng(seed).integers(num_days, size=(DRAWS, num_days))
    counts = np.stack([np.bincount(row, minlength=num_days) for row in chosen]).astype(np.float64)
    counts.setflags(write=False)
    return counts


def value(metric: Metric, evidence: Evidence) -> Value:
    """The metric over all days."""
    return metric.of(evidence, np.ones(evidence.num_days))


def interval(metric: Metric, evidence: Evidence) -> tuple[Value, Value]:
    """The percentile interval of a metric."""
    if evidence.num_days < FEWEST_DAYS or not metric.by_day:
        return None, None
    return limits([metric.of(evidence, counts) for counts in draws(evidence.num_days)])


def difference(metric: Metric, one: Evidence, other: Evidence) -> tuple[Value, Value, Value]:
    """Other minus one, and its interval; both lose and gain the same days."""
    first, second = value(metric, one), value(metric, other)
    if first is None or second is None:
        return None, None, None
    if one.num_days != other.num_days or one.num_days < FEWEST_DAYS or not metric.by_day:
        return second - first, None, None
    pairs = [(metric.of(one, counts), metric.of(other, counts)) for counts in draws(one.num_days)]
    return second - first, *limits([None if a is None or b is None else b - a for a, b in pairs])


def limits(found: Sequence[Value]) -> tuple[Value, Value]:
    """The percentile interval of what was drawn."""
    known = [each for each in found if each is not None and math.isfinite(each)]
    if not known:
        return None, None
    low, high = np.quantile(known, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
