"""What is read from the results of the first variant: what its traces say of themselves, and which promises it broke."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from allocator.replay.summary import read_summary
from allocator.replay.tables import read_frames
from allocator.whatif.cells import cell_folder
from benchmarks.results.figures import Found


def with_details(answer: Found, folder: Path) -> Found:
    """The answer with `notes` and `broken`, read from the folder of its scenario."""
    broken = sum((_broken(cell) for _, cell in _first_cells(answer, folder)), Counter[str]())
    notes = {seed: "; ".join(read_summary(cell)["notes"]) for seed, cell in _first_cells(answer, folder)}
    return {**answer, "notes": notes, "broken": dict(sorted(broken.items()))}


def _first_cells(answer: Found, folder: Path) -> Iterator[tuple[int, Path]]:
    """Seeds and folders of the first variant; an edit would stand in the notes, and it has none."""
    name = answer["variants"][0]["name"]
    cells = (cell for cell in answer["cells"] if cell["variant"] == name)
    return ((cell["seed"], cell_folder(folder, cell["key"])) for cell in cells)


def _broken(cell: Path) -> Counter[str]:
    """How many runs ended before their promise, by what ended them."""
    runs = read_frames(cell)["runs"]
    return Counter(runs.ended_by[runs.broken].astype(str))
