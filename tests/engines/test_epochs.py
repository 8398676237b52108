"""Many epochs in a row: no bound broken, no promise broken but by dead nodes and deadlines, and everything settles."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

import pytest

from allocator.domain import Decision, Snapshot
from allocator.engine import allocate
from allocator.transition import apply
from allocator.verify import verify
from tests.engines.epochs import World

FUZZ = os.environ.get("ALLOCATOR_FUZZ") == "1"
LIMIT = 60.0


class Watch:
    """What must hold from one epoch to the next."""

    def __init__(self, seed: int, engine: str) -> None:
        self.seed, self.engine = seed, engine
        self.bounds: dict[str, tuple[int, int]] = {}
        self.stopped: dict[str, int] = {}
        self.seen: Counter[str] = Counter()

    def decide(self, snapshot: Snapshot) -> Decision:
        """One epoch, and what holds for it alone."""
        decision = allocate(snapshot, engine=self.engine, time_limit=LIMIT)
        where = (self.seed, snapshot.now)
        assert decision.solver.notes == () or self.engine == "greedy", where
        assert [str(one) for one in verify(snapshot, decision).violations] == [], where
        after = apply(snapshot, decision)
        assert apply(after, decision) == after, where
        if self.engine == "portfolio":
            again = allocate(after, engine=self.engine, time_limit=LIMIT)
            moves = (*again.starts, *again.preemptions, *again.renewals, *again.promotions)
            assert moves == (), (where, decision.starts, decision.preemptions, moves)
        self.seen.update(starts=len(decision.starts), renewals=len(decision.renewals), reservations=len(decision.reservations))
        self.seen.update(row.reason.value for row in decision.preemptions)
        return decision

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
            if held is not None:
                assert held.start <= start, (self.seed, key, held.start - start)
                self.seen["kept"] += 1
        self.seen["due"] += len(started & self.bounds.keys())
        self.bounds = {row.workload: (row.start, row.bound) for row in decision.reservations}

    def forgive(self) -> None:
        """Nodes went down, or victims did not leave: starts may be later than they were."""
        self.bounds = {}


def play(seed: int, engine: str, epochs: int) -> Counter[str]:
    world, watch = World.new(seed), Watch(seed, engine)
    for _ in range(epochs):
        decision = watch.decide(world.snapshot)
        watch.follow(world, decision)
        world.carry_out(decision)
        if world.disturbed:
            watch.forgive()
    return watch.seen


def seeds(usual: int, long: int) -> Iterator[int]:
    return iter(range(long if FUZZ else usual))


@pytest.mark.parametrize("seed", seeds(4, 100))
def test_many_epochs_of_the_portfolio(seed: int) -> None:
    play(seed, "portfolio", 100 if FUZZ else 25)


@pytest.mark.parametrize("seed", seeds(6, 200))
def test_many_epochs_of_greedy(seed: int) -> None:
    play(1000 + seed, "greedy", 100 if FUZZ else 40)
