"""Who gains and who loses in a what-if study, as tables: by project, and by pool."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from allocator.pages.figure import Table, table
from allocator.whatif.gains import gains_table, has_speed, pools_table


@dataclass(frozen=True, slots=True)
class Gains:
    """One variant, compared with the baseline. `pools` is None for studies of an earlier version."""

    key: str
    title: str
    projects: Table
    pools: Table | None


def gains_of(document: Mapping[str, Any]) -> Iterator[Gains]:
    """The tables of every variant but the baseline; none where the study does not tell of projects."""
    base, projects, pools = document["base"], _rows(document, "projects"), _rows(document, "pools")
    if not projects or not any(row["metric"] == "delivered" for row in projects):
        return
    fast = {row["name"] for row in document["variants"] if has_speed(row["edits"])}
    others = [row for row in document["variants"] if row["name"] != base]
    for number, variant in enumerate(others, start=1):
        name = variant["name"]
        yield Gains(
            key=f"gains{number}",
            title=variant.get("title") or name,
            projects=_table(gains_table(projects, name, base, faster=bool({name, base} & fast)), "projects.csv"),
            pools=_table(pools_table(pools, name, base), "pools.csv") if pools else None,
        )


def _rows(document: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    found: Sequence[Mapping[str, Any]] = document.get(name, ())
    return found


def _table(cells: Sequence[tuple[str, ...]], source: str) -> Table:
    head, *rows = cells
    return table(head, rows, source)
