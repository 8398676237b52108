"""The picture of reservations: when a large gang was told to start at the latest, and when it did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from allocator.pages.draw import Size, bare, draw
from allocator.pages.figure import Figure, Sign, table
from allocator.pages.palette import light
from allocator.pages.source import Run, rows_of
from allocator.pages.words import instant
from allocator.replay.report import show_span

if TYPE_CHECKING:
    import pandas as pd

MOST_MARKS = 300
"""Reservations in the picture at most: the latest ones, and of the others every so many."""

KINDS = {"kept": ("o", "got", "dot"), "late": ("X", "waste", "cross"), "not started": ("^", "muted", "triangle")}
"""Mark, colour and look in the legend of each outcome."""


def reservation_figures(run: Run) -> list[Figure]:
    """One picture, if anything was reserved."""
    rows = run.frames["reservations"]
    if rows.empty:
        return []
    rows = rows.assign(pending=rows.start.isna())
    rows = rows.assign(outcome=np.where(rows.late > 0, "late", np.where(rows.pending, "not started", "kept")))
    rows = rows.sort_values(["late", "eligible_since", "job"], ascending=[False, True, True])
    shown = _thinned(rows)
    counts = {kind: int((rows.outcome == kind).sum()) for kind in KINDS}
    left = "" if len(shown) == len(rows) else f" {len(shown)} of {len(rows):,} are drawn."
    return [
        Figure(
            key=f"{run.key}-reservations",
            title="Reservations for large gangs",
            caption="Each mark is a wait under a reservation: the bound stated first, and the time until the start (or "
            f"the end of the replay). On or below the line the word was kept.{left}",
            alt=f"A cloud of marks. {counts['kept']:,} started within their bound, {counts['late']:,} did not, "
            f"{counts['not started']:,} had not started by the end and were not yet due.",
            drawing=draw(
                f"{run.key}-reservations",
                lambda figure, size: _paint(figure, size, shown, run.end),
                height=340,
                narrow_height=300,
            ),
            table=table(
                ("job", "claim since (UTC)", "bound", "started after", "late by"),
                (
                    (
                        str(row.job),
                        instant(row.eligible_since),
                        show_span(row.bound - row.eligible_since),
                        "not started" if row.pending else show_span(row.start - row.eligible_since),
                        show_span(row.late) if row.late else "",
                    )
                    for row in rows_of(rows)
                ),
                "reservations.csv",
            ),
            legend=(
                *(Sign(role, f"{kind} ({counts[kind]:,})", look) for kind, (_, role, look) in KINDS.items()),
                Sign("ink", "as stated", "dash"),
            ),
        )
    ]


def _thinned(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows in the picture; they come with the latest first."""
    if len(rows) <= MOST_MARKS:
        return rows
    first = MOST_MARKS // 3
    others = np.linspace(first, len(rows) - 1, MOST_MARKS - first).astype(int)
    chosen: pd.DataFrame = rows.iloc[[*range(first), *others]]
    return chosen


def _paint(figure: Any, size: Size, rows: pd.DataFrame, end: int) -> None:
    axes = figure.subplots()
    bound = (rows.bound - rows.eligible_since).to_numpy(dtype=float) / 3600
    took = (rows.start.fillna(end).astype("int64") - rows.eligible_since).to_numpy(dtype=float) / 3600
    reach = 1.05 * max(bound.max(), took.max(), 0.1)
    axes.plot([0, reach], [0, reach], color=light("ink"), linewidth=1.2, linestyle=(0, (4, 3)))
    for kind, (mark, role, _) in KINDS.items():
        of_kind = (rows.outcome == kind).to_numpy()
        face = "none" if kind == "not started" else light(role)
        look = {"facecolor": face, "edgecolor": light("muted" if kind == "not started" else "paper"), "linewidth": 1}
        axes.scatter(bound[of_kind], took[of_kind], s=46, marker=mark, **look)
    axes.set_xlim(0, reach)
    axes.set_ylim(0, reach)
    axes.set_xlabel("bound stated, hours")
    axes.set_ylabel("started after, hours")
    axes.locator_params(nbins=4 if size.narrow else 7)
    bare(axes, grid="both")
