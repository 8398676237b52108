"""Pictures of what stopping cost, and of where the GPU time went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from allocator.pages.draw import Size, bare, draw
from allocator.pages.figure import Figure, table
from allocator.pages.palette import light
from allocator.pages.source import Run, rows_of
from allocator.pages.words import REASONS, gpu_hours, percent
from allocator.replay.evidence import stopped_runs
from allocator.replay.meters import ROOT

if TYPE_CHECKING:
    import pandas as pd

PARTS = {
    "idle": "idle",
    "lost": "lost work, done again",
    "restart": "restarts",
    "checkpoint": "writing checkpoints",
    "parked": "sessions that had done their work",
    "dead": "held on dead nodes",
}
"""What was not useful, by column of the table `hours`."""


def cost_figures(run: Run) -> list[Figure]:
    """Where the time went; and if anything was stopped, why, and what that cost."""
    stopped = stopped_runs(run.frames["runs"])
    return [_spent(run), *([] if stopped.empty else [_stops(run, stopped)])]


def lost_in(run: Run) -> int:
    """GPU-seconds of work that was lost."""
    runs = run.frames["runs"]
    return int((runs.lost * runs.gpus).sum())


def _spent(run: Run) -> Figure:
    hours = run.frames["hours"]
    root = hours[hours.allocation == ROOT]
    whole = int(root.share.sum())
    parts = {"useful work": int(root[["charged", "uncharged"]].sum().sum())}
    for column, text in PARTS.items():
        amount = int(root[column].sum())
        parts[text] = amount
        parts["useful work"] -= 0 if column == "idle" else amount
    return Figure(
        key=f"{run.key}-spent",
        title="Where the GPU time went",
        caption="Share of all GPU time that could be used.",
        alt="Horizontal bars. " + ", ".join(f"{text} {percent(amount, whole)}" for text, amount in parts.items()) + ".",
        drawing=draw(
            f"{run.key}-spent",
            lambda figure, size: _paint_spent(figure, size, parts, whole),
            height=40 + 30 * len(parts),
        ),
        table=table(
            ("what", "GPU-hours", "share"),
            ((text, gpu_hours(amount), percent(amount, whole)) for text, amount in parts.items()),
        ),
    )


def _paint_spent(figure: Any, size: Size, parts: Mapping[str, int], whole: int) -> None:
    names, shares = list(parts), [100 * amount / max(whole, 1) for amount in parts.values()]
    axes = figure.subplots()
    bare(axes)
    colours = [light("got"), light("rest"), *(light("waste") for _ in names[2:])]
    axes.barh(range(len(names)), shares, height=0.6, color=colours)
    for place, share in enumerate(shares):
        axes.text(share + 1, place, f"{share:.1f} %", va="center", fontsize=11)
    short = {"sessions that had done their work": "idle sessions", "lost work, done again": "lost work"} if size.narrow else {}
    axes.set_yticks(range(len(names)), [short.get(name, name) for name in names], color=light("ink"))
    axes.invert_yaxis()
    axes.set_xlim(0, 118)
    axes.set_xticks([])


def _stops(run: Run, stopped: pd.DataFrame) -> Figure:
    rows = stopped.assign(lost_gpu=stopped.lost * stopped.gpus, held=(stopped.end - stopped.start) * stopped.gpus)
    sums = rows.groupby("ended_by").agg(stops=("job", "size"), lost=("lost_gpu", "sum"), held=("held", "sum"))
    sums = sums.sort_values(["stops"], ascending=False, kind="stable")
    names = [REASONS.get(str(reason), str(reason)) for reason in sums.index]
    return Figure(
        key=f"{run.key}-stops",
        title="Stops and their cost",
        caption="How often runs were stopped, by reason, and how much of their work was lost: what had been done since the "
        "last checkpoint.",
        alt="Two rows of bars. "
        + "; ".join(
            f"{name}: {row.stops:,} stops, {gpu_hours(row.lost)} GPU-hours lost"
            for name, row in zip(names, rows_of(sums), strict=True)
        )
        + ".",
        drawing=draw(
            f"{run.key}-stops",
            lambda figure, size: _paint_stops(figure, size, names, sums.stops.to_numpy(), sums.lost.to_numpy() / 3600),
            height=50 + 34 * len(names),
            narrow_height=80 + 2 * 40 * len(names),
        ),
        table=table(
            ("stopped", "stops", "GPU-hours lost", "GPU-hours held by these runs", "lost of these"),
            (
                (name, f"{row.stops:,}", gpu_hours(row.lost), gpu_hours(row.held), percent(row.lost, row.held))
                for name, row in zip(names, rows_of(sums), strict=True)
            ),
            "runs.csv",
        ),
    )


def _paint_stops(figure: Any, size: Size, names: Sequence[str], stops: Any, lost: Any) -> None:
    pair = figure.subplots(2, 1) if size.narrow else figure.subplots(1, 2, sharey=True)
    for axes, values, title, role in zip(pair, (stops, lost), ("stops", "GPU-hours lost"), ("got", "waste"), strict=True):
        bare(axes)
        axes.barh(np.arange(len(names)), values, height=0.6, color=light(role))
        for place, value in enumerate(values):
            text = f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:,.1f}"
            axes.text(value + 0.015 * max(values.max(), 1), place, text, va="center", fontsize=11)
        axes.set_yticks(range(len(names)), names, color=light("ink"))
        axes.set_xlim(0, 1.2 * max(values.max(), 1))
        axes.set_xticks([])
        axes.set_title(title, loc="left")
    pair[0].invert_yaxis()
    if size.narrow:
        pair[1].invert_yaxis()
