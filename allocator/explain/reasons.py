"""Why a workload waits: the first of the reasons that applies, with its numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, partial
from typing import NamedTuple

import numpy as np

from allocator.domain import Decision, Reason, Workload
from allocator.entitlement.claim import ledger_of
from allocator.entitlement.model import Entitlement
from allocator.explain.after import After
from allocator.explain.horizon import Earliest, Horizon, Prospect
from allocator.explain.words import clock, counted, duration, gpu_hours, gpus, listed
from allocator.topology import NEVER


class Case(NamedTuple):
    """All that an explanation depends on: workloads with the same case share it.

    `request` numbers what is asked of the nodes, `reservation` the one that is made for it (-1: none). The rest are entries
    of the work table; `cooling`: stopped at this instant, no candidate before the next; `patient`: waits for victims that are
    leaving; `counted`: waited just before now, so that `funded` means something; `strict`: waits rather than run unfunded.
    """

    request: int
    leaf: int
    home: int
    promise: int
    cost: int
    express: bool
    funded: bool
    counted: bool
    entitled: bool
    cooling: bool
    patient: bool
    reservation: int
    strict: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """The columns of a waiting row that workloads of one case share."""

    reason: Reason
    detail: str
    not_before: int | None = None
    never: bool = False
    blockers: tuple[str, ...] = ()


class Reasons:
    """Finds the reasons of one decision; what the nodes say to a request is worked out once."""

    def __init__(self, ent: Entitlement, decision: Decision, after: After) -> None:
        self.ent = ent
        self.after = after
        self.horizon = Horizon(ent, after)
        self.status = decision.solver.status
        self._prospects: dict[tuple[int, int | None], Prospect] = {}
        self._held: list[int] = after.held.sum(axis=1).tolist()
        self._ledger = cache(partial(ledger_of, ent, np.arange(len(ent.works.gpus)), ent.market.owed))
        self._limits: list[int] = ent.tree.gpu_limit.tolist()
        self._funds_left: list[list[int]] = (ent.market.available - after.promised).tolist()
        self._short: dict[tuple[int, int, int, int], tuple[int, int] | None] = {}

    def answer(self, case: Case, work: Workload) -> Answer:
        """The first reason that applies, in the order of the list; `work` is any workload of the case."""
        anyhow = self._prospect(case, work, None)
        # Work may run uncharged some day, so that drains which its promise would outlast do not put its start off.
        not_before = anyhow.not_before
        if not_before is None or anyhow.earliest is None:
            return self._pool_down(work) if not_before is None else self._victims_stay(work, not_before)
        promised = self._prospect(case, work, self._until(case, work, anyhow))
        if promised.earliest is None:
            return self._outlasts_drains(case, work)
        if case.reservation >= 0:
            return self._reserved(case, work, promised.earliest, not_before)
        if (detail := self._over_limit(case, work)) is not None:
            return Answer(Reason.OVER_LIMIT, detail, not_before)
        if (detail := self._unfunded(case, work, anyhow)) is not None:
            return Answer(Reason.UNFUNDED, detail, not_before)
        if promised.earliest.instant > self.ent.snapshot.now:
            return self._blocked(work, promised.earliest, not_before)
        if (away := self._kept_away(case, work, promised)) is not None:
            return replace(away, not_before=not_before)
        reason, detail = self._contested(case, work, promised)
        return Answer(reason, detail, not_before)

    def _prospect(self, case: Case, work: Workload, until: int | None) -> Prospect:
        key = (case.request, until)
        if key not in self._prospects:
            self._prospects[key] = Prospect(self.horizon, work, until)
        return self._prospects[key]

    def _until(self, case: Case, work: Workload, anyhow: Prospect) -> int | None:
        """The end of its promise if it started now; None if it would start without one, or if no node drains anyway."""
        if not self.horizon.deadlines_matter:
            return None
        charged = case.promise > 0 and (case.express or case.strict or self._short_of_funds(case, work, anyhow) is None)
        return self.horizon.stay(self.ent.snapshot.now + case.promise) if charged else None

    # --- nodes ---------------------------------------------------------------------------------------------------------

    def _pool_down(self, work: Workload) -> Answer:
        """The nodes that would hold it are down or draining; when they return is unknown."""
        layout = self.ent.layout
        wanted = np.isin(layout.pool, [pool for pool, name in enumerate(layout.pools) if not work.pools or name in work.pools])
        accepting = int((wanted & layout.accepting).sum())
        out = f"{accepting} of {counted(int(wanted.sum()), 'node')} of {self._pools(work)} accept work"
        return Answer(Reason.POOL_DOWN, f"{_needs(work)} would fit a healthy cluster, but {out}")

    def _victims_stay(self, work: Workload, not_before: int) -> Answer:
        """The only places are nodes with victims of earlier decisions that have not left in time; nobody knows when they do."""
        runs = ((other.id, other.run) for other in self.ent.snapshot.workloads if other.run is not None)
        late = [key for key, run in runs if (run.terminating_until or NEVER) <= self.ent.snapshot.now]
        detail = f"{_needs(work)} fits only where victims are that should have left: {listed(late)}"
        return Answer(Reason.NO_CAPACITY, detail, not_before)

    def _outlasts_drains(self, case: Case, work: Workload) -> Answer:
        """Work that would be charged may not start where its promise outlasts an announced drain."""
        promise = f"its promise of {duration(case.promise)} would outlast"
        return Answer(Reason.POOL_DOWN, f"{_needs(work)} fits only on nodes with an announced drain, which {promise}")

    def _blocked(self, work: Workload, place: Earliest, not_before: int) -> Answer:
        """Every place holds work that may not be stopped yet."""
        when = f"{clock(place.instant)} (in {duration(place.instant - self.ent.snapshot.now)})"
        detail = f"{_needs(work)}: every place breaks a promise before {when}; in the way: {listed(place.blockers)}"
        return Answer(Reason.BLOCKED_BY_PROTECTION, detail, not_before, blockers=place.blockers)

    def _reserved(self, case: Case, work: Workload, place: Earliest, not_before: int) -> Answer:
        """A gang that is kept its nodes waits for promises, or for gangs whose reservations come first."""
        if place.instant > self.ent.snapshot.now:
            return self._blocked(work, place, not_before)
        others = self._reservations(self.ent.reserved[case.reservation].start)
        blockers = tuple(key for key in others if key != work.id)
        detail = f"{_needs(work)}: {listed(blockers) or 'others'} come first"
        return Answer(Reason.RESERVED_FOR_OTHER, detail, not_before, blockers=blockers)

    def _reservations(self, before: int) -> tuple[str, ...]:
        """Gangs that are kept nodes from an instant before this one on, earliest first."""
        works = self.ent.snapshot.workloads
        waiting = [one for one in self.ent.reserved if not one.due and one.start <= before and not self.after.running[one.row]]
        return tuple(works[one.row].id for one in sorted(waiting, key=lambda one: (one.start, one.row)))

    def _kept_away(self, case: Case, work: Workload, place: Prospect) -> Answer | None:
        """Work whose promise would take what a reservation needs."""
        until = self.ent.snapshot.now + case.promise
        if case.promise == 0 or not self.ent.reserved or not place.fits_by_licence:
            return None
        if self.horizon.fits_beside_reservations(work, until):
            return None
        gangs = self._reservations(until)
        detail = f"{_needs(work)} would be promised until {clock(until)}, on nodes that are kept for {listed(gangs)}"
        return Answer(Reason.RESERVED_FOR_OTHER, detail, self.ent.snapshot.now, blockers=gangs) if gangs else None

    # --- limits and funds ----------------------------------------------------------------------------------------------

    def _over_limit(self, case: Case, work: Workload) -> str | None:
        tree = self.ent.tree
        for vertex in tree.path(case.leaf):
            limit, held = self._limits[vertex], self._held[vertex]
            if 0 <= limit < held + work.gpus:
                return f"{tree.ids[vertex]} may hold {counted(limit, 'GPU')} at once and holds {held}; this needs {work.gpus}"
        return None

    def _unfunded(self, case: Case, work: Workload, anyhow: Prospect) -> str | None:
        if case.promise == 0 or case.express:
            return None
        hours = gpu_hours(case.cost)
        cost = f"a promise of {duration(case.promise)} for {counted(work.gpus, 'GPU')} costs {hours} GPU-hours"
        then = "it waits for funds" if case.strict else "free of charge it runs on GPUs that nobody with a claim wants"
        short = self._short_of_funds(case, work, anyhow)
        if short is not None:
            return f"{cost}, {self._funds(*short)}; {then}"
        if case.counted and not case.funded:
            at_home = self._short_in(case, work, case.home)
            why = self._funds(at_home[0], case.home) if at_home else "the work before it in the queue takes what is left"
            return f"{cost}, {why}; {then}"
        return None

    def _short_of_funds(self, case: Case, work: Workload, anyhow: Prospect) -> tuple[int, int] | None:
        """The funding vertex nearest to the leaf that cannot pay, and the pool; None if some pool that holds it is paid for."""
        key = (case.request, case.leaf, case.promise, case.home)
        if key not in self._short:
            self._short[key] = self._find_short(case, work, anyhow)
        return self._short[key]

    def _find_short(self, case: Case, work: Workload, anyhow: Prospect) -> tuple[int, int] | None:
        short = {pool: self._short_in(case, work, pool) for pool in anyhow.healthy_pools}
        if not all(short.values()):
            return None
        pool = case.home if case.home in short else min(short)
        return short[pool][0], pool

    def _short_in(self, case: Case, work: Workload, pool: int) -> list[int]:
        """The funding vertices that cannot pay for it in that pool, from the leaf up."""
        return [v for v in self.ent.tree.funding_path(case.leaf) if self._left(v, pool) < case.cost]

    def _left(self, vertex: int, pool: int) -> int:
        """GPU-seconds that may still be promised after the decision."""
        return self._funds_left[vertex][pool]

    def _funds(self, vertex: int, pool: int) -> str:
        market = self.ent.market
        budget, usage = int(market.budget[vertex, pool]), int(market.usage[vertex, pool])
        promised = int(market.outstanding[vertex, pool] + self.after.promised[vertex, pool])
        return (
            f"{self.ent.tree.ids[vertex]} has {gpu_hours(max(0, self._left(vertex, pool)))} left of {gpu_hours(budget)} in "
            f"{self.ent.layout.pools[pool]} ({gpu_hours(usage)} used, {gpu_hours(promised)} promised)"
        )

    # --- claims --------------------------------------------------------------------------------------------------------

    def _contested(self, case: Case, work: Workload, place: Prospect) -> tuple[Reason, str]:
        """A place exists if others give way: is there a claim to it, and is it worth it?"""
        if case.patient:
            return Reason.NO_CAPACITY, f"{_needs(work)} fits where victims of earlier decisions are leaving; it waits for them"
        if place.fits_free:
            return self._fits_already(case)
        short = self._no_room(work, place)
        if case.promise == 0:
            return Reason.NO_CAPACITY, f"{short}; unallocated work waits for idle GPUs"
        if not case.express:
            if not case.entitled:
                return Reason.OVER_ENTITLEMENT, f"{short}, and {self._owed(case, work)}"
            if not place.fits_by_licence:
                why = "whoever runs there unprotected holds no more than it is owed"
                return Reason.OVER_ENTITLEMENT, f"{short}; it is entitled, but {why}"
        if self.status != "optimal":
            return (
                Reason.SEARCH_TRUNCATED,
                f"{short}; the search ended ({self.status}) before it knew whether others should stop",
            )
        return Reason.NO_CAPACITY, f"{short}; stopping others for it would cost more than it gains"

    def _no_room(self, work: Workload, place: Prospect) -> str:
        free = place.free_gpus
        scattered = ", but not where it fits" if free >= work.gpus else ""
        return f"{_needs(work)} cannot be placed: {counted(free, 'GPU')} free in {self._pools(work)}{scattered}"

    def _fits_already(self, case: Case) -> tuple[Reason, str]:
        if case.cooling:
            return Reason.NO_CAPACITY, "it was stopped at this instant and may start again from the next one on"
        if self.status != "optimal":
            return Reason.SEARCH_TRUNCATED, f"it would fit, but the search ended ({self.status}) before it was placed"
        return Reason.NO_CAPACITY, "it would fit the free GPUs, but a rule or a better use keeps them"

    def _owed(self, case: Case, work: Workload) -> str:
        """What its allocation is owed beside what it holds, at the first vertex of the path where that is too little."""
        tree, market, pool = self.ent.tree, self.ent.market, case.home
        ledger, row = self._ledger(), self.ent.columns.index[work.id]
        short = ledger.first_short(row)
        vertex = ledger.credit(row)[0] if short is None else short
        name, owed, held = tree.ids[vertex], gpus(int(market.owed[vertex, pool])), int(market.held[vertex, pool])
        if short is None:
            return f"of the {owed} GPUs that {name} is owed it holds {held}, and work before this one has a claim to the rest"
        needed = f"half of {counted(work.gpus, 'GPU')} would be needed"
        return f"{name} is owed {owed} GPUs and holds {held}: {needed} beyond what it holds"

    def _pools(self, work: Workload) -> str:
        return listed(work.pools or self.ent.layout.pools)


def _needs(work: Workload) -> str:
    """What is asked of the nodes: 16 x 4 GPUs inside one rack."""
    size = counted(work.gpus_per_task, "GPU")
    amount = size if work.tasks == 1 else f"{work.tasks} x {size}"
    level = work.topology.required
    return amount if level is None or work.tasks == 1 else f"{amount} inside one {level}"
