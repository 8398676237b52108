"""Known bounds of generated instances: a CSV under version control, written by the command and checked by tests."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from allocator.bench.instances import Known
from allocator.bench.runs import Run, best_bounds
from allocator.domain import Issue, SnapshotError

FIELDS = ("instance", "seed", "gpus", "digest", "lower_bound", "upper_bound", "engine", "budget", "ortools", "highs", "version")
"""Columns; bounds are in GPU-seconds."""


def read_record(path: Path) -> list[Known]:
    """All rows of a record.

    Raises
    ------
    SnapshotError
        If the file cannot be read or understood.
    """
    try:
        return [_known(row) for row in _raw_rows(path)]
    except (OSError, KeyError, ValueError) as error:
        remedy = f"give a CSV with the columns {', '.join(FIELDS)}"
        raise SnapshotError([Issue(path=str(path), problem=f"{type(error).__name__}: {error}", remedy=remedy)]) from error


def write_record(path: Path, runs: Sequence[Run], machine: Mapping[str, str]) -> None:
    """Replace the rows of the instances that ran unless they say less, and keep the others, in order.

    Instances without a bound of these runs, from files, and answers that break a rule are left out. A row is kept where it is
    of the same snapshot, tighter, and not contradicted.
    """
    kept: list[dict[str, object]] = [dict(row) for row in _raw_rows(path)] if path.exists() else []
    known = {(row.instance, row.seed): row for row in read_record(path)} if path.exists() else {}
    out = io.StringIO()
    writer = csv.DictWriter(out, FIELDS, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    rows = {(str(row["instance"]), int(str(row["seed"]))): row for row in kept}
    for row in _rows(runs, machine):
        new = _known({name: str(value) for name, value in row.items()})
        if not _says_more(known.get((new.instance, new.seed)), new):
            rows[new.instance, new.seed] = row
    writer.writerows(rows[key] for key in sorted(rows))
    path.write_text(out.getvalue(), encoding="utf-8")


def _says_more(old: Known | None, new: Known) -> bool:
    """Whether what is recorded is of the same snapshot, lies inside the new bounds, and is tighter."""
    if old is None or old.digest != new.digest:
        return False
    inside = new.lower_bound <= old.lower_bound and old.upper_bound <= new.upper_bound
    return inside and (old.lower_bound, old.upper_bound) != (new.lower_bound, new.upper_bound)


def _rows(runs: Iterable[Run], machine: Mapping[str, str]) -> list[dict[str, object]]:
    known = [run for run in runs if run.case.instance.seed is not None and not run.violations]
    bounds = best_bounds(known, with_known=False)
    best: dict[tuple[str, int], Run] = {}
    for run in known:
        if run.key in bounds and (run.key not in best or run.objective < best[run.key].objective):
            best[run.key] = run
    return [
        {
            **machine,
            "instance": run.case.instance.name,
            "seed": run.case.instance.seed,
            "gpus": run.facts.gpus,
            "digest": run.digest,
            "lower_bound": bounds[key] / 1000,
            "upper_bound": run.objective / 1000,
            "engine": run.case.engine,
            "budget": run.case.budget,
        }
        for key, run in best.items()
    ]


def _known(row: Mapping[str, str]) -> Known:
    lower, upper = (round(float(row[name]) * 1000) for name in ("lower_bound", "upper_bound"))
    seed = int(row["seed"])
    return Known(instance=row["instance"], seed=seed, digest=row["digest"], lower_bound=lower, upper_bound=upper)


def _raw_rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))
