"""Many epochs in a row: no bound broken, no promise broken but by dead nodes and deadlines, and everything settles."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

import pytest

from allocator.domain import Decision, NodeState, Promotion, Reason, Renewal, Snapshot, StopReason
from allocator.engine import allocate
from allocator.transition import apply
from allocator.verify import verify
from tests.engines.epochs import World

FUZZ = os.environ.get("ALLOCATOR_FUZZ") == "1"
LIMIT = 60.0

pytestmark = [pytest.mark.fuzz] if FUZZ else []


class Watch:
    """What must hold from one epoch to the next."""

    def __init__(self, seed: int, engine: str) -> None:
        self.seed, self.engine = seed, engine
        self.bounds: dict[str, tuple[int, int]] = {}
        self.stopped: dict[str, int] = {}
        self.promised: dict[str, int] = {}
        self.seen: Counter[str] = Counter()

    def decide(self, world: World) -> Decision:
        """One epoch, and what holds for it alone."""
        snapshot = world.snapshot
        decision = allocate(snapshot, engine=self.engine, time_limit=LIMIT)
        where = (self.seed, snapshot.now)
        assert decision.solver.notes == (), (where, decision.solver.notes)
        self.check_rung(snapshot, decision)
        assert [str(one) for one in verify(snapshot, decision).violations] == [], where
        after, later = apply(snapshot, decision), apply(snapshot, decision, world.epoch)
        assert apply(after, decision) == after, where
        assert apply(later, decision) == later, where
        assert apply(after, decision, world.epoch) == later, where
        if self.engine == "portfolio":
            again = allocate(after, engine=self.engine, time_limit=LIMIT)
            moves = (*again.starts, *again.preemptions, *again.renewals, *again.promotions)
            assert moves == (), (where, decision.starts, decision.preemptions, moves)
        self.seen.update(starts=len(decision.starts), renewals=len(decision.renewals), reservations=len(decision.reservations))
        self.seen.update(row.reason.value for row in decision.preemptions)
        return decision

    def check_rung(self, snapshot: Snapshot, decision: Decision) -> None:
        """Keep is for where nothing is done, and what is not proven best is so because rules have their price."""
        solver, gangs = decision.solver, {held.workload for held in snapshot.reservations}
        gangs |= {key for row in decision.preemptions for key in row.beneficiaries}
        chosen = {row.workload for row in decision.starts} - gangs
        chosen |= {row.workload for row in decision.preemptions if row.reason in (StopReason.SHARE, StopReason.EXPRESS)}
        assert solver.rung != "keep" or not (chosen or decision.promotions), (self.seed, decision.now)
        assert self.engine == "greedy" or (solver.bound is not None and solver.bound <= solver.objective), (self.seed, solver)
        self.seen[f"rung {solver.rung}"] += 1

    def keep_promises(self, world: World, decision: Decision) -> None:
        """Nobody stops before the instant that some decision has promised, but for dead nodes and passed deadlines."""
        works = {work.id: work for work in world.snapshot.workloads}
        nodes = {node.name: node for node in world.snapshot.cluster.nodes}
        broken = {row.workload for row in decision.contract_broken}
        for row in decision.preemptions:
            run, until = works[row.workload].run, self.promised.pop(row.workload, 0)
            assert run is not None
            if decision.now >= until:
                continue
            self.seen["broken"] += 1
            begun = run.start_time is None or run.start_time <= decision.now
            dead = any(nodes[name].state is NodeState.DOWN for name in run.placement)
            expired = any((nodes[name].drain_deadline or decision.now + 1) <= decision.now for name in run.placement)
            assert dead or expired or not begun, (self.seed, row, until)
            assert (row.workload in broken) == begun or row.reason is StopReason.RELOCATE, (self.seed, row)
        for start in decision.starts:
            if start.charged:
                least = decision.now + min(works[start.workload].min_runtime, world.snapshot.policy.protection_cap)
                assert start.protected_until is not None
                assert start.protected_until >= least, (self.seed, start)
                self.promised[start.workload] = start.protected_until
        longer: tuple[Promotion | Renewal, ...] = (*decision.promotions, *decision.renewals)
        for made in longer:
            assert made.protected_until >= self.promised.get(made.workload, 0)
            self.promised[made.workload] = made.protected_until

    def see(self, world: World) -> None:
        """What has really become of the promises: runs that ended or never began have none."""
        runs = {work.id for work in world.snapshot.workloads if work.run is not None}
        self.promised = {key: until for key, until in self.promised.items() if key in runs}
        if world.disturbed:
            self.forgive()

    def follow(self, world: World, decision: Decision) -> None:
        """Bounds of reservations, and stops of charged work."""
        works = {work.id: work for work in world.snapshot.workloads}
        for row in decision.preemptions:
            run = works[row.workload].run
            assert run is not None
            if run.charged and row.reason.value in ("share", "express", "reservation"):
                promise = min(works[row.workload].min_runtime, world.snapshot.policy.protection_cap)
                last = self.stopped.get(row.workload, 0)
                assert decision.now - last >= promise, (self.seed, row)
                self.stopped[row.workload] = decision.now
        started = {row.workload for row in decision.starts}
        for key, (start, bound) in self.bounds.items():
            held = next((row for row in decision.reservations if row.workload == key), None)
            if held is not None or key in started:
                assert decision.now <= bound + world.epoch, (self.seed, key, decision.now - bound)
            if held is None and key in works and key not in started:
                waits = next(row for row in decision.waiting if row.workload == key)
                over = waits.reason is Reason.OVER_LIMIT or over_limit(world.snapshot, decision, key)
                assert waits.entitled_since is None or over, (self.seed, waits)
                self.seen["lost"] += 1
            if held is not None:
                assert held.bound <= bound, (self.seed, key, held.bound - bound)
                assert held.start <= start, (self.seed, key, held.start - start)
                self.seen["kept"] += 1
        self.seen["due"] += len(started & self.bounds.keys())
        self.bounds = {row.workload: (row.start, row.bound) for row in decision.reservations}

    def forgive(self) -> None:
        """Nodes went down, or victims did not leave: starts may be later than they were."""
        self.bounds = {}


def over_limit(snapshot: Snapshot, decision: Decision, gang: str) -> bool:
    """Whether some `gpu_limit` above a gang has no room for it beside what is charged there and gangs that are kept nodes."""
    parents = {vertex.id: vertex.parent for vertex in snapshot.budgets}
    limits = {vertex.id: vertex.gpu_limit for vertex in snapshot.budgets}
    kept = {gang} | {held.workload for held in decision.reservations}
    held: Counter[str] = Counter()
    above = []
    for work in snapshot.workloads:
        vertex: str | None = work.allocation
        while vertex is not None:
            if work.id in kept or (work.run is not None and work.run.charged):
                held[vertex] += work.gpus
            above += [vertex] if work.id == gang else []
            vertex = parents[vertex]
    return any((limit := limits[vertex]) is not None and held[vertex] > limit for vertex in above)


def play(seed: int, engine: str, epochs: int) -> Counter[str]:
    world, watch = World.new(seed), Watch(seed, engine)
    for _ in range(epochs):
        decision = watch.decide(world)
        watch.keep_promises(world, decision)
        watch.follow(world, decision)
        world.carry_out(decision)
        watch.see(world)
    return watch.seen


def seeds(usual: int, long: int) -> Iterator[int]:
    """Fewer in the usual run than in a long one."""
    return iter(range(long if FUZZ else usual))


@pytest.mark.parametrize("seed", seeds(3, 100))
def test_many_epochs_of_the_portfolio(seed: int) -> None:
    play(seed, "portfolio", 100 if FUZZ else 25)


@pytest.mark.parametrize("seed", seeds(4, 200))
def test_many_epochs_of_greedy(seed: int) -> None:
    play(seed, "greedy", 100 if FUZZ else 40)
