"""Metrics on the page: of one replay, of several side by side, or of a what-if study; and their picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allocator.pages.draw import Size, bare, draw
from allocator.pages.figure import Figure, Sign, table
from allocator.pages.palette import light
from allocator.pages.source import Run, Study
from allocator.pages.words import BY_NAME, TITLES, between, shown, verdict
from allocator.replay.report import compare, read_played

SHARES = ("occupancy", "goodput", "delivered_7d", "delivered_1d", "delivered_strict", "delivered_lowest", "useful", "lost")
SPANS = ("wait_p50", "wait_p90", "wait_promised_p90", "wait_debug_p90", "wait_large_p90")
CARDS = ("occupancy", "goodput", "delivered_7d", "wait_p90", "stops", "promises_broken")
"""The metrics that are drawn, and those that a page begins with."""

MARKS = (("o", "c0", "dot"), ("s", "c3", "square"), ("D", "c2", "diamond"), ("^", "c5", "triangle"))
"""Mark, colour and look in the legend of each replay in the picture."""

SAME = "the same"
"""What is said of no difference."""

VERDICTS = {
    "better": "better",
    "worse": "worse",
    "differs": "differs",
    "unclear": "no difference can be told: the interval holds 0",
    "": "",
}


@dataclass(frozen=True, slots=True)
class Cell:
    """A metric of one replay or variant. `verdict` is of the difference to the first one."""

    value: float | None
    low: float | None
    high: float | None
    text: str
    interval: str
    difference: str = ""
    apart: str = ""
    verdict: str = ""


@dataclass(frozen=True, slots=True)
class Measure:
    """A metric: a cell for each label."""

    name: str
    definition: str
    cells: tuple[Cell, ...]

    @property
    def title(self) -> str:
        """The name for people."""
        return TITLES.get(self.name, self.name)


@dataclass(frozen=True, slots=True)
class Measures:
    """The table of metrics."""

    labels: tuple[str, ...]
    rows: tuple[Measure, ...]

    def row(self, name: str) -> Measure | None:
        """A metric by name."""
        return next((row for row in self.rows if row.name == name), None)

    @property
    def cards(self) -> list[Measure]:
        """What the page begins with."""
        return [row for row in map(self.row, CARDS) if row is not None]


def measures_of_one(run: Run) -> Measures:
    """The metrics of one replay."""
    definitions = run.summary["definitions"]
    rows = (Measure(name, definitions[name], (_cell(name, row),)) for name, row in run.summary["metrics"].items())
    return Measures((run.label,), tuple(rows))


def measures_of_many(folders: Sequence[Path], summaries: Sequence[Mapping[str, Any]]) -> tuple[Measures, bool]:
    """The metrics of several replays with differences to the first, and whether they are of one trace and span."""
    found = compare([read_played(folder) for folder in folders])
    labels = tuple(run["label"] for run in found["runs"])
    rows = []
    for row in found["metrics"]:
        name = row["metric"]
        apart = [None, *(row["differences"][label] for label in labels[1:])]
        values = (summary["metrics"][name] for summary in summaries)
        cells = tuple(_cell(name, value, difference) for value, difference in zip(values, apart, strict=True))
        rows.append(Measure(name, found["definitions"][name], cells))
    return Measures(labels, tuple(rows)), found["comparable"]


def measures_of_study(study: Study) -> Measures:
    """The metrics of the variants of a study, the base first."""
    document = study.document
    titles = {row["name"]: row.get("title") or row["name"] for row in document["variants"]}
    order = sorted(titles, key=lambda name: name != document["base"])
    by_metric: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in document["comparison"]:
        by_metric.setdefault(row["metric"], {})[row["variant"]] = row
    rows = []
    for name, found in by_metric.items():
        definition = next(iter(found.values()))["definition"]
        rows.append(Measure(name, definition, tuple(_study_cell(name, found.get(variant)) for variant in order)))
    return Measures(tuple(titles[name] for name in order), tuple(rows))


def _study_cell(name: str, row: Mapping[str, Any] | None) -> Cell:
    if row is None:
        return _cell(name, {"value": None, "low": None, "high": None, "unit": ""})
    parts = {"value": row.get("difference"), "low": row.get("difference_low"), "high": row.get("difference_high")}
    return _cell(name, row, parts)


def _cell(name: str, row: Mapping[str, Any], apart: Mapping[str, Any] | None = None) -> Cell:
    unit, value, low, high = row["unit"], row["value"], row["low"], row["high"]
    text, interval = shown(name, unit, value), between(name, unit, low, high)
    if not apart or apart["value"] is None:
        return Cell(value, low, high, text, interval)
    better = BY_NAME[name].better if name in BY_NAME else row.get("better", "")
    return Cell(
        value, low, high, text, interval,
        difference=shown(name, unit, apart["value"], signed=True) if apart["value"] else SAME,
        apart=between(name, unit, apart["low"], apart["high"], signed=True),
        verdict=verdict(better, apart) if apart["value"] else "",
    )  # fmt: skip


def sentences_of_many(measures: Measures, *, comparable: bool) -> list[str]:
    """What the differences to the first replay say, in a sentence for each other one."""
    found = [] if comparable else ["These replays are of different traces or spans: differences compare more than policies."]
    for place, label in enumerate(measures.labels[1:], start=1):
        drawn = [(row.title, row.cells[place]) for row in measures.rows if row.name in (*SHARES, *SPANS)]
        told = _by_verdict(drawn) if any(cell.apart for _, cell in drawn) else _by_value(measures, place)
        found.append(f"{label}, compared with {measures.labels[0]}: {told}")
    return found


def _by_verdict(drawn: Sequence[tuple[str, Cell]]) -> str:
    """The metrics whose interval does not hold 0."""
    parts = []
    for word in ("better", "worse"):
        named = [f"{title} ({cell.text}, {cell.difference})" for title, cell in drawn if cell.verdict == word]
        parts += [f"{word}: {'; '.join(named)}."] if named else []
    return " ".join(parts) or "no difference that its interval tells from chance."


def _by_value(measures: Measures, place: int) -> str:
    """The first metrics of the page, where there are no intervals."""
    changed = [(row.title, row.cells[place]) for row in measures.cards if row.cells[place].difference not in ("", SAME)]
    named = "; ".join(f"{title} {cell.text} ({cell.difference})" for title, cell in changed)
    return f"{named or 'nothing differs'}. There are no intervals for so short a span: this may be chance."


def measure_figure(measures: Measures) -> Figure | None:
    """The main metrics of the first replays as marks with intervals."""
    chosen = {name: row for name in (*SHARES, *SPANS) if (row := measures.row(name)) is not None and _drawn(row)}
    shares, spans = ([name for name in names if name in chosen] for names in (SHARES, SPANS))
    if not shares or not spans:
        return None
    labels = measures.labels[: len(MARKS)]
    left = "" if len(labels) == len(measures.labels) else f" The first {len(labels)} of {len(measures.labels)} are drawn."
    step = 22 + 13 * len(labels)
    columns = [[chosen[name] for name in names] for names in (shares, spans)]
    return Figure(
        key="measures-drawn",
        title="The main metrics",
        caption="Marks are values, lines are intervals of 95 % (of replays of three days or more). First shares, of "
        f"which more is better but for lost work; then waits, of which less is better.{left}",
        alt="; ".join(f"{row.title}: {_told(labels, row)}" for row in chosen.values()) + ".",
        drawing=draw(
            "measures-drawn",
            lambda figure, size: _paint(figure, size, columns, len(labels)),
            height=60 + step * max(len(shares), len(spans)),
            narrow_height=110 + step * (len(shares) + len(spans)),
        ),
        table=table(
            ("metric", *(text for label in labels for text in (label, "interval"))),
            ((row.title, *(text for cell in row.cells[: len(labels)] for text in (cell.text, cell.interval or "\N{EN DASH}")))
             for row in chosen.values()),
        ),
        legend=tuple(Sign(role, label, look) for label, (_, role, look) in zip(labels, MARKS, strict=False)),
    )  # fmt: skip


def _drawn(row: Measure) -> bool:
    return any(cell.value is not None for cell in row.cells)


def _told(labels: Sequence[str], row: Measure) -> str:
    return ", ".join(f"{label} {cell.text}" for label, cell in zip(labels, row.cells, strict=False))


def _paint(figure: Any, size: Size, columns: Sequence[Sequence[Measure]], number: int) -> None:
    ratios = {"height_ratios": [len(rows) for rows in columns]} if size.narrow else {}
    pair = figure.subplots(2 if size.narrow else 1, 1 if size.narrow else 2, **ratios)
    for axes, rows, scale in zip(pair, columns, (100.0, 1 / 3600), strict=True):
        bare(axes)
        for place, row in enumerate(rows):
            for which, cell in enumerate(row.cells[:number]):
                _mark(axes, place + (which - (number - 1) / 2) * 0.62 / number, cell, scale, which)
            if number == 1:
                _write(axes, place, row.cells[0], scale)
        axes.set_yticks(range(len(rows)), [row.title for row in rows], color=light("ink"))
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_xlabel("%" if scale > 1 else "hours")
        axes.locator_params(axis="x", nbins=5)
    pair[0].set_xlim(-2, max(102, *(1.02 * value for value in pair[0].get_xlim())))
    pair[1].set_xlim(left=-0.02 * pair[1].get_xlim()[1])


def _mark(axes: Any, y: float, cell: Cell, scale: float, which: int) -> None:
    mark, role, _ = MARKS[which]
    if cell.value is None:
        return
    if cell.low is not None and cell.high is not None:
        axes.plot(
            [cell.low * scale, cell.high * scale], [y, y], color=light(role), linewidth=2.4, solid_capstyle="round", alpha=0.6
        )
    axes.plot([cell.value * scale], [y], marker=mark, markersize=7, color=light(role), markeredgecolor=light("paper"), zorder=3)


def _write(axes: Any, y: float, cell: Cell, scale: float) -> None:
    """The value itself, above its mark."""
    if cell.value is None:
        return
    axes.annotate(cell.text, (cell.value * scale, y), (0, 5), textcoords="offset points", ha="center", va="bottom", fontsize=10)
