"""What is read from the results of the first variant: what its traces say, which promises it broke, and whose work it lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from allocator.replay.summary import read_summary
from allocator.replay.tables import read_frames
from allocator.whatif.cells import cell_folder
from benchmarks.results.figures import Found

if TYPE_CHECKING:
    import pandas as pd

Frames: TypeAlias = "Mapping[str, pd.DataFrame]"


def with_details(answer: Found, folder: Path) -> Found:
    """The answer with `notes`, `broken` and `lost`, read from the folder of its scenario."""
    cells = _first_cells(answer, folder)
    broken, lost = Counter[str](), Counter[str]()
    for frames in map(read_frames, cells.values()):
        broken += _broken(frames)
        lost += _lost(frames)
    notes = {seed: "; ".join(read_summary(cell)["notes"]) for seed, cell in cells.items()}
    return {**answer, "notes": notes, "broken": dict(broken), "lost": dict(lost.most_common())}


def _first_cells(answer: Found, folder: Path) -> dict[int, Path]:
    """The folders of the first variant by seed; an edit would stand in the notes, and it has none."""
    name = answer["variants"][0]["name"]
    cells = (cell for cell in answer["cells"] if cell["variant"] == name)
    return {cell["seed"]: cell_folder(folder, cell["key"]) for cell in cells}


def _broken(frames: Frames) -> Counter[str]:
    """How many runs ended before their promise, by what ended them."""
    runs = frames["runs"]
    return Counter(runs.ended_by[runs.broken].astype(str))


def _lost(frames: Frames) -> Counter[str]:
    """GPU-seconds of lost work by class, told apart by whether it can resume, and those of restarts."""
    runs, jobs = frames["runs"], frames["jobs"]
    whose = {
        key: f"{name or 'work'} that can{'' if resumes else 'not'} resume"
        for key, name, resumes in zip(jobs.job, jobs.job_class, jobs.resumable, strict=True)
    }
    found = Counter({"restarts": int((runs.restart * runs.gpus).sum())})
    for key, lost in zip(runs.job, runs.lost * runs.gpus, strict=True):
        found[whose[key]] += int(lost)
    return found
