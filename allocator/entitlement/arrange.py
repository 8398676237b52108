"""What earlier decisions and long promises bind: reservations kept and new, leases renewed, and the funds that both take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from allocator.domain import Lapse, Reservation
from allocator.entitlement.due import start_due
from allocator.entitlement.facts import Facts
from allocator.entitlement.forced import UNFORCED
from allocator.entitlement.funding import promise_costs
from allocator.entitlement.lease import open_book
from allocator.entitlement.places import NO_LEAF
from allocator.entitlement.releases import read_releases
from allocator.entitlement.reserve import Planner, domain_mask, in_domain
from allocator.entitlement.reserved import Reserved
from allocator.entitlement.waterfill import MILLI
from allocator.topology import (
    GPUS,
    IntArray,
    can_place,
    shape_of,
    suitable,
    tasks_per_node,
)


@dataclass(frozen=True, slots=True, eq=False)
class Arrangement:
    """Reservations in the order of their claim; renewals (row -> until); lapsing leases.

    `available` is what is left for new promises, by vertex and pool. `limit` is the instant by which promises on each node
    must have ended for the sake of reservations, shape (num_nodes,); `own_limit` the same for reserved gangs, by row.
    """

    reserved: tuple[Reserved, ...]
    renewed: Mapping[int, int]
    lapsing: tuple[Lapse, ...]
    available: IntArray
    limit: IntArray
    own_limit: Mapping[int, IntArray]


def arrange(facts: Facts) -> Arrangement:
    """Keep the reservations of earlier decisions, renew leases, then reserve for gangs that promises keep out."""
    arranger = _Arranger(facts)
    arranger.keep_all()
    book = open_book(facts, arranger.available, arranger.planner)
    renewed = book.renew()
    arranger.reserve_all()
    arranger.planner.advance(facts.snapshot.workloads)
    return arranger.result(renewed, book.lapsing(renewed))


class _Arranger:
    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        snapshot, layout, contract = facts.snapshot, facts.layout, facts.contract
        self.now, self.policy = snapshot.now, snapshot.policy
        self.available: IntArray = facts.market.available.copy()
        releases = read_releases(layout, contract, self.policy.notice, self.now)
        self.planner = Planner(layout, self.now, releases, self.policy.protection_cap)
        self.begun = _just_started(facts)
        held = {one.workload for one in snapshot.reservations}
        self.ahead = {row for row in self.begun if snapshot.workloads[row].id in held}
        self.planner.found += [one for row, one in self.begun.items() if row not in self.ahead]
        self.claims = self._claims()
        self.lost: dict[int, str] = {}
        self.kept: set[int] = set()
        self._firm: IntArray | None = None

    def _claims(self) -> list[int]:
        """Entitled large gangs that waited just before now, in the order of their claim."""
        contract, since = self.facts.contract, self.facts.since.copy()
        ahead = np.zeros(len(since), dtype=np.bool_)
        for row in self.ahead:
            ahead[row], since[row] = True, self.facts.snapshot.workloads[row].entitled_since or 0
        waits = self.facts.gang & contract.waiting_before & ~contract.running & self.facts.placeable & (since > 0)
        rows = (waits | ahead).nonzero()[0]
        order: list[int] = rows[np.lexsort((rows, contract.submit[rows], since[rows]))].tolist()
        return order

    def keep_all(self) -> None:
        """Keep what earlier decisions reserved, as far as enough nodes come free in time."""
        by_work = {held.workload: held for held in self.facts.snapshot.reservations}
        works = self.facts.snapshot.workloads
        for row in self.claims:
            held = by_work.get(works[row].id)
            if held is not None and row in self.ahead:
                self._keep_at_rest(row, held)
                continue
            if held is None or not self._hold_funds(row):
                continue
            self.kept.add(row)
            one = self._as_before(row, held)
            if one is None or not self.planner.keep(one):
                self.lost[row] = (
                    f"its {held.nodes} nodes of {'/'.join(held.domain) or held.pool} do not come free by {held.start}"
                )

    def _keep_at_rest(self, row: int, held: Reservation) -> None:
        """What a gang was kept that has started at this very instant stays so until time passes: else a decision that has been
        carried out would be followed by another one.

        Where that cannot be, it was remade in that decision, nobody knows any more where: nothing is promised in its pool.
        """
        one, begun, in_place = self._as_before(row, held), self.begun[row], self.planner.in_place
        if one is not None and not (begun.usable & ~one.usable).any():
            in_place.add(row)
        if one is None or not self.planner.keep(one):
            in_place.discard(row)
            self.planner.found.append(begun)
            self.planner.at_rest |= self.facts.layout.pool == begun.pool

    def _as_before(self, row: int, held: Reservation) -> Reserved | None:
        layout, work = self.facts.layout, self.facts.snapshot.workloads[row]
        draft = self._draft(row)
        if held.pool != layout.pools[draft.pool] or domain_mask(layout, draft.pool, held.domain) is None:
            return None
        one = in_domain(layout, draft, work, held.domain)
        if one is None:
            return None
        nodes = held.nodes if one.segmented else one.nodes
        return replace(one, nodes=nodes, start=held.start, eligible_since=held.eligible_since, bound=held.bound)

    def _draft(self, row: int) -> Reserved:
        nowhere = np.zeros(len(self.facts.layout.names), dtype=bool)
        pool, since = int(self.facts.places.home[row]), int(self.facts.since[row])
        segmented = self.facts.snapshot.workloads[row].topology.segment is not None
        promise = self.begun[row].promise if row in self.begun else int(self.facts.promise[row])
        return Reserved(row, pool, (), nowhere, 0, self.now, promise, segmented, since)

    def _hold_funds(self, row: int) -> bool:
        """Take the cost of its promise off what is left for others; False where that is too little."""
        leaf, pool = int(self.facts.places.leaf[row]), int(self.facts.places.home[row])
        cost = int(promise_costs(self.facts.contract, self.facts.promise)[row])
        path = self.facts.tree.funding_path(leaf)
        if any(cost > self.available[vertex, pool] for vertex in path) or self._over_limit(row):
            return False
        for vertex in path:
            self.available[vertex, pool] -= cost
        return True

    def _over_limit(self, row: int) -> bool:
        """Whether some vertex above could not hold the gang beside what is charged there now: then no promise keeps it out."""
        tree, contract, places = self.facts.tree, self.facts.contract, self.facts.places
        path = [vertex for vertex in tree.path(int(places.leaf[row])) if tree.gpu_limit[vertex] >= 0]
        if not path:
            return False
        held = np.zeros(len(tree), dtype=np.int64)
        for other in (contract.held_before & contract.charged_before & (places.leaf != NO_LEAF)).nonzero()[0].tolist():
            held[list(tree.path(int(places.leaf[other])))] += contract.held_gpus[other]
        for other in (*self.kept, row):
            held[list(tree.path(int(places.leaf[other])))] += contract.gpus[other]
        return any(held[vertex] > tree.gpu_limit[vertex] for vertex in path)

    def reserve_all(self) -> None:
        """Reserve for claims that cannot start by ordinary means; those that lost their nodes first."""
        changed = True
        while changed:
            changed = False
            settled = {one.row for one in self.planner.found}
            for row in self.claims:
                if row in settled | self.ahead or (row not in self.kept and self._starts_anyhow(row)):
                    continue
                if row not in self.kept and not self._hold_funds(row):
                    continue
                self.kept.add(row)
                changed |= self._reserve(row)

    def _reserve(self, row: int) -> bool:
        planner, work = self.planner, self.facts.snapshot.workloads[row]
        found = planner.choose(self._draft(row), work, self._to_clear())
        if found is None:
            return False
        span = planner.longest(found)
        base = self.now if row in self.lost else found.eligible_since
        bound = max(base + planner.position(found) * span, found.start)
        return planner.accept(replace(found, bound=bound, remade=self.lost.get(row, "")))

    def _starts_anyhow(self, row: int) -> bool:
        """Whether it fits what is free and what may be stopped for the sake of shares, beside the reservations of others."""
        facts, layout, work = self.facts, self.facts.layout, self.facts.snapshot.workloads[row]
        if facts.patient[row]:
            return True
        until = self.now + int(facts.promise[row])
        room = tasks_per_node(np.maximum(layout.capacity - self._firm_use(), 0), shape_of(work))
        limit = self.planner.limits_but(self.order(), row)
        mask = suitable(layout, work) & layout.accepting & ~layout.overdue & (np.minimum(layout.deadline, limit) >= until)
        return can_place(layout, work, np.where(mask, room, 0))

    def _firm_use(self) -> IntArray:
        """GPUs, CPUs and GiB of what could not be stopped for the sake of shares just before now, shape (3, num_nodes)."""
        if self._firm is None:
            contract = self.facts.contract
            firm = contract.running & ~(contract.fresh & ~contract.ordered) & (contract.forced == UNFORCED)
            firm[[row for row in firm.nonzero()[0].tolist() if self._may_stop(row)]] = False
            self._firm = contract.placements.in_turn(
                firm, contract.terminating, contract.ordered, contract.columns.shape, len(self.facts.layout.names)
            )
        return self._firm

    def _may_stop(self, row: int) -> bool:
        contract, market = self.facts.contract, self.facts.market
        if contract.terminating[row] or contract.ordered[row] or self.planner.releases.row[row] > self.now:
            return False
        if not contract.charged_before[row] or self.policy.preempt_under_entitlement:
            return True
        place = self.facts.places.leaf[row], contract.run_pool[row]
        return bool(MILLI * market.held[place] > market.entitled[place])

    def _to_clear(self) -> IntArray:
        """GPUs of unprotected work on each node, shape (num_nodes,)."""
        places, releases = self.facts.contract.placements, self.planner.releases
        clear = np.zeros(len(self.facts.layout.names), dtype=np.int64)
        open_now = places.before & (releases.row[places.row] <= self.now)
        np.add.at(clear, places.node[open_now], places.gpus[open_now])
        return clear

    def order(self) -> IntArray:
        """Which nodes take long promises first where a reservation spares some: those with most GPUs free just before now."""
        places, layout = self.facts.contract.placements, self.facts.layout
        free = layout.capacity[GPUS].copy()
        np.subtract.at(free, places.node[places.before], places.gpus[places.before])
        return np.asarray(-free)

    def result(self, renewed: Mapping[int, int], lapsing: tuple[Lapse, ...]) -> Arrangement:
        """Everything, with due reservations marked."""
        planner = self.planner
        found = [self._explained(one) for one in planner.found if one.row >= 0 and one.row not in self.ahead]
        found = start_due(self.facts, planner.releases, found)
        final = {one.row: one for one in found}
        planner.found = [final.get(one.row, one) for one in planner.found]
        own = {one.row: planner.limits_but(self.order(), one.row) for one in found if not one.due}
        limit = planner.limits(self.order())
        return Arrangement(tuple(found), renewed, lapsing, self.available, limit, own)

    def _explained(self, one: Reserved) -> Reserved:
        rows = (self.planner.releases.row == one.start).nonzero()[0]
        works, index = self.facts.snapshot.workloads, self.facts.layout.index
        runs = ((row, works[row].run) for row in rows.tolist())
        ends = [row for row, run in runs if run is not None and any(one.usable[index[name]] for name in run.placement)]
        return replace(one, waits_for=tuple(works[row].id for row in ends))


def _just_started(facts: Facts) -> dict[int, Reserved]:
    """Entitled large gangs that have started at this very instant, by row: others are still planned around them, as before."""
    contract, layout, found = facts.contract, facts.layout, dict[int, Reserved]()
    started = contract.fresh & (contract.start <= facts.snapshot.now) & contract.charged & facts.gang
    for row in started.nonzero()[0].tolist():
        work = facts.snapshot.workloads[row]
        if work.run is None or work.entitled_since is None:
            continue
        usable = np.zeros(len(layout.names), dtype=bool)
        usable[[layout.index[name] for name in work.run.placement]] = True
        promise = int(contract.protected_until[row]) - facts.snapshot.now
        found[row] = Reserved(-1 - row, int(contract.run_pool[row]), (), usable, int(usable.sum()), facts.snapshot.now, promise)
    return found
