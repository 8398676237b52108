"""The replay itself: from tick to tick, with the clock of the trace."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from allocator.domain import Decision, Snapshot
from allocator.domain.trace import Trace
from allocator.replay.bounds import Bounds
from allocator.replay.carry import carry_out, clear_by_hand
from allocator.replay.check import check_trace
from allocator.replay.errors import broken
from allocator.replay.events import happen
from allocator.replay.lives import Outcome
from allocator.replay.options import ReplayOptions
from allocator.replay.policy import SchedulingPolicy
from allocator.replay.world import World


class EpochRow(NamedTuple):
    """One decision. GPUs and counts are of before it; `objective`, `bound` in 1/1000 GPU-second as in `SolverReport`."""

    now: int
    running: int
    waiting: int
    gpus_waiting: int
    starts: int
    stops: int
    promotions: int
    renewals: int
    reservations: int
    broken: int
    drains_by_hand: int
    rung: str
    engine: str
    status: str
    objective: int
    bound: int | None
    gap: float | None
    notes: int


class Simulator:
    """Plays a trace against a policy.

    Parameters
    ----------
    trace
        Checked here; see `check_trace`.
    policy
        Decides at the ticks.
    options
        Tick, drift and the end.

    Attributes
    ----------
    world
        The cluster as it is; its tables are complete once `run` has returned.
    epochs
        A row for each decision.
    seconds
        What each decision took by the clock of this machine. No part of the results: they are the same on every machine.
    """

    def __init__(self, trace: Trace, policy: SchedulingPolicy, options: ReplayOptions) -> None:
        check_trace(trace)
        self.trace, self.policy, self.options = trace, policy, options
        self.world = World(trace, policy.idling)
        self.bounds = Bounds(options.tick)
        self.epochs: list[EpochRow] = []
        self.seconds: list[float] = []
        self.end = trace.end if options.until is None else min(trace.end, options.until)
        self._previous: Decision | None = None
        self._wake: int | None = trace.start
        self._closed = False

    @property
    def now(self) -> int:
        """The instant that the replay has come to."""
        return self.world.now

    def run(self, on_tick: Callable[[Simulator], None] | None = None) -> None:
        """Play to the end; `on_tick` is called after each tick at which something happened."""
        while self.step():
            if on_tick is not None:
                on_tick(self)

    def step(self) -> bool:
        """Play on to the next tick at which something happens; False once the end is reached."""
        tick = self._next_tick()
        if tick is None or tick >= self.end:
            self._close()
            return False
        happen(self.world, tick)
        if self.world.changed or (self._wake is not None and self._wake <= tick):
            self._decide()
        return True

    def _next_tick(self) -> int | None:
        moments = [moment for moment in (self.world.calendar.next_time, self._wake) if moment is not None]
        if not moments:
            return None
        start, tick = self.trace.start, self.options.tick
        return start + -(-(min(moments) - start) // tick) * tick

    def _decide(self) -> None:
        world, tick = self.world, self.options.tick
        snapshot = world.snapshot()
        running, gpus_waiting = world.roster.num_running, world.roster.gpus_waiting
        begun = time.perf_counter()
        decision = self.policy.decide(snapshot, self._previous)
        self.seconds.append(time.perf_counter() - begun)
        if decision.now != world.now:
            raise broken(world.now, self.policy.name, f"decides for {decision.now}")
        world.changed = False
        carry_out(world, decision, tick)
        by_hand = clear_by_hand(world, decision, tick)
        self.bounds.see(decision, world.roster.works, world.fleet.hit_pools)
        self.epochs.append(_epoch_row(snapshot, running, gpus_waiting, decision, by_hand))
        wake = self.policy.wake(snapshot, decision)
        self._wake = world.now + tick if by_hand else wake if wake is None else max(wake, world.now + 1)
        self._previous = decision

    def _close(self) -> None:
        """End the books: what runs is cut, the meters are read a last time."""
        if self._closed:
            return
        world = self.world
        happen(world, max(world.now, self.end - 1))
        world.now = self.end
        for work in world.roster.in_order():
            if work.run is not None:
                world.end_run(work, Outcome.CUT)
        world.read_meters(self.end)
        world.closures.close(self.end, world.fleet.nodes)
        self.bounds.close(world.lives, self.end)
        self._closed = True
        self._balance()

    def _balance(self) -> None:
        """What the runs took is what the meters saw."""
        for kind in ("charged", "uncharged"):
            by_run = sum(row.gpus * getattr(row, kind) for row in self.world.runs)
            by_hour = sum(getattr(row, kind) for row in self.world.hours if row.allocation == "")
            if by_run != by_hour:
                raise broken(self.end, "all runs", f"took {by_run} {kind} GPU-seconds, but the meters show {by_hour}")


def _epoch_row(snapshot: Snapshot, running: int, gpus_waiting: int, decision: Decision, by_hand: int) -> EpochRow:
    solver = decision.solver
    return EpochRow(
        now=snapshot.now,
        running=running,
        waiting=len(snapshot.workloads) - running,
        gpus_waiting=gpus_waiting,
        starts=len(decision.starts),
        stops=len(decision.preemptions),
        promotions=len(decision.promotions),
        renewals=len(decision.renewals),
        reservations=len(decision.reservations),
        broken=len(decision.contract_broken),
        drains_by_hand=by_hand,
        rung=solver.rung,
        engine=solver.engine,
        status=solver.status,
        objective=solver.objective,
        bound=solver.bound,
        gap=solver.gap,
        notes=len(solver.notes),
    )
