"""The last pass: takes back needless stops and starts what fits, so that the rules about single changes hold.

`charged_first` and `minimal` are met by taking back, `funding` by charging, `work_conservation` and `unallocated_last` by
starting. Each step only ever does what the rule asks; the verifier has the last word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import numpy as np

from allocator.engine.plan import Plan, States
from allocator.entitlement import Entitlement
from allocator.topology import IntArray
from allocator.verify.after import AfterState, Placed, placement_arrays
from allocator.verify.room import (
    Mode,
    Opening,
    Refusal,
    Room,
    could_start,
    could_start_over_unallocated,
    one_of_each_kind,
    that_fit,
)

Could = Callable[[Room, int], Opening | Refusal]
"""How a workload could start, or what forbids it."""

ROUNDS = 4
"""A round may open room for the next; more than two have not been seen."""


def last_pass(ent: Entitlement, plan: Plan, states: States | None = None) -> Plan:
    """The plan with needless stops taken back, and everything promoted and started that the rules want.

    `states` are those of the call so far.
    """
    states = States(ent) if states is None else states
    for _ in range(ROUNDS):
        mended = _start_what_fits(states, _charge(states, _take_back(states, plan)))
        if mended == plan:
            break
        plan = mended
    return plan


def _take_back(states: States, plan: Plan) -> Plan:
    """Keep whoever would fit beside all that runs but its own restart (`minimal`), charged and dear work first."""
    if not plan.stops:
        return plan
    ent, after = states.ent, states.after(plan)
    free, held, stops, starts = after.free.copy(), after.held.sum(axis=1), set(plan.stops), dict(plan.starts)
    for row in sorted(
        plan.stops - _in_the_way(after), key=lambda row: (not ent.works.charged[row], -int(ent.works.lost_cost[row]), row)
    ):
        own = after.before.of(row)
        nodes, use = after.before.node[own], after.before.use[:, own]
        path = list(ent.tree.path(int(ent.works.leaf[row])))
        again, moved = placement_arrays(after.shapes[:, row], starts[row].placement if row in starts else {})
        limits, gpus = ent.tree.gpu_limit[path], 0 if row in starts else ent.works.gpus[row]
        free[:, again] += moved
        if np.all(free[:, nodes] >= use) and not (gpus and np.any((limits >= 0) & (held[path] + gpus > limits))):
            free[:, nodes] -= use
            held[path] += gpus
            stops.discard(row)
            starts.pop(row, None)
        else:
            free[:, again] -= moved
    return Plan(starts, frozenset(stops), plan.promotions)


def _in_the_way(after: AfterState) -> set[int]:
    """Runs that would not fit where they were even if all restarts of stopped work were put aside."""
    before, again = after.before, after.new.on_nodes(after.stopped & after.started, after.used.shape[1])
    return set(before.row[((after.free + again)[:, before.node] < before.use).any(axis=0)].tolist())


def _charge(states: States, plan: Plan) -> Plan:
    """Charge what runs on or starts uncharged although it is funded (`funding`), in order of submission.

    Engines promote what they can; but a move that is taken back makes no new promise, and its funds are free again. A start on
    nodes that drain before the promise ends waits, and may start elsewhere.
    """
    ent = states.ent
    works, starts, promotions = ent.works, dict(plan.starts), set(plan.promotions)
    rows = [row for row, start in starts.items() if not start.charged and works.promise[row] > 0]
    rows += [row for row in works.promotable.nonzero()[0].tolist() if row not in plan.stops and row not in promotions]
    if not rows:
        return plan
    room = Room(states.after(plan))
    for row in sorted(rows, key=lambda row: (ent.snapshot.workloads[row].submit_time, row)):
        nodes = list(room.placement[row])
        if not room.funded(row, int(ent.layout.pool[nodes[0]])):
            continue
        until = ent.snapshot.now + int(works.promise[row])
        if row not in starts and np.all(ent.layout.promise_by[nodes] >= until):
            room.promote(row)
            promotions.add(row)
        elif row in starts and np.all(ent.may_start_on(row, until)[nodes]):
            room.promote(row)
            starts[row] = replace(starts[row], charged=True)
        elif row in starts:
            room.stop(row, refund=True)
            del starts[row]
    return Plan(starts, plan.stops, frozenset(promotions))


def _start_what_fits(states: States, plan: Plan) -> Plan:
    ent, starts, stops = states.ent, dict(plan.starts), set(plan.stops)
    after = states.after(plan)
    if not np.any(ent.works.candidate & ~after.running):
        return Plan(dict(sorted(starts.items())), plan.stops, plan.promotions)
    room = Room(after)
    for found in _one_after_another(room, _by_claim(ent, that_fit(room, _waiting(ent, room))), could_start):
        _enter(room, starts, found)
    rows = _waiting(ent, room)
    for found in _one_after_another(room, _by_claim(ent, rows[ent.works.entitled[rows]]), could_start_over_unallocated):
        _clear(room, starts, stops, found.stops)
        _enter(room, starts, found)
    return Plan(dict(sorted(starts.items())), frozenset(stops), plan.promotions)


def _one_after_another(room: Room, rows: IntArray, could: Could) -> Iterator[Opening]:
    """What opens for one row after another, while the caller carries out what it is given."""
    start = 0
    while (step := _first_opening(room, rows[start:], could)) is not None:
        start += step[0] + 1
        yield step[1]


def _first_opening(room: Room, rows: IntArray, could: Could) -> tuple[int, Opening] | None:
    """The first of the rows that need not wait: its position and how it starts."""
    for at in one_of_each_kind(room, rows).tolist():
        found = could(room, int(rows[at]))
        if isinstance(found, Opening) and not found.exempt:
            return at, found
    return None


def _waiting(ent: Entitlement, room: Room) -> IntArray:
    """Candidates that wait, ascending."""
    waits = ent.works.candidate.copy()
    waits[list(room.placement)] = False
    return waits.nonzero()[0]


def _by_claim(ent: Entitlement, rows: IntArray) -> IntArray:
    """The rows in the order of their claims: express, then entitled, then by what waiting costs per GPU, then as they are."""
    works = ent.works
    rate = works.order_cost[rows] / np.maximum(works.gpus[rows], 1)
    order = np.lexsort((rows, -rate, ~works.entitled[rows], ~works.express[rows]))
    return np.asarray(rows[order])


def _enter(room: Room, starts: dict[int, Placed], found: Opening) -> None:
    room.start(found.row, found.placement, found.mode)
    placement = dict(sorted(found.placement.items()))
    starts[found.row] = Placed(placement, charged=found.mode is not Mode.UNCHARGED, express=found.mode is Mode.EXPRESS)


def _clear(room: Room, starts: dict[int, Placed], stops: set[int], rows: Iterable[int]) -> None:
    """Stop unallocated work, or leave it waiting if it was to start in this very plan."""
    for row in rows:
        room.stop(row, refund=row in starts)
        if starts.pop(row, None) is None:
            stops.add(row)
