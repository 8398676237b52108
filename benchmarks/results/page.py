"""The page: what the studies come to, two tables for each, and what their figures carry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from allocator.replay.metrics import METRICS
from allocator.replay.report import BY_NAME, show
from allocator.whatif.gains import apart
from benchmarks.results.figures import PUBLISHED, Found, Row, cells_of, shown, wins_of
from benchmarks.results.studies import OURS, Size, Study
from benchmarks.results.summary import listed, summary

SHARES: Mapping[str, str] = {
    "load": "demand / supply",
    "useful": "useful",
    "useful_lowest": "useful, lowest project",
    "delivered_7d": "delivered",
    "delivered_lowest": "delivered, lowest project",
    "delivered_at_95": "projects with 95 %",
    "occupancy": "occupancy",
    "goodput": "goodput",
    "unallocated": "unallocated",
    "lost": "lost",
    "parked": "parked",
}
WAITS: Mapping[str, str] = {
    "wait_p50": "wait, median",
    "wait_p90": "wait, p90",
    "wait_promised_p90": "promised work, p90",
    "wait_debug_p90": "debug, p90",
    "wait_eval_p90": "eval, p90",
    "wait_large_p50": "large gangs, median",
    "wait_large_p90": "large gangs, p90",
    "stops": "stops",
    "stops_max": "most of one job",
    "promises_broken": "promises broken",
    "bound_missed": "bounds missed",
}
"""Metrics of the two tables in the order of their columns, and the heads of these."""

INTRODUCTION = """\
What [replays](howto/replay.md) of this allocator (`{ours}`, the engine without exact solvers) and of
[other policies](baselines.md) on the same work come to. This page is written by a command, figures and sentences alike; nobody
chose which of them to show:

    {command}
"""

LIMITS = """\
## What to beware of

- The organisation is synthetic: {gpus} GPUs in {pools}, {days} from an empty cluster without any history. Its shape is that of
  published marginals, and its users do not react to what they get.
{more}\
- Shares of the tenants of a log are their part of what was asked for in the days that are played, which nobody could have known
  before. Classes, min runtimes and limits are taken from the size of a job.
- The exact engines are not played here: they take seconds for a decision, and there are thousands. The
  [benchmarks](benchmarking.md) say how far greedy decisions are from the best.
- *Delivered* counts charged time, lost work included, and policies charge by different rules. *Useful* counts the same for all,
  and is the one to compare.
- Published figures stand in the last rows of a table, where they are known. They are of another organisation, other hardware, a
  whole month, and a demand of two to three times the supply at any time, which no row here has: the replays begin with an empty
  cluster, and what waits grows with the days.
"""

READING = """\
## How to read the tables

Each figure is the mean over the seeds. A star says that the difference to the first row can be told from chance: 95 % of draws
of seeds and days leave 0 out ([how](metrics.md#intervals)). Where nothing differs about 5 in 100 comparisons get a star all the
same; with one seed only days are drawn, a star says less, and of what is summed up over a week nothing can be drawn. A dash
says that nothing is known. A policy that promises nothing breaks no promise. Every column is
[defined below](#what-the-measures-are).
"""


SMALL = """\
- On so small a cluster few gangs are large, one of them decides for a day who waits, and the load of single days is far from
  that of the whole: seeds differ a lot.
"""

SHORT = """\
- No usage of the organisation ever leaves the window (7 days), so that what a budget does from week to week is not seen there.
"""


def page_of(size: Size, command: str, found: Sequence[tuple[Study, Found]]) -> str:
    """The whole page as Markdown."""
    more = SMALL * (size.gpus < 512) + SHORT * (size.days <= 7)
    pools = "one pool" if size.pools == 1 else f"{size.pools} pools"
    parts = ["# Results", "", INTRODUCTION.format(command=command, ours=OURS), "## In short", ""]
    parts += summary(found)
    parts += [
        "",
        LIMITS.format(gpus=size.gpus, pools=pools, more=more, days=f"{size.days} day{'s' * (size.days > 1)}"),
        READING,
    ]
    for study, answer in found:
        parts += [f"## {study.heading}", "", study.about, "", *_played(answer)]
        parts += [line for columns in (SHARES, WAITS) for line in [*_table(study, answer, columns), ""]]
        parts += [*_said(study, answer), ""]
    return "\n".join([*parts, "## What the measures are", "", *_definitions(found)]) + "\n"


def _played(answer: Found) -> Iterator[str]:
    """What the notes of the traces say, seed by seed."""
    for seed, notes in answer.get("notes", {}).items():
        yield f"- {f'seed {seed}' if answer['seeds'] != [0] else 'played'}: {notes}"
    yield ""


def _table(study: Study, answer: Found, columns: Mapping[str, str]) -> list[str]:
    """A row for each variant; the best of a column is not marked, because a star means more."""
    rows = [f"| | {' | '.join(columns.values())} |", f"| --- |{' ---: |' * len(columns)}"]
    cells = cells_of(answer)
    for variant in answer["variants"]:
        values = [_cell(cells[metric, variant["name"]]) for metric in columns]
        rows.append(f"| `{variant['name']}` | {' | '.join(values)} |")
    if study.rivals:
        for name, row in PUBLISHED.items():
            if set(row) & set(columns):
                values = [show(row[metric], BY_NAME[metric]) if metric in row else "" for metric in columns]
                rows.append(f"| *{name}* | {' | '.join(values)} |")
    return rows


def _cell(row: Row) -> str:
    return shown(row) + (" \\*" if apart(row) else "")


def _said(study: Study, answer: Found) -> Iterator[str]:
    """Where another policy wins, every place of it; of settings all that differs."""
    if not study.rivals:
        yield from _differences(answer)
        return
    first = answer["variants"][0]["name"]
    yield f"Promises that `{first}` broke, all seeds together: {listed(answer['broken'])}."
    yield f"Of what it lost: {_parts(answer['lost'])}."
    yield ""
    before, wins = cells_of(answer), wins_of(answer)
    yield f"Where another policy does better than `{first}`, and chance does not explain it:"
    yield ""
    for metric in METRICS:
        better = [row for row in wins if row["metric"] == metric.name]
        if better:
            them = ", ".join(f"`{row['variant']}` {shown(row)}" for row in better)
            yield f"- {metric.name} ({shown(before[metric.name, first])}): {them}"
    if not wins:
        yield "- nowhere"


def _differences(answer: Found) -> Iterator[str]:
    """All that differs from the first variant; those of which nothing can be told, and that have no star, in one line."""
    first, *names = [variant["name"] for variant in answer["variants"]]
    nothing = (f": no difference to {first} ", ": of no project ")
    told = [sentence for sentence in answer["sentences"] if not any(mark in sentence for mark in nothing)]
    yield from (f"- {sentence}" for sentence in told)
    starred = {row["variant"] for row in answer["comparison"] if row["metric"] in {**SHARES, **WAITS} and apart(row)}
    silent = [name for name in names if name not in starred and not any(line.startswith(f"{name}: ") for line in told)]
    if silent:
        yield f"- No difference to `{first}` can be told of: {', '.join(f'`{name}`' for name in silent)}."


def _parts(lost: Mapping[str, int]) -> str:
    """Everything that is at least a twentieth of the whole."""
    total = sum(lost.values())
    return ", ".join(f"{part / total:.0%} {whose}" for whose, part in lost.items() if 20 * part >= total > 0) or "nothing"


def _definitions(found: Sequence[tuple[Study, Found]]) -> Iterator[str]:
    """Of the columns, and of what else is named where another policy wins; by the names that `allocator replay` prints."""
    heads = {**SHARES, **WAITS}
    named = {row["metric"] for study, answer in found if study.rivals for row in wins_of(answer)}
    for metric in METRICS:
        if metric.name in heads or metric.name in named:
            head = f"*{heads[metric.name]}* " if metric.name in heads else ""
            yield f"- {head}`{metric.name}`: {metric.definition}"
