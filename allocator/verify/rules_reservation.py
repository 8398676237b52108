"""The rule `reservation`: promises leave every reservation its nodes in time, and whoever is due starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from allocator.domain import Reservation
from allocator.entitlement.forced import UNFORCED
from allocator.entitlement.reserved import Reserved
from allocator.topology import IntArray
from allocator.verify.case import Case
from allocator.verify.verdict import Violation


def reservation(case: Case) -> Iterator[Violation]:
    """Ensures that the decision names exactly the reservations that stand, that promises leave each its number of nodes by its
    start, and that gangs that are due start."""
    yield from _named(case)
    yield from _due(case)
    yield from _too_long(case)
    yield from _short(case)


def _waits(case: Case) -> list[Reserved]:
    return [one for one in case.ent.reserved if not case.after.started[one.row]]


def _named(case: Case) -> Iterator[Violation]:
    """Ensures that the rows are those that follow from the snapshot, less the gangs that start."""
    pools = case.ent.layout.pools
    due = Counter(
        Reservation(
            workload=case.id(one.row), pool=pools[one.pool], domain=one.domain, nodes=one.nodes, start=one.start,
            eligible_since=one.eligible_since, bound=one.bound, waits_for=one.waits_for,
        )
        for one in _waits(case)
    )  # fmt: skip
    said = Counter(case.rows.reservations)
    for row in due - said:
        yield Violation("reservation", row.workload, f"is entitled to the reservation {row}, which is not there")
    for row in said - due:
        yield Violation("reservation", row.workload, f"has a reservation that does not follow from the snapshot: {row}")


def _due(case: Case) -> Iterator[Violation]:
    """Ensures that gangs whose reservation has come start, charged, on the nodes that are cheapest to clear."""
    for one in case.ent.reserved:
        if not one.due:
            continue
        start = case.rows.starts.get(one.row)
        if start is None or not start.charged or case.rows.placements[one.row] != dict(one.placement):
            nodes = ", ".join(case.node(node) for node in sorted(one.placement))
            yield Violation("reservation", case.id(one.row), f"is due, but does not start charged on {nodes}")


def _too_long(case: Case) -> Iterator[Violation]:
    """Ensures that new promises on nodes that a reservation needs end before its start."""
    after, ent = case.after, case.ent
    due = {one.row for one in ent.reserved if one.due}
    for row in (after.charged & (after.started | after.promoted)).nonzero()[0].tolist():
        if row in due:
            continue
        limit = np.minimum(ent.own_limit.get(row, ent.layout.promise_by), ent.layout.deadline)
        late = [
            node for node in after.placement[row] if limit[node] < min(case.promise_end(row), int(ent.layout.deadline[node]))
        ]
        if late:
            until, where = case.promise_end(row), case.node(late[0])
            detail = f"is promised {where} until {until}; a reservation needs it from {limit[late[0]]} on"
            yield Violation("reservation", case.id(row), detail)


def _short(case: Case) -> Iterator[Violation]:
    """Ensures that each reservation finds its number of nodes by its start, counted anew from all promises."""
    waiting, now = _waits(case), case.ent.snapshot.now
    release = _releases(case) if waiting else np.zeros(0, dtype=np.int64)
    for one in waiting:
        start = max(one.start, now)
        if start <= now:
            continue
        in_time = one.usable & (release <= start) & (case.ent.layout.deadline >= start + one.promise)
        others = [other for other in waiting if other is not one and other.overlaps(one) and other.holds_at(start, now)]
        free = int(in_time.sum()) - sum(other.nodes for other in others)
        if free < one.nodes:
            detail = f"is kept {one.nodes} nodes from {start} on, but promises leave it {free}"
            yield Violation("reservation", case.id(one.row), detail)


def _releases(case: Case) -> IntArray:
    """The instant from which each node is free of promises after the decision, shape (num_nodes,)."""
    after, works, snapshot = case.after, case.ent.works, case.ent.snapshot
    release = np.zeros(len(case.ent.layout.names), dtype=np.int64)
    for row, placement in after.placement.items():
        run = snapshot.workloads[row].run
        until = int(works.protected_until[row]) if works.protected[row] and after.kept[row] else 0
        if after.charged[row] and (after.started[row] or after.promoted[row]):
            until = case.promise_end(row)
        elif after.kept[row] and works.terminating[row] and run is not None and run.terminating_until is not None:
            until = max(run.terminating_until, 0) if run.terminating_until > snapshot.now else snapshot.now + 1
        elif after.kept[row] and works.ordered[row] and works.forced[row] == UNFORCED and run is not None:
            until = max(until, (run.start_time or 0) + 1)
        nodes = list(placement)
        release[nodes] = np.maximum(release[nodes], until)
    return release
