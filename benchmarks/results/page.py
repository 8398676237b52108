"""The page: one table for each study, and what its figures carry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from allocator.replay.metrics import METRICS
from allocator.replay.report import BY_NAME, show
from benchmarks.results.studies import Size, Study

Found = Mapping[str, Any]
"""What `run_scenario` returns."""

COLUMNS: Mapping[str, str] = {
    "load": "demand / supply",
    "useful": "useful",
    "useful_lowest": "lowest project",
    "delivered_7d": "delivered",
    "occupancy": "occupancy",
    "goodput": "goodput",
    "lost": "lost",
    "wait_p50": "wait, median",
    "wait_p90": "wait, p90",
    "wait_promised_p90": "promised work, p90",
    "wait_debug_p90": "debug, p90",
    "wait_large_p50": "large gangs, median",
    "wait_large_p90": "large gangs, p90",
    "stops_max": "most stops of a job",
    "promises_broken": "promises broken",
    "drains_by_hand": "drains by hand",
}
"""Metrics in the order of the columns, and their heads."""

PUBLISHED: Mapping[str, str] = {
    "load": "2 to 3",
    "delivered_7d": "98 %",
    "occupancy": "98 %",
    "wait_p50": "24 s",
    "wait_p90": "1.8 h",
    "wait_debug_p90": "30 s",
}
"""A production report of October 2026: 88 to 1,024 GPUs of H100, B200 and B300, 150 researchers, 30 days; the waits are of its
largest H100 cluster, and what it calls delivered is of the whole month."""

ABOUT = """\
What [replays](howto/replay.md) of this allocator and of [other policies](baselines.md) on the same work come to. This page is
written by a command, figures and sentences alike; nobody chose which of them to show:

    {command}

Each figure is the mean over the seeds. A star says that the difference to the first row can be told from chance: 95 % of
draws of seeds and days leave 0 out ([how](metrics.md#intervals)). A dash says that nothing is known.

## What to beware of

- The organisation is synthetic ({gpus} GPUs in {pools}, {days} days): its shape is that of published marginals, its users
  do not react to what they get, and a small cluster has few gangs that are large. Compare rows with rows, not with production.
- Only our own policy charges time, so that *delivered* says nothing of the others; *useful* is fair to all.
- The defaults were set before these replays were made, on other traces; see the last table but those of logs for what other
  settings do.
- Published figures, where there are any, stand in the last row of a table. They are of another organisation, other hardware
  and a whole month.
"""


def page_of(size: Size, command: str, found: Sequence[tuple[Study, Found]]) -> str:
    """The whole page as Markdown."""
    parts = [
        "# Results",
        "",
        ABOUT.format(
            gpus=size.gpus, pools="one pool" if size.pools == 1 else f"{size.pools} pools", days=size.days, command=command
        ),
    ]
    for study, answer in found:
        parts += [f"## {study.heading}", "", study.about, "", *_table(study, answer), "", *_said(study, answer), ""]
    return "\n".join([*parts, "## What the columns are", "", *_definitions()]) + "\n"


def _table(study: Study, answer: Found) -> list[str]:
    """A row for each variant; the best of a column is not marked, because a star means more."""
    rows = [f"| | {' | '.join(COLUMNS.values())} |", f"| --- |{' ---: |' * len(COLUMNS)}"]
    cells = {(row["metric"], row["variant"]): row for row in answer["comparison"]}
    for variant in answer["variants"]:
        values = [_cell(cells[metric, variant["name"]]) for metric in COLUMNS]
        rows.append(f"| `{variant['name']}` | {' | '.join(values)} |")
    if study.rivals:
        rows.append(f"| *published* | {' | '.join(PUBLISHED.get(metric, '') for metric in COLUMNS)} |")
    return rows


def _cell(row: Mapping[str, Any]) -> str:
    return show(row["value"], BY_NAME[row["metric"]]) + (" \\*" if _apart(row) else "")


def _apart(row: Mapping[str, Any]) -> int:
    """1 and -1 where the difference to the first row can be told from chance and is above or below 0; else 0."""
    low, high = row["difference_low"], row["difference_high"]
    if low is None or high is None:
        return 0
    return int(low > 0) - int(high < 0)


def _said(study: Study, answer: Found) -> Iterator[str]:
    """Where another policy wins, every place of it; of settings all that differs."""
    if not study.rivals:
        yield from (f"- {sentence}" for sentence in answer["sentences"])
        return
    first = answer["variants"][0]["name"]
    before = {row["metric"]: row for row in answer["comparison"] if row["variant"] == first}
    wins = [row for row in answer["comparison"] if row["variant"] != first and _wins(row)]
    yield f"Where another policy does better than `{first}`, and chance does not explain it:"
    yield ""
    for metric in METRICS:
        better = [row for row in wins if row["metric"] == metric.name]
        if better:
            them = ", ".join(f"`{row['variant']}` {show(row['value'], metric)}" for row in better)
            yield f"- {metric.name} ({show(before[metric.name]['value'], metric)}): {them}"
    if not wins:
        yield "- nowhere"


def _wins(row: Mapping[str, Any]) -> bool:
    """`delivered` is left out: other policies charge everything, whoever it is owed to."""
    wanted = {"higher": 1, "lower": -1}.get(row["better"])
    return wanted is not None and _apart(row) == wanted and not row["metric"].startswith("delivered")


def _definitions() -> Iterator[str]:
    yield from (f"- {head}: {BY_NAME[metric].definition}" for metric, head in COLUMNS.items())
