"""Pictures of the engine: how far from the best its decisions may have been, and how long they took."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from allocator.pages.draw import Size, bare, by_time, draw, moments
from allocator.pages.figure import Figure, Sign, Table, table
from allocator.pages.palette import light
from allocator.pages.source import Run
from allocator.pages.thin import Floats, Spans, spans_of
from allocator.pages.words import instant, percent


def engine_figures(run: Run) -> list[Figure]:
    """The gap over time if any decision has one, and the time of decisions if it was kept."""
    return [*_gaps(run), *_times(run)]


def rungs_of(run: Run) -> Table:
    """How decisions were made: by rung, engine and status."""
    epochs = run.frames["epochs"]
    counts = epochs.groupby(["rung", "engine", "status"]).size().sort_values(ascending=False, kind="stable")
    keys: list[Any] = list(counts.index)
    rows = ((*map(str, key), f"{count:,}", percent(count, len(epochs))) for key, count in zip(keys, counts, strict=True))
    return table(("rung", "engine", "status", "decisions", "share"), rows, "epochs.csv")


def _gaps(run: Run) -> list[Figure]:
    epochs = run.frames["epochs"]
    known = epochs[epochs.gap.notna()]
    if known.empty:
        return []
    spans = spans_of(run.start, run.end)
    middle, worst = _by_span(known, spans)
    proven = int((known.gap <= 0).sum())
    return [
        Figure(
            key=f"{run.key}-gap",
            title="Gap",
            caption="How much of the cluster's time a better decision could at most have been worth: the median and the worst "
            f"decision of {spans.name}. Decisions without a bound are not in it.",
            alt=f"Two lines over time. {percent(proven, len(known))} of {len(known):,} decisions with a bound are proven to be "
            f"the best; the worst gap is {100 * float(known.gap.max()):.2f} %.",
            drawing=draw(
                f"{run.key}-gap",
                lambda figure, size: _paint_gaps(figure, size, spans, middle, worst),
                height=250,
                narrow_height=220,
            ),
            table=table(
                ("from (UTC)", "median gap", "worst gap"),
                (
                    (instant(int(start)), *(_share(float(row[at])) for row in (middle, worst)))
                    for at, start in enumerate(spans.edges[:-1])
                ),
                "epochs.csv",
            ),
            legend=(Sign("got", "median", "line"), Sign("waste", "worst", "dash")),
        )
    ]


def _share(gap: float) -> str:
    return "\N{EN DASH}" if np.isnan(gap) else f"{100 * gap:.3f} %"


def _by_span(known: Any, spans: Spans) -> tuple[Floats, Floats]:
    """Median and worst gap of each span, shape (count,) each; not a number where there was no decision."""
    grouped = known.gap.groupby(spans.index(known.now))
    places = range(spans.count)
    middle, worst = (of.reindex(places).to_numpy(dtype=np.float64) for of in (grouped.median(), grouped.max()))
    return middle, worst


def _paint_gaps(figure: Any, size: Size, spans: Spans, middle: Floats, worst: Floats) -> None:
    axes = figure.subplots()
    times = moments(spans.edges[:-1])
    axes.plot(times, 100 * worst, color=light("waste"), linewidth=1.6, linestyle=(0, (4, 2)), marker=".", markersize=3)
    axes.plot(times, 100 * middle, color=light("got"), linewidth=2, marker=".", markersize=3)
    axes.set_ylim(0, 1.1 * max(float(np.nanmax(100 * worst)), 0.01))
    axes.set_ylabel("gap, %")
    bare(axes, grid="y")
    by_time(axes, spans.start, spans.end, ticks=4 if size.narrow else 8)


def _times(run: Run) -> list[Figure]:
    timing = run.timing
    if timing is None or "within" not in timing or not timing["decisions"]:
        return []
    names, counts = _steps(timing)
    return [
        Figure(
            key=f"{run.key}-times",
            title="Time of a decision",
            caption="How long decisions took on the machine that played the replay. The only numbers here that differ from one "
            "machine to the next.",
            alt=f"Bars by time. Median {_seconds(timing['median_s'])}, 99 % within {_seconds(timing['p99_s'])}, the longest "
            f"{_seconds(timing['max_s'])}.",
            drawing=draw(
                f"{run.key}-times",
                lambda figure, size: _paint_times(figure, size, names, counts),
                height=250,
                narrow_height=230,
            ),
            table=table(
                ("took", "decisions", "share"),
                ((name, f"{count:,}", percent(count, timing["decisions"])) for name, count in zip(names, counts, strict=True)),
            ),
        )
    ]


def _steps(timing: Mapping[str, Any]) -> tuple[list[str], list[int]]:
    """Names of the spans of time in which decisions lie, without empty ones at both ends, and how many lie in each."""
    bounds = [float(row["s"]) for row in timing["within"]]
    within = [0, *(int(row["decisions"]) for row in timing["within"]), int(timing["decisions"])]
    counts = [after - before for before, after in itertools.pairwise(within)]
    names = [f"≤ {_seconds(bound)}" for bound in bounds] + [f"> {_seconds(bounds[-1])}"]
    used = [place for place, count in enumerate(counts) if count]
    kept = slice(max(0, used[0] - 1), used[-1] + 2)
    return names[kept], counts[kept]


def _seconds(value: float) -> str:
    return f"{value:,.3g} s" if value >= 1 else f"{1000 * value:,.3g} ms"


def _paint_times(figure: Any, size: Size, names: Sequence[str], counts: Sequence[int]) -> None:
    axes = figure.subplots()
    axes.bar(range(len(names)), counts, width=0.7, color=light("got"))
    for place, count in enumerate(counts):
        axes.text(place, count, f"{count:,}", ha="center", va="bottom", fontsize=10 if size.narrow else 11)
    short = [name.replace(" ", "\n", 1).replace(" ms", "\nms") for name in names] if size.narrow else names
    axes.set_xticks(range(len(names)), short)
    axes.set_ylim(0, 1.15 * max(counts))
    axes.locator_params(axis="y", nbins=4)
    axes.set_ylabel("decisions")
    bare(axes, grid="y")
