"""What is read from the answer of a scenario: which differences can be told from chance, and which of them are wins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allocator.replay.metrics import METRICS
from allocator.replay.report import BY_NAME, show
from allocator.whatif.gains import apart

Found = Mapping[str, Any]
"""What `run_scenario` returns, and of its first variant `notes`, what the traces say of themselves by seed, `broken`, how many
runs ended before their promise by what ended them, and `lost`, GPU-seconds by whose they were, most first."""

Row = Mapping[str, Any]
"""A metric of a variant, as in its `comparison`."""

COUNTED = ("stops_max", "stopped_over_8", "stopped_over_20", "promises_broken", "drains_by_hand", "bound_missed")
"""Metrics of which a single case counts."""

PUBLISHED: Mapping[str, Mapping[str, float]] = {
    "published, before": {"wait_p50": 300, "wait_p90": 10_080, "wait_debug_p90": 7_200},
    "published": {
        "delivered_7d": 0.98,
        "delivered_lowest": 0.90,
        "delivered_at_95": 13 / 15,
        "occupancy": 0.98,
        "unallocated": 0.18,
        "wait_p50": 24,
        "wait_p90": 6_480,
        "wait_debug_p90": 30,
    },
}
"""A production report of October 2026: 88 to 1,024 GPUs of H100, B200 and B300, 150 researchers, 30 days, 15 allocations; the
waits are of its largest H100 cluster, before and after priorities gave way to budgets of time. What it calls delivered is of
the whole month."""

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


def compared(row: Row) -> bool:
    """Whether more or less of it is better, whatever a policy charges."""
    return bool(row["better"]) and not row["metric"].startswith(UNFAIR)


def verdict(row: Row) -> int:
    """1 where a variant is better than the first beyond chance, -1 where it is worse, else 0."""
    return apart(row) * (1 if row["better"] == "higher" else -1) if compared(row) else 0


def wins_of(answer: Found) -> list[Row]:
    """Where another variant is better than the first beyond chance, in the order of the metrics."""
    first = answer["variants"][0]["name"]
    cells = cells_of(answer)
    names = [variant["name"] for variant in answer["variants"] if variant["name"] != first]
    rows = [cells[metric.name, name] for metric in METRICS for name in names]
    return [row for row in rows if verdict(row) > 0]
