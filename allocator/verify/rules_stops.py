"""Rules about stops that are a choice: max_preemptions, licence, relocation, beneficiary, charged_first, minimal."""

from __future__ import annotations

from collections.abc import Iterator

from allocator.domain import StopReason
from allocator.entitlement.forced import UNFORCED
from allocator.entitlement.model import Forced
from allocator.topology import BoolArray, IntArray
from allocator.verify.after import used_by_runs
from allocator.verify.case import Case
from allocator.verify.verdict import Violation

REASON_OF_FORCED = {
    Forced.NODE_DOWN: StopReason.NODE_DOWN,
    Forced.DRAIN_DEADLINE: StopReason.DRAIN,
    Forced.DRAIN: StopReason.DRAIN,
    Forced.ORDER_LOST: StopReason.RELOCATE,
    Forced.RESERVED: StopReason.RESERVATION,
}
"""How a stop that is no choice is called."""


def _charged_stops(case: Case) -> BoolArray:
    """Stops of charged work that are a choice."""
    return case.after.voluntary & case.ent.works.charged


def _has_licence(case: Case, row: int) -> bool:
    """Whether the leaf holds more than its entitlement in the pool of the run, or the policy asks for no licence."""
    market, works = case.ent.market, case.ent.works
    place = works.leaf[row], works.run_pool[row]
    return case.ent.snapshot.policy.preempt_under_entitlement or bool(1000 * market.held[place] > market.entitled[place])


def max_preemptions(case: Case) -> Iterator[Violation]:
    """Ensures that one instant sees no more stops of charged work than the policy allows."""
    most, now = case.ent.snapshot.policy.max_preemptions, case.ent.snapshot.now
    stops = _charged_stops(case)
    if most is None or not stops.any():
        return
    earlier = sum(
        stop is not None and stop.at == now and stop.charged and stop.begun
        for stop in (work.stopped for work in case.ent.snapshot.workloads)
    )
    count = int(stops.sum()) + earlier
    if count > most:
        yield Violation("max_preemptions", case.names(stops), f"{count} stops of charged work, the policy allows {most}")


def licence(case: Case) -> Iterator[Violation]:
    """Ensures that charged work is stopped for the sake of shares only where its leaf holds more than its entitlement;
    neither express starts nor moves need a licence."""
    rows = (_charged_stops(case) & ~case.after.started).nonzero()[0].tolist()
    if not rows:
        return
    returning = case.returning(case.after.used_kept + case.after.used_express)
    for row in rows:
        if returning[row] and not _has_licence(case, row):
            market, place = case.ent.market, (case.ent.works.leaf[row], case.ent.works.run_pool[row])
            detail = (
                f"is stopped, but {case.work(row).allocation} holds {market.held[place]} GPUs "
                f"and is entitled to {market.entitled[place] / 1000:.3f}; no express start needs its place"
            )
            yield Violation("licence", case.id(row), detail)


def relocation(case: Case) -> Iterator[Violation]:
    """Ensures that only work that may move is stopped by choice and started again, in its pool, and as charged as it was."""
    works, after = case.ent.works, case.after
    for row in (after.voluntary & after.started).nonzero()[0].tolist():
        if not works.movable[row]:
            yield Violation("relocation", case.id(row), "is stopped and started again, but may not move")
        if after.pool[row] != works.run_pool[row]:
            yield Violation("relocation", case.id(row), f"moves out of pool {case.ent.layout.pools[works.run_pool[row]]}")
        if works.charged[row] and not after.charged[row]:
            yield Violation("relocation", case.id(row), "is charged, and moves without a new promise")


def beneficiary(case: Case) -> Iterator[Violation]:
    """Ensures that every stop is for a start in the same decision on one of its nodes or under the same full gpu_limit, or is
    forced by a drain or dead node, and says so."""
    forced, index = case.ent.works.forced, case.ent.columns.index
    held = case.after.held.sum(axis=1)
    for row, stop in case.rows.stops.items():
        if forced[row] != UNFORCED:
            yield from _forced_stop(case, row)
            continue
        if not stop.beneficiaries:
            yield Violation("beneficiary", case.id(row), "is stopped for nobody")
        nodes = case.nodes_of(row)
        shared = case.limited(row, held)
        for name in stop.beneficiaries:
            if name == case.id(row):
                yield Violation("beneficiary", case.id(row), "is stopped for itself")
            start = case.rows.placements.get(index.get(name, -1))
            if start is None:
                yield Violation("beneficiary", case.id(row), f"is stopped for {name}, which does not start")
            elif nodes.isdisjoint(start) and shared.isdisjoint(case.ent.tree.path(int(case.ent.works.leaf[index[name]]))):
                yield Violation("beneficiary", case.id(row), f"is stopped for {name}, which starts on none of its nodes")
        if len(set(stop.beneficiaries)) < len(stop.beneficiaries):
            yield Violation("beneficiary", case.id(row), "names a beneficiary twice")
        needs_express = bool(case.ent.works.charged[row]) and not _has_licence(case, row)
        reason = StopReason.EXPRESS if needs_express else StopReason.SHARE
        reason = StopReason.RELOCATE if case.after.started[row] else reason
        if stop.reason is not reason:
            yield Violation("beneficiary", case.id(row), f"is stopped with reason {stop.reason}, not {reason}")


def _forced_stop(case: Case, row: int) -> Iterator[Violation]:
    """Ensures that a stop which is no choice names its cause and no beneficiaries."""
    stop = case.rows.stops[row]
    reason = REASON_OF_FORCED[Forced(int(case.ent.works.forced[row]))]
    if stop.reason is not reason:
        yield Violation("beneficiary", case.id(row), f"is stopped with reason {stop.reason}, not {reason}")
    gangs = tuple(case.id(one.row) for one in case.ent.reserved if row in one.victims)
    if stop.beneficiaries != gangs:
        detail = f"must stop in any case{' for ' if gangs else ''}{', '.join(gangs)}, not for {', '.join(stop.beneficiaries)}"
        yield Violation("beneficiary", case.id(row), detail)


def _beside_charged(case: Case, firm: BoolArray) -> IntArray:
    """What charged work and work that nobody may stop use afterwards, shape (3, num_nodes)."""
    after = case.after
    kept = used_by_runs(case.ent, after.before, (after.kept & after.charged) | firm)
    return kept + after.new.on_nodes(after.started & after.charged, len(case.ent.layout.names))


def charged_first(case: Case) -> Iterator[Violation]:
    """Ensures that charged work is not stopped where stopping uncharged work would do."""
    stops = _charged_stops(case).nonzero()[0].tolist()
    if not stops:
        return
    firm = case.after.kept & ~case.after.charged & ~case.ent.works.stoppable
    held = case.after.held_charged.sum(axis=1) + case.held_by(firm)
    returning = case.returning(_beside_charged(case, firm))
    for row in stops:
        if returning[row] and not case.limited(row, held):
            yield Violation("charged_first", case.id(row), "is stopped, but would fit where it ran beside all charged work")


def minimal(case: Case) -> Iterator[Violation]:
    """Ensures that no stop could be taken back with all the rest unchanged."""
    rows = case.after.voluntary.nonzero()[0].tolist()
    if not rows:
        return
    returning, held = case.returning(case.after.used), case.after.held.sum(axis=1)
    for row in rows:
        if returning[row] and not case.limited(row, held):
            yield Violation("minimal", case.id(row), "is stopped, but would still fit where it ran")
