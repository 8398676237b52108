"""Decisions at random: what a careless engine might do, within the rules that keep a snapshot consistent."""

from __future__ import annotations

from random import Random

import numpy as np

from allocator.domain import (
    Decision,
    Preemption,
    Promotion,
    Reason,
    SolverReport,
    Start,
    StopReason,
    Unfunded,
    WaitingRow,
)
from allocator.entitlement import Entitlement, Forced
from allocator.topology import IntArray, eligible, place_tasks, shape_of, tasks_per_node
from allocator.verify.rules_stops import REASON_OF_FORCED

REPORT = SolverReport(rung="greedy", engine="greedy", status="feasible", objective=0, bound=None, gap=None, terms={}, seed=0)


class RandomDecision:
    """Stops, promotes and starts at random; `free` are GPUs, CPUs and GiB by node, `left` the funds by vertex and pool."""

    def __init__(self, ent: Entitlement, rng: Random) -> None:
        self.ent = ent
        self.rng = rng
        self.free: IntArray = ent.layout.capacity.copy()
        self.left: IntArray = ent.market.available.copy()
        self.lane = ent.express_room.copy()

    def decide(self) -> Decision:
        works, rng = self.ent.works, self.rng
        stops = [row for row in range(len(works.gpus)) if self._stops(row)]
        for row in np.flatnonzero(works.running).tolist():
            if row not in stops:
                self._take(row, self._placement(row))
        promotable = [row for row in np.flatnonzero(works.promotable).tolist() if row not in stops]
        promotions = [row for row in promotable if rng.random() < 0.7 and self._pays(row, int(works.run_pool[row]))]
        candidates = np.flatnonzero(works.candidate).tolist()
        rng.shuffle(candidates)
        starts = [start for row in candidates if rng.random() < 0.8 and (start := self._start(row)) is not None]
        started = {start.workload for start in starts}
        ids, now = [work.id for work in self.ent.snapshot.workloads], self.ent.snapshot.now
        waits = [row for row, key in enumerate(ids) if (not works.running[row] or row in stops) and key not in started]
        return Decision(
            now=now,
            snapshot="",
            solver=REPORT,
            starts=tuple(starts),
            preemptions=tuple(_stop(ids[row], now, Forced(int(works.forced[row]))) for row in stops),
            promotions=tuple(Promotion(workload=ids[row], protected_until=now + int(works.promise[row])) for row in promotions),
            waiting=tuple(_waits(ids[row], int(works.entitled_since[row])) for row in waits),
        )

    def _stops(self, row: int) -> bool:
        works = self.ent.works
        return bool(works.forced[row] != Forced.NONE or (works.stoppable[row] and self.rng.random() < 0.4))

    def _placement(self, row: int) -> dict[int, int]:
        run = self.ent.snapshot.workloads[row].run
        assert run is not None
        return {self.ent.layout.index[name]: tasks for name, tasks in run.placement.items()}

    def _take(self, row: int, placement: dict[int, int]) -> None:
        for node, tasks in placement.items():
            self.free[:, node] -= tasks * np.array(shape_of(self.ent.snapshot.workloads[row]))

    def _pays(self, row: int, pool: int) -> bool:
        """Draw a promise from the funds, if every vertex agrees."""
        cost, path = self.ent.cost(row, pool), list(self.ent.tree.funding_path(int(self.ent.works.leaf[row])))
        if any(self.left[vertex, pool] < cost for vertex in path):
            return False
        self.left[path, pool] -= cost
        return True

    def _may_pay(self, row: int, pool: int, charged: bool) -> bool:
        """Whether an ordinary start is funded, or may do without."""
        if charged:
            return self._pays(row, pool)
        return bool(self.ent.works.unallocated[row]) or self.ent.snapshot.workloads[row].unfunded is Unfunded.RUN

    def _start(self, row: int) -> Start | None:
        works, work, layout = self.ent.works, self.ent.snapshot.workloads[row], self.ent.layout
        until = self.ent.snapshot.now + int(works.promise[row])
        for charged in (True, False):
            if charged and not works.promise[row]:
                continue
            room = np.where(eligible(layout, work, until if charged else None), tasks_per_node(self.free, shape_of(work)), 0)
            placement = place_tasks(layout, work, room)
            if placement is None:
                continue
            pool = int(layout.pool[next(iter(placement))])
            express = bool(charged and works.express[row] and self.lane[pool] >= works.gpus[row])
            if express:
                self.lane[pool] -= works.gpus[row]
            elif not self._may_pay(row, pool, charged):
                continue
            self._take(row, placement)
            named = {layout.names[node]: tasks for node, tasks in placement.items()}
            return Start(
                workload=work.id, placement=named, charged=charged, protected_until=until if charged else None, express=express
            )
        return None


def _stop(workload: str, now: int, forced: Forced) -> Preemption:
    reason = REASON_OF_FORCED.get(forced, StopReason.SHARE)
    return Preemption(workload=workload, reason=reason, beneficiaries=(), lost_gpu_seconds=0, stop_by=now)


def _waits(workload: str, since: int) -> WaitingRow:
    reason = Reason.NO_CAPACITY
    return WaitingRow(workload=workload, reason=reason, not_before=None, never=False, detail="", entitled_since=since or None)
