"""What a report is made from: folders with the results of replays, and folders of what-if studies."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allocator.domain import printable
from allocator.pages.palette import LETTERS, NUM_NAMED, REST
from allocator.replay.errors import ReplayError
from allocator.replay.report import labels_of, read_results
from allocator.replay.summary import SUMMARY, read_timing

if TYPE_CHECKING:
    import pandas as pd

WHATIF = "whatif.json"
MOST_RUNS = 4
"""So many replays have pictures; further ones stand in the comparison only, or the page would become too large."""


@dataclass(frozen=True, slots=True)
class Names:
    """The allocations with a letter: of all replays on the page the same, so that pictures can be compared."""

    letters: Mapping[str, str]

    def letter(self, allocation: str) -> str:
        """Its own letter, or that of all others together."""
        return self.letters.get(allocation, REST)

    def label(self, letter: str) -> str:
        """Letter and name."""
        return f"{letter} {self.name(letter)}"

    def name(self, letter: str) -> str:
        """The allocation that a letter stands for."""
        return next((name for name, own in self.letters.items() if own == letter), "all others")


@dataclass(frozen=True, slots=True)
class Run:
    """One replay: `key` names it in the page, `label` to people. `timing` is None where the file is not there."""

    key: str
    label: str
    folder: Path
    summary: Mapping[str, Any]
    timing: Mapping[str, Any] | None
    frames: Mapping[str, pd.DataFrame]
    names: Names

    @property
    def start(self) -> int:
        """The first instant, in seconds since the epoch."""
        return int(self.summary["start"])

    @property
    def end(self) -> int:
        """The instant at which it ends."""
        return int(self.summary["end"])


@dataclass(frozen=True, slots=True)
class Study:
    """A what-if study: its document, and the folder of a cell of each variant (that of the first seed)."""

    document: Mapping[str, Any]
    cells: Sequence[tuple[str, Path]]


def is_study(folder: Path) -> bool:
    """Whether a folder holds a what-if study."""
    return (folder / WHATIF).is_file()


def read_study(folder: Path) -> Study:
    """Read a what-if study.

    Raises
    ------
    ReplayError
        If its document is not as agreed.
    """
    path = folder / WHATIF
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        first = {cell["variant"]: cell["key"] for cell in reversed(document["cells"])}
        cells = [(row["name"], folder / "cells" / first[row["name"]]) for row in document["variants"] if row["name"] in first]
        missing = [key for key in ("name", "base", "seeds", "comparison", "sentences") if key not in document]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ReplayError(f"{path} is no what-if study ({error!r}): run `allocator whatif` again") from error
    missing += [] if cells else ["cells"]
    if missing:
        raise ReplayError(f"{path} lacks {', '.join(missing)}: run `allocator whatif` again")
    return Study(document, cells)


def read_runs(folders: Sequence[Path], labels: Sequence[str] | None = None) -> list[Run]:
    """Read the replays that get pictures: the first ones.

    Raises
    ------
    ReplayError
        If a folder holds no results.
    """
    chosen = folders[:MOST_RUNS]
    found = [_read(folder) for folder in chosen]
    names = _names([frames for _, frames in found])
    called = labels or labels_of([folder.name or str(folder) for folder in folders])
    return [
        Run(f"run{place}", label, folder, summary, read_timing(folder), frames, names)
        for place, (label, folder, (summary, frames)) in enumerate(zip(called, chosen, found, strict=False), start=1)
    ]


def rows_of(table: pd.DataFrame) -> Iterator[Any]:
    """The rows of a table, with its columns as attributes."""
    return iter(table.itertuples())


def _read(folder: Path) -> tuple[Mapping[str, Any], Mapping[str, pd.DataFrame]]:
    summary, frames, _ = read_results(folder)
    if missing := [key for key in ("definitions", "metrics", "waits", "notes") if key not in summary]:
        raise ReplayError(f"{folder / SUMMARY} lacks {', '.join(missing)}: replay it again")
    return _plain(summary), {name: frame.apply(_plain_column) for name, frame in frames.items()}


def _plain(value: Any) -> Any:
    """A document whose texts can be drawn: names hold what users wrote."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {printable(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _plain_column(column: pd.Series[Any]) -> pd.Series[Any]:
    """Likewise a column of a table; the same name stays the same everywhere."""
    from pandas.api.types import is_string_dtype

    texts = column.unique() if is_string_dtype(column) else ()
    odd = {text: printable(text) for text in texts if isinstance(text, str) and not text.isprintable()}
    return column.replace(odd) if odd else column


def _names(tables: Sequence[Mapping[str, pd.DataFrame]]) -> Names:
    """Letters for the projects to whom most was owed, or who held most, in the order of their names."""
    weight: dict[str, int] = {}
    for frames in tables:
        rows = frames["allocations"]
        for row in rows_of(rows[rows.project & (rows.pool == "")]):
            amount = max(int(row.owed), int(row.charged) + int(row.uncharged))
            weight[row.allocation] = weight.get(row.allocation, 0) + amount
    largest = sorted(weight, key=lambda name: (-weight[name], name))[:NUM_NAMED]
    return Names(dict(zip(sorted(largest), LETTERS, strict=False)))
