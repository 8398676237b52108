"""Pictures of how long work waited: by class, and by the size of the gang."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from allocator.pages.draw import Size, bare, draw
from allocator.pages.figure import Figure, Sign, table
from allocator.pages.palette import light
from allocator.pages.source import Run
from allocator.pages.words import percent
from allocator.replay.metrics import SIZES, size_name
from allocator.replay.report import show_span

if TYPE_CHECKING:
    import pandas as pd

LIMITS = (60, 600, 3_600, 14_400, 86_400)
"""Seconds up to which waits are told apart."""

WITHIN = ("under 1 min", "1 to 10 min", "10 min to 1 h", "1 to 4 h", "4 h to a day", "a day or more")
MOST_CLASSES = 16
"""Rows of one picture at most: those with most jobs."""

Counts = dict[str, list[int]]
"""By row of the picture: how many jobs waited so long, in the order of `WITHIN`; at last those that never started."""


def wait_figures(run: Run) -> list[Figure]:
    """One by class and one by gang size."""
    jobs = run.frames["jobs"]
    if jobs.empty:
        return []
    classes = {str(name) or "(no class)": rows for name, rows in jobs.groupby("job_class")}
    common = sorted(classes, key=lambda name: (-len(classes[name]), name))[:MOST_CLASSES]
    sizes = {size_name(low, high): jobs[(jobs.gpus >= low) & (jobs.gpus <= (high or 1 << 40))] for low, high in SIZES}
    waits = run.summary["waits"]
    by_class = {name or "(no class)": row for name, row in waits["by_class"].items()}
    return [
        _figure(run, "class", "Waits by class", {name: _counts(classes[name]) for name in common}, by_class),
        _figure(
            run,
            "size",
            "Waits by gang size",
            {f"{name} GPUs": _counts(rows) for name, rows in sizes.items() if len(rows)},
            {f"{name} GPUs": row for name, row in waits["by_gpus"].items()},
        ),
    ]


def _counts(jobs: pd.DataFrame) -> list[int]:
    started = jobs[jobs.first_start.notna()]
    place = np.searchsorted(np.array(LIMITS), started.wait.to_numpy(dtype=np.int64), side="right")
    return [*map(int, np.bincount(place, minlength=len(WITHIN))), len(jobs) - len(started)]


def _figure(run: Run, key: str, title: str, counts: Counts, told: Mapping[str, Mapping[str, Any]]) -> Figure:
    slowest = max(counts, key=lambda name: told[name]["p90"] or 0)
    return Figure(
        key=f"{run.key}-wait-{key}",
        title=title,
        caption="Share of jobs by the time from submission to the first start. In brackets: the number of jobs.",
        alt=f"Bars of one length, divided by how long jobs waited. The longest waits are those of {slowest}: nine in ten "
        f"started within {show_span(told[slowest]['p90'] or 0)}.",
        drawing=draw(f"{run.key}-wait-{key}", lambda figure, size: _paint(figure, size, counts), height=50 + 32 * len(counts)),
        table=table(
            (key, "jobs", *WITHIN, "not started", "median", "p90", "p99"),
            (
                (
                    name,
                    f"{sum(row):,}",
                    *(percent(count, sum(row)) for count in row),
                    *(show_span(told[name][mark]) for mark in ("p50", "p90", "p99")),
                )
                for name, row in counts.items()
            ),
            "jobs.csv",
        ),
        legend=(
            *(Sign(f"seq{place}", text) for place, text in enumerate(WITHIN)),
            Sign("muted", "not started by the end", "hatch"),
        ),
    )


def _paint(figure: Any, size: Size, counts: Counts) -> None:
    axes = figure.subplots()
    bare(axes)
    for place, row in enumerate(counts.values()):
        left = 0.0
        for kind, count in enumerate(row):
            width = 100 * count / sum(row)
            _piece(axes, place, left, width, kind, least=16 if size.narrow else 6)
            left += width
    labels = [f"{name} ({sum(row):,})" for name, row in counts.items()]
    axes.set_yticks(range(len(counts)), labels, color=light("ink"))
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.set_xticks([0, 50, 100] if size.narrow else range(0, 101, 20))
    axes.set_xlabel("% of jobs")


def _piece(axes: Any, place: int, left: float, width: float, kind: int, *, least: float) -> None:
    """One part of a bar, with its share written on it where there is room."""
    if not width:
        return
    if kind == len(WITHIN):
        look = {"facecolor": light("panel"), "edgecolor": light("muted"), "hatch": "////", "linewidth": 0.8}
    else:
        look = {"facecolor": light(f"seq{kind}"), "edgecolor": light("paper"), "linewidth": 0.8}
    axes.barh(place, width, left=left, height=0.72, **look)
    if width >= least and kind < len(WITHIN):
        colour = light("onpale" if kind < 3 else "ondeep")
        axes.text(left + width / 2, place, f"{width:.0f}", ha="center", va="center", fontsize=10.5, color=colour)
