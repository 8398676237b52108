"""A dispatcher on a fake scheduler: everything real but the scheduler and the waiting."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from allocator import allocate
from allocator.dispatch.config import Config
from allocator.dispatch.dispatcher import Dispatcher, Epoch
from allocator.dispatch.execute import Executor, Patience
from allocator.dispatch.facts import JobState
from allocator.dispatch.journal import Journal
from allocator.dispatch.memory import Memory
from allocator.domain import Decision, Snapshot
from allocator.record import Recorder
from allocator.wire.snapshot_doc import PolicyDoc
from tests.dispatch.fake import FakeScheduler, Ticker

PROMISE = 600
CONFIG = Config(policy=PolicyDoc(protection_cap=PROMISE, notice=0))


class TickingJournal(Journal):
    """A journal before and after whose every commit the dispatcher may be killed."""

    def __init__(self, url: str, ticker: Ticker) -> None:
        super().__init__(url)
        self._ticker = ticker

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        return self._ticking(found) if name in ("observe", "begin", "end", "note") else found

    def _ticking(self, method: Any) -> Any:
        def called(*args: Any) -> Any:
            self._ticker()
            result = method(*args)
            self._ticker()
            return result

        return called


class Site:
    """A fake scheduler, a journal (a file, unless a URL is given), and dispatchers that come and go."""

    def __init__(self, folder: Path, nodes: int = 4, journal: str | None = None) -> None:
        self.scheduler = FakeScheduler(nodes)
        self.file = journal or str(folder / "journal.db")
        self.decisions: list[Decision] = []
        self.config = CONFIG
        self.recorder: Recorder | None = None

    def dispatcher(self, ticker: Ticker | None = None) -> Dispatcher:
        """A new dispatcher, as after a restart."""
        ticker = ticker or Ticker()
        self.scheduler.tick = ticker
        beats = iter(range(1_000_000))
        executor = Executor(self.scheduler, Patience(stop=5, start=5), self.scheduler.pass_time, lambda: float(next(beats)))
        journal = TickingJournal(self.file, ticker)
        return Dispatcher(self.scheduler, journal, self._decide, executor, lambda: self.config, self.recorder)

    def _decide(self, snapshot: Snapshot) -> Decision:
        decision = allocate(snapshot, engine="greedy")
        self.decisions.append(decision)
        return decision

    def epochs(self, number: int, seconds: int = 10) -> list[Epoch]:
        """So many epochs of a new dispatcher, with time passing between them."""
        dispatcher, found = self.dispatcher(), []
        for _ in range(number):
            found.append(dispatcher.epoch())
            self.scheduler.now += seconds
        return found

    def memory(self) -> Memory:
        """What the journal remembers."""
        return Journal(self.file).load()

    def check(self, jobs: Iterable[str]) -> None:
        """What holds after every crash once a new dispatcher has had its first epochs."""
        assert Journal(self.file).undertaking() is None
        shown, memory = self.scheduler.jobs, self.memory()
        assert set(jobs) <= set(shown), "no job is lost"
        seen = [(start.job, start.incarnation) for start in self.scheduler.starts]
        assert len(seen) == len(set(seen)), "no run begins twice"
        assert not self.scheduler.stillborn, "no run begins while the last one of its job is told to end"
        decided = {(row.workload, tuple(sorted(row.placement))) for decision in self.decisions for row in decision.starts}
        promises: dict[str, set[int | None]] = {}
        for decision in self.decisions:
            for start in decision.starts:
                promises.setdefault(start.workload, set()).add(start.protected_until)
            for promotion in decision.promotions:
                promises.setdefault(promotion.workload, set()).add(promotion.protected_until)
        for began in self.scheduler.starts:
            assert began.ordered, f"{began} was not ordered"
            assert (began.job, began.nodes) in decided, f"{began} was never decided"
        for job in shown.values():
            held = memory.jobs[job.id].held if job.id in memory.jobs else None
            if job.state is JobState.RUNNING:
                assert held is not None, f"the run of {job.id} is forgotten"
                assert set(held.run.placement) == set(job.nodes)
                assert held.incarnation == job.incarnation
                assert held.run.protected_until in promises.get(job.id, set()), f"the promise of {job.id} is another"
            elif job.state is JobState.WAITING:
                assert held is None, f"{job.id} waits, and the journal believes that it runs"
                assert job.held, f"{job.id} would start by itself"
