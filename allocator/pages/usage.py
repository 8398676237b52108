"""Pictures of who held the GPUs: over time, against what was owed, and in all."""

from __future__ import annotations

from typing import Any

import numpy as np

from allocator.pages.draw import Size, bare, by_time, draw, moments
from allocator.pages.figure import Figure, Sign, signs_of, table
from allocator.pages.palette import REST, ROLE_OF, light
from allocator.pages.source import Run, rows_of
from allocator.pages.thin import Floats, Held, Spans, held_by, schedulable, spans_of
from allocator.pages.words import gpu_hours, instant, percent

MOST_BARS = 24
"""Allocations in one picture at most."""


def usage_figures(run: Run) -> list[Figure]:
    """Over time, one by one, and in all."""
    spans = spans_of(run.start, run.end)
    hours = run.frames["hours"]
    held = {letter: held_by(hours, spans, name) for name, letter in run.names.letters.items()}
    everybody = held_by(hours, spans)
    figures = [_stacked(run, spans, held, everybody)]
    if held:
        figures.append(_one_by_one(run, spans, held))
    return [*figures, *_in_all(run)]


def _stacked(run: Run, spans: Spans, held: dict[str, Held], everybody: Held) -> Figure:
    bands = {letter: of.charged + of.uncharged for letter, of in held.items()}
    total = everybody.charged + everybody.uncharged
    bands[REST] = np.maximum(total - sum(bands.values(), np.zeros(spans.count)), 0.0)
    if bands[REST].max() < 0.01:
        del bands[REST]
    roof = schedulable(run.frames["hours"], spans)
    most = int(np.argmax(total))
    return Figure(
        key=f"{run.key}-held",
        title="Who held the GPUs",
        caption=f"GPUs in use by allocation, means of {spans.name}; all pools together. The dashed line is what could be used: "
        "nodes that are dead or drained are not in it.",
        alt=f"Stacked areas over time. Most GPUs were in use at {instant(int(spans.edges[most]))} UTC: {total[most]:,.0f} of "
        f"{roof[most]:,.0f}. The mean is {_mean(total, spans):,.0f} of {_mean(roof, spans):,.0f}.",
        drawing=draw(
            f"{run.key}-held",
            lambda figure, size: _paint_stacked(figure, size, spans, bands, roof),
            height=330,
            narrow_height=250,
        ),
        table=table(
            ("from (UTC)", *(run.names.label(letter) for letter in bands), "in use", "could be used"),
            (
                (instant(int(start)), *(f"{band[at]:,.1f}" for band in bands.values()), f"{total[at]:,.1f}", f"{roof[at]:,.1f}")
                for at, start in enumerate(spans.edges[:-1])
            ),
            "hours.csv",
        ),
        legend=(*signs_of(run.names, bands), Sign("ink", "could be used", "dash")),
    )


def _mean(values: Floats, spans: Spans) -> float:
    return float(np.average(values, weights=np.diff(spans.edges)))


def _paint_stacked(figure: Any, size: Size, spans: Spans, bands: dict[str, Floats], roof: Floats) -> None:
    axes = figure.subplots()
    _time_axes(axes, spans, ticks=4 if size.narrow else 8)
    times, below = moments(spans.edges), np.zeros(spans.count)
    top = float(roof.max(initial=1.0))
    edge = light("paper") if size.width >= 8 * spans.count else "none"
    for letter, band in bands.items():
        above = below + band
        _fill(axes, times, below, above, light(ROLE_OF[letter]), edge=edge)
        widest = int(np.argmax(band))
        if band[widest] >= (0.12 if size.narrow else 0.07) * top:
            middle = times[widest] + (times[widest + 1] - times[widest]) / 2
            _badge(axes, middle, (below[widest] + above[widest]) / 2, letter)
        below = above
    axes.step(times, np.append(roof, roof[-1]), where="post", color=light("ink"), linewidth=1.4, linestyle=(0, (4, 3)))
    axes.set_ylim(0, 1.08 * top)
    axes.set_ylabel("GPUs")


def _badge(axes: Any, x: Any, y: float, letter: str) -> None:
    """A letter on a spot of paper, readable on every colour."""
    box = {"boxstyle": "circle,pad=0.22", "facecolor": light("paper"), "edgecolor": "none"}
    axes.text(x, y, letter, ha="center", va="center", fontsize=11, fontweight="bold", bbox=box)


def _fill(axes: Any, times: Any, low: Floats, high: Floats, colour: str, edge: str = "none") -> None:
    """An area between two stair lines; both have a value for each span."""
    axes.fill_between(
        times, np.append(low, low[-1]), np.append(high, high[-1]), step="post", facecolor=colour, edgecolor=edge, linewidth=0.5
    )


def _time_axes(axes: Any, spans: Spans, *, ticks: int) -> None:
    bare(axes, grid="y")
    by_time(axes, spans.start, spans.end, ticks=ticks)


def _one_by_one(run: Run, spans: Spans, held: dict[str, Held]) -> Figure:
    rows = -(-len(held) // 4)
    short = [letter for letter, of in held.items() if of.owed.sum() > 0 and of.charged.sum() < 0.9 * of.owed.sum()]
    worse = ", ".join(run.names.label(letter) for letter in short) or "none"
    return Figure(
        key=f"{run.key}-owed-time",
        title="What each allocation was owed, and held",
        caption=f"GPUs, means of {spans.name}. Owed is, hour by hour, the smaller of its share and what it asked for. Each "
        "picture has a scale of its own.",
        alt=f"One small picture for each allocation. Charged less than nine tenths of what they were owed: {worse}.",
        drawing=draw(
            f"{run.key}-owed-time",
            lambda figure, size: _paint_one_by_one(figure, size, run, spans, held),
            height=30 + 170 * rows,
            narrow_height=30 + 140 * -(-len(held) // 2),
        ),
        table=table(
            ("from (UTC)", *(f"{run.names.label(letter)}: {what}" for letter in held for what in ("owed", "charged", "free"))),
            (
                (
                    instant(int(start)),
                    *(f"{row[at]:,.1f}" for of in held.values() for row in (of.owed, of.charged, of.uncharged)),
                )
                for at, start in enumerate(spans.edges[:-1])
            ),
            "hours.csv",
        ),
        legend=(Sign("got", "charged"), Sign("free", "free of charge"), Sign("ink", "owed", "dash")),
    )


def _paint_one_by_one(figure: Any, size: Size, run: Run, spans: Spans, held: dict[str, Held]) -> None:
    columns = 2 if size.narrow else min(4, len(held))
    grid = figure.subplots(-(-len(held) // columns), columns, squeeze=False)
    figure.get_layout_engine().set(hspace=0.12, wspace=0.05)
    times = moments(spans.edges)
    for axes in grid.flat[len(held) :]:
        axes.set_visible(False)
    for axes, (letter, of) in zip(grid.flat, held.items(), strict=False):
        _time_axes(axes, spans, ticks=2 if size.narrow else 3)
        _fill(axes, times, np.zeros(spans.count), of.charged, light("got"))
        _fill(axes, times, of.charged, of.charged + of.uncharged, light("free"))
        axes.step(
            times, np.append(of.owed, of.owed[-1]), where="post", color=light("ink"), linewidth=1.2, linestyle=(0, (3, 2))
        )
        axes.set_ylim(0, None)
        axes.set_title(_short(run.names.label(letter), 20 if size.narrow else 26), loc="left", fontsize=11)
        axes.locator_params(axis="y", nbins=3)


def _short(name: str, most: int) -> str:
    """A name that may be too long for where it stands; its end tells more than its beginning."""
    return name if len(name) <= most else f"{name[:2]}…{name[-(most - 3) :]}"


def _in_all(run: Run) -> list[Figure]:
    every = run.frames["allocations"]
    rows = every[every.project & (every.pool == "") & ((every.owed > 0) | (every.charged + every.uncharged > 0))]
    rows = rows.sort_values(["owed", "allocation"], ascending=[False, True])
    if rows.empty:
        return []
    shown = rows.head(MOST_BARS)
    left = "" if len(shown) == len(rows) else f" The {MOST_BARS} to whom most was owed, of {len(rows)}."
    lowest = min(rows_of(rows[rows.owed > 0]), key=lambda row: row.delivered_share, default=None)
    return [
        Figure(
            key=f"{run.key}-owed",
            title="Owed and delivered",
            caption=f"GPU-hours over the whole span. The frame is what was owed; the number is the charged part of it.{left}",
            alt="Horizontal bars, one for each allocation."
            if lowest is None
            else f"Horizontal bars, one for each allocation. Served least is {lowest.allocation}: "
            f"{percent(lowest.charged, lowest.owed)} of what it was owed.",
            drawing=draw(
                f"{run.key}-owed", lambda figure, size: _paint_in_all(figure, size, run, shown), height=60 + 30 * len(shown)
            ),
            table=table(
                ("allocation", "owed", "charged", "free of charge", "useful", "charged / owed", "useful / owed"),
                (
                    (
                        run.names.label(run.names.letter(row.allocation))
                        if row.allocation in run.names.letters
                        else row.allocation,
                        *map(gpu_hours, (row.owed, row.charged, row.uncharged, row.useful)),
                        percent(row.charged, row.owed),
                        percent(row.useful, row.owed),
                    )
                    for row in rows_of(rows)
                ),
                "allocations.csv",
            ),
            legend=(Sign("got", "charged"), Sign("free", "free of charge"), Sign("ink", "owed", "frame")),
        )
    ]


def _paint_in_all(figure: Any, size: Size, run: Run, rows: Any) -> None:
    axes = figure.subplots()
    bare(axes)
    places = np.arange(len(rows))
    owed, charged, uncharged = (rows[name].to_numpy() / 3600 for name in ("owed", "charged", "uncharged"))
    axes.barh(places, charged, height=0.5, color=light("got"))
    axes.barh(places, uncharged, left=charged, height=0.5, color=light("free"))
    axes.barh(places, owed, height=0.76, facecolor="none", edgecolor=light("ink"), linewidth=1.2)
    reach = np.maximum(owed, charged + uncharged)
    for place, row in enumerate(rows_of(rows)):
        axes.text(reach[place] + 0.01 * reach.max(), place, percent(row.charged, row.owed), va="center", fontsize=11)
    labels = [run.names.label(run.names.letter(name)) if name in run.names.letters else name for name in rows.allocation]
    axes.set_yticks(places, [_short(label, 18 if size.narrow else 40) for label in labels], color=light("ink"))
    axes.set_xlim(0, reach.max() * (1.3 if size.narrow else 1.1))
    axes.locator_params(axis="x", nbins=3 if size.narrow else 7)
    axes.invert_yaxis()
    axes.set_xlabel("GPU-hours")
