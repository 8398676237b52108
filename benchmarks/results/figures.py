"""What is read from the answer of a scenario: which differences can be told from chance, and which of them are wins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allocator.replay.metrics import METRICS
from allocator.replay.report import BY_NAME, show

Found = Mapping[str, Any]
"""What `run_scenario` returns, and of its first variant `notes`, what the traces say of themselves by seed, `broken`, how many
runs ended before their promise by what ended them, and `lost`, GPU-seconds by whose they were, most first."""

Row = Mapping[str, Any]
"""A metric of a variant, as in its `comparison`."""

COUNTED = ("stops_max", "stopped_over_8", "stopped_over_20", "promises_broken", "drains_by_hand", "bound_missed")
"""Metrics of which a single case counts."""

UNFAIR = ("delivered", "unfunded")
"""Beginnings of metrics that depend on what a policy charges: other policies charge everything, whoever it is owed to."""


def cells_of(answer: Found) -> Mapping[tuple[str, str], Row]:
    """By metric and variant."""
    return {(row["metric"], row["variant"]): row for row in answer["comparison"]}


def shown(row: Row) -> str:
    """A value with its unit; of counts, which are means over seeds, no part is rounded away."""
    number, metric = row["value"], BY_NAME[row["metric"]]
    if number is not None and metric.name in COUNTED and number != round(number):
        return f"{number:,.1f}"
    return show(number, metric)


def apart(row: Row) -> int:
    """1 and -1 where the difference to the first row can be told from chance and is above or below 0; else 0."""
    low, high = row["difference_low"], row["difference_high"]
    if low is None or high is None:
        return 0
    return int(low > 0) - int(high < 0)


def verdict(row: Row) -> int:
    """1 where a variant is better than the first beyond chance, -1 where it is worse, else 0."""
    wanted = {"higher": 1, "lower": -1}.get(row["better"], 0)
    return 0 if row["metric"].startswith(UNFAIR) else apart(row) * wanted


def wins_of(answer: Found) -> list[Row]:
    """Where another variant is better than the first beyond chance, in the order of the metrics."""
    first = answer["variants"][0]["name"]
    cells = cells_of(answer)
    names = [variant["name"] for variant in answer["variants"] if variant["name"] != first]
    rows = [cells[metric.name, name] for metric in METRICS for name in names]
    return [row for row in rows if verdict(row) > 0]
