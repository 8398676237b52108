"""Rules about work that waits: work_conservation, unallocated_last."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from allocator.topology import IntArray
from allocator.verify.case import Case
from allocator.verify.room import Opening, could_start, could_start_over_unallocated, openings, that_fit
from allocator.verify.verdict import Violation


def work_conservation(case: Case) -> Iterator[Violation]:
    """Ensures that no workload waits that could start on free GPUs with all the rest unchanged."""
    rows = _waiting(case)
    for opening in openings(case.room, that_fit(case.room, rows)) if len(rows) else ():
        detail = f"waits, but could start ({opening.mode.value}) on {_nodes(case, opening)}, which are free"
        yield Violation("work_conservation", case.id(opening.row), detail)


def unallocated_last(case: Case) -> Iterator[Violation]:
    """Ensures that no entitled workload waits that could start on free GPUs and those of unallocated work with all the rest
    unchanged, unless that would idle more GPUs than it starts."""
    rows = _waiting(case)
    rows = rows[case.ent.works.entitled[rows]]
    for opening in openings(case.room, rows, could_start_over_unallocated) if len(rows) else ():
        if opening.exempt or isinstance(could_start(case.room, opening.row), Opening):
            continue
        stops = case.names(np.array(opening.stops, dtype=np.int64)) or "nothing"
        detail = f"is entitled and waits, but could start on {_nodes(case, opening)} if {stops} gave way"
        yield Violation("unallocated_last", case.id(opening.row), detail)


def _waiting(case: Case) -> IntArray:
    """Candidates that do not start, shape (number of them,)."""
    rows: IntArray = (case.ent.works.candidate & ~case.after.running).nonzero()[0]
    return rows


def _nodes(case: Case, opening: Opening, most: int = 4) -> str:
    names = [case.node(node) for node in list(opening.placement)[:most]]
    more = len(opening.placement) - most
    return ", ".join(names) + (f" and {more} more nodes" if more > 0 else "")
