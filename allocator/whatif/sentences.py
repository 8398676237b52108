"""The comparison in sentences that claim no difference whose interval holds 0."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence

from allocator.replay.bootstrap import LEVEL
from allocator.replay.report import BY_NAME, show
from allocator.whatif.comparison import FEWEST_SEEDS, Row

HEADLINES: Mapping[str, str] = {
    "delivered_7d": "what projects get of what they are owed in a week",
    "delivered_1d": "what projects get of what they are owed in a day",
    "useful_lowest": "what the lowest project gets of what it is owed",
    "occupancy": "the assigned part of the cluster",
    "goodput": "the useful part of the cluster",
    "wait_p50": "the median wait",
    "wait_p90": "the wait that one job in ten exceeds",
    "wait_promised_p50": "the median wait of work with a min runtime",
    "wait_promised_p90": "the wait that one in ten of such work exceeds",
    "wait_large_p90": "the wait that one large gang in ten exceeds",
    "lost": "work lost to stops and restarts",
    "stops": "the number of stops",
    "promises_broken": "the number of broken promises",
}
"""Metrics that are told, and what they are called in a sentence; all others stand in the tables."""

FASTER = "where jobs are faster, an hour of a GPU does more work"

PROJECTS: Mapping[str, str] = {
    "delivered": "what it gets of what it is owed",
    "useful_per_day": "useful time a day",
    "wait_p50": "the median wait",
}
"""Likewise for each project."""


def sentences(
    rows: Sequence[Row], projects: Sequence[Row], variants: Sequence[str], num_seeds: int, faster: Collection[str] = ()
) -> list[str]:
    """What differs from the baseline, variant by variant, and what cannot be told apart; then what to beware of.

    Parameters
    ----------
    faster
        Variants in which jobs have a speed: an hour of a GPU is not the same work there, and useful time is not compared.
    """
    apart = {variant for variant in variants if variant in faster or variants[0] in faster}
    projects = [
        row for row in projects if row.variant not in apart or row.metric != "useful_per_day" or row.variant == variants[0]
    ]
    found = [sentence for variant in variants[1:] for sentence in _of_variant(rows, projects, variant, variants[0])]
    number = sum(_is_told(row) for row in (*rows, *projects) if row.variant != variants[0])
    found += [f"{name}: useful time is not compared: {FASTER}." for name in variants[1:] if name in apart]
    if number:
        found += _caveats(number, num_seeds)
    return found


def _caveats(number: int, num_seeds: int) -> Iterator[str]:
    chance = f"{100 * (1 - LEVEL):.0f} in 100"
    yield f"Of {number} comparisons, about {chance} would look like a difference by chance alone."
    if num_seeds < FEWEST_SEEDS:
        yield (
            f"With fewer than {FEWEST_SEEDS} seeds the intervals are of days alone: that the same jobs a little later might "
            "have taken another course is not in them."
        )


def _of_variant(rows: Sequence[Row], projects: Sequence[Row], variant: str, base: str) -> Iterator[str]:
    told = [row for row in rows if row.variant == variant and row.metric in HEADLINES and row.difference is not None]
    of_projects = [row for row in projects if row.variant == variant and row.metric in PROJECTS]
    if not any(map(_is_told, told)):
        yield f"{variant}: no difference to {base} is told: it takes three days or three seeds for intervals."
        return
    before = {(row.allocation, row.metric): row for row in (*rows, *projects) if row.variant == base}
    for row in told:
        if _differs(row):
            yield f"{variant}: {_change(row, before[row.allocation, row.metric])}."
    same = [HEADLINES[row.metric] for row in told if _is_told(row) and not _differs(row)]
    if same:
        yield f"{variant}: no difference to {base} can be told in {_listed(same)}."
    yield from (f"{variant}: {sentence}." for sentence in _gains(of_projects, before))


def _is_told(row: Row) -> bool:
    """Whether there is an interval, and the metric is one of those that are told."""
    names = PROJECTS if row.allocation else HEADLINES
    return row.metric in names and row.difference_low is not None and row.difference_high is not None


def _differs(row: Row) -> bool:
    """Whether the interval leaves 0 out, and can be told from it at the precision of the sentence."""
    bounds = (row.difference_low, row.difference_high)
    return row.differs and all(_shown(bound, row).lstrip("-") != _shown(0.0, row) for bound in bounds)


def _change(row: Row, before: Row) -> str:
    """Which way a metric goes, from where to where, and the interval of the difference."""
    name = f"{row.allocation}: {PROJECTS[row.metric]}" if row.allocation else HEADLINES[row.metric]
    verb = "rises" if (row.difference or 0) > 0 else "falls"
    between = f"{_shown(row.difference_low, row)} to {_shown(row.difference_high, row)}"
    if not _of_same_seeds(row, before):
        between += ", of the seeds in which both are known"
    return f"{name} {verb} from {_shown(before.value, row)} to {_shown(row.value, row)} (difference {between})"


def _of_same_seeds(row: Row, before: Row) -> bool:
    """Whether the values are apart by the difference: it is of seeds in which both are known, each value of all of its own."""
    if before.value is None or row.value is None or row.difference is None:
        return True
    return math.isclose(row.value - before.value, row.difference, rel_tol=1e-6, abs_tol=1e-9)


def _gains(rows: Sequence[Row], before: Mapping[tuple[str, str], Row]) -> Iterator[str]:
    """Who gains and who loses: the projects whose share of what is owed, useful time or wait differs."""
    for row in rows:
        if _differs(row):
            yield _change(row, before[row.allocation, row.metric])
    if rows and not any(map(_differs, rows)):
        yield "of no project can it be told that it gains or loses"


def _shown(number: float | None, row: Row) -> str:
    """A value with its unit."""
    if row.unit == "GPU-h/d":
        return "-" if number is None else f"{number:,.1f} GPU-h"
    return show(number, BY_NAME[_LIKE.get(row.metric, row.metric)])


_LIKE = {"delivered": "delivered_7d"}
"""Metrics of a project that are written as one of the cluster is."""


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
