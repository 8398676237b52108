"""Numbers as people read them, and a report in a few sentences."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from allocator.replay.metrics import METRICS
from allocator.replay.report import show, show_span

BY_NAME = {metric.name: metric for metric in METRICS}

REASONS = {
    "share": "for work with a better claim",
    "express": "for the express lane",
    "reservation": "for a reserved gang",
    "relocate": "moved out of a gang's way",
    "drain": "a node is wanted empty",
    "node_down": "a node died",
    "person": "by hand, at the deadline of a drain",
}
"""Why a run was stopped, in words."""


TITLES = {
    "occupancy": "in use",
    "goodput": "kept work",
    "delivered_7d": "delivered of owed, by week",
    "delivered_1d": "delivered, by day",
    "delivered_strict": "delivered, by hour",
    "delivered_lowest": "delivered, lowest",
    "useful": "useful of owed, by week",
    "lost": "lost work and restarts",
    "wait_p50": "wait, median",
    "wait_p90": "wait, nine in ten",
    "wait_promised_p90": "… with a min runtime",
    "wait_debug_p90": "… of class debug",
    "wait_large_p90": "… of large gangs",
    "stops": "stops",
    "promises_broken": "promises broken",
}
"""Short titles of the metrics that a page begins with and draws."""


def shown(name: str, unit: str, number: float | None, *, signed: bool = False) -> str:
    """The value of a metric with its unit; `signed` for differences, which are points where values are percents."""
    if number is None:
        return "\N{EN DASH}"
    text = _unsigned(name, unit, number)
    if not signed:
        return text
    return ("+" if number > 0 else "") + text.replace("-", "\N{MINUS SIGN}").replace(" %", " points")


def _unsigned(name: str, unit: str, number: float) -> str:
    metric = BY_NAME.get(name)
    if metric is not None:
        return show(number, metric)
    return show_span(number) if unit == "s" else f"{number:,.4g} {unit}".strip()


def between(name: str, unit: str, low: float | None, high: float | None, *, signed: bool = False) -> str:
    """An interval; empty where there is none."""
    if low is None or high is None:
        return ""
    return f"{shown(name, unit, low, signed=signed)} to {shown(name, unit, high, signed=signed)}"


def percent(part: float, whole: float) -> str:
    """A share; a dash of nothing."""
    return f"{100 * part / whole:.1f} %" if whole > 0 else "\N{EN DASH}"


def gpu_hours(gpu_seconds: float) -> str:
    """An amount of GPU time."""
    hours = gpu_seconds / 3600
    return f"{hours:,.1f}" if abs(hours) < 100 else f"{hours:,.0f}"


def instant(seconds: int) -> str:
    """An instant in UTC, to the minute."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%a %d %b %Y, %H:%M")


def title_of(summary: Mapping[str, Any]) -> str:
    """What was replayed."""
    return f"{summary['policy']} on {summary['trace']}"


def facts_of(summary: Mapping[str, Any]) -> str:
    """When, how long and how large."""
    days = (summary["end"] - summary["start"]) / 86_400
    gpus = ", ".join(f"{count:,} {pool}" for pool, count in summary["gpus"].items())
    return f"{instant(summary['start'])} to {instant(summary['end'])} UTC ({days:.1f} days); GPUs: {gpus}"


def sentences_of(summary: Mapping[str, Any], lost_gpu_seconds: float) -> list[str]:
    """A replay in a few sentences; those of which nothing is known are left out."""
    value = {name: row["value"] for name, row in summary["metrics"].items()}
    said = {name: show(number, BY_NAME[name]) for name, number in value.items() if name in BY_NAME}
    jobs = summary["jobs"]
    found = [
        f"{sum(jobs.values()):,} jobs were submitted: {_listed(jobs)}. {summary['decisions']:,} decisions were made.",
        f"{said['occupancy']} of the GPU time that could be used was in use, and {said['goodput']} did work that was kept.",
        _delivery(value, said),
        _waits(value, said),
        _stops(value, said, lost_gpu_seconds),
        _promises(value, said),
    ]
    return [sentence for sentence in found if sentence]


def verdict(better: str, row: Mapping[str, Any]) -> str:
    """Whether a difference says anything: `better`, `worse`, `differs`, `unclear`, or empty without an interval.

    `better` is as of `Metric`: "higher", "lower", or empty where neither is.
    """
    low, high = row.get("low"), row.get("high")
    if low is None or high is None:
        return ""
    if low <= 0 <= high:
        return "unclear"
    if not better:
        return "differs"
    return "better" if (low > 0) == (better == "higher") else "worse"


def _listed(jobs: Mapping[str, int]) -> str:
    words = {"running": "still running at the end", "waiting": "still waiting at the end"}
    return ", ".join(f"{count:,} {words.get(outcome, outcome)}" for outcome, count in jobs.items())


def _delivery(value: Mapping[str, float | None], said: Mapping[str, str]) -> str:
    if value["delivered_7d"] is None:
        return ""
    return (
        f"Allocations got {said['delivered_7d']} of what they were owed, counted over weeks, and {said['delivered_strict']} "
        f"counted hour by hour. The one served least got {said['delivered_lowest']}."
    )


def _waits(value: Mapping[str, float | None], said: Mapping[str, str]) -> str:
    if value["wait_p50"] is None:
        return ""
    debug = "" if value["wait_debug_p90"] is None else f"; of those of class debug, nine in ten within {said['wait_debug_p90']}"
    return f"Half of all jobs started within {said['wait_p50']}, nine in ten within {said['wait_p90']}{debug}."


def _stops(value: Mapping[str, float | None], said: Mapping[str, str], lost: float) -> str:
    if not value["stops"]:
        return "Nothing was stopped."
    return (
        f"Work was stopped {said['stops']} times, one job {said['stops_max']} times. {gpu_hours(lost)} GPU-hours of work were "
        f"lost; with restarts that is {said['lost']} of the time in use."
    )


def _promises(value: Mapping[str, float | None], said: Mapping[str, str]) -> str:
    broken = "No promise was broken" if not value["promises_broken"] else f"Promises broken: {said['promises_broken']}"
    missed = "no stated bound was missed" if not value["bound_missed"] else f"stated bounds missed: {said['bound_missed']}"
    return f"{broken}; {missed}."
