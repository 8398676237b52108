"""One epoch after the other: look, remember, decide, write down, carry out, look again."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from allocator.dispatch.build import budgets_for, build, leaves_of
from allocator.dispatch.config import Config
from allocator.dispatch.execute import Executor
from allocator.dispatch.facts import View
from allocator.dispatch.feedback import Speaker, messages
from allocator.dispatch.journal import Journal
from allocator.dispatch.launcher import Launcher
from allocator.dispatch.memory import Memory
from allocator.dispatch.observe import Observation, observe
from allocator.dispatch.plan import Orders, incarnations, is_waiting, plan
from allocator.dispatch.requests import requests_of
from allocator.dispatch.scope import Scope, scope_of
from allocator.dispatch.settle import Effects, Undertaking, settle
from allocator.domain import AllocatorError, Decision, Snapshot
from allocator.record import Recorder

logger = logging.getLogger(__name__)

Decide = Callable[[Snapshot], Decision]


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """What one epoch looked like. `effects` is None where nothing was to be carried out; `seconds` by step."""

    snapshot: Snapshot
    decision: Decision
    orders: Orders
    view: View
    effects: Effects | None
    seconds: dict[str, float]


class Dispatcher:
    """Keeps a scheduler at what the allocator decides.

    Parameters
    ----------
    launcher
        The scheduler.
    journal
        What is remembered.
    decide
        From a snapshot to a decision.
    executor
        Carries out orders.
    config
        Gives the configuration; asked anew every epoch, so that it can be changed while the dispatcher runs.
    recorder
        Keeps every epoch for questions, if there is one.
    """

    def __init__(
        self,
        launcher: Launcher,
        journal: Journal,
        decide: Decide,
        executor: Executor,
        config: Callable[[], Config],
        recorder: Recorder | None = None,
    ) -> None:
        self._launcher, self._journal, self._decide = launcher, journal, decide
        self._executor, self._config, self._recorder = executor, config, recorder
        self._speaker = Speaker(launcher)

    def run(self, interval: float, stop: threading.Event, report: Callable[[Epoch], None] = lambda _: None) -> None:
        """Epoch after epoch until `stop` is set. After what goes wrong the next one begins with what is really there."""
        while not stop.is_set():
            begun = time.monotonic()
            try:
                report(self.epoch())
            except (AllocatorError, OSError) as error:
                logger.error("this epoch is given up: %s", error)
            stop.wait(max(0.0, interval - (time.monotonic() - begun)))

    def epoch(self) -> Epoch:
        """One epoch, with all its effects.

        Raises
        ------
        LauncherError
            Where the scheduler does not answer.
        SnapshotError
            Where configuration or budgets make no sense.
        JournalError
            Where the journal cannot be written. Nothing is carried out that was not written down.
        """
        clock = Stopwatch()
        self.recover()
        clock.lap("recover")
        config, view, memory, scope, found = self._look(clock)
        ran = {key for key, job in memory.jobs.items() if job.held is not None}
        self._journal.observe(memory, found.memory, found.usage, found.events)
        _tell(found)
        self._executor.hold(found.strays)
        clock.lap("remember")
        memory = found.memory
        snapshot, decision, orders = self._decided(config, view, memory, scope, found, clock)
        if self._recorder is not None:
            self._recorder.record(snapshot, decision)
        self._executor.tend(orders)
        work = Undertaking(snapshot=snapshot, decision=decision, incarnations=incarnations(decision, view))
        effects = None
        if orders.begin_or_end_work:
            number = self._journal.begin(work)
            clock.lap("begin")
            asked = self._executor.carry_out(orders, ran)
            clock.lap("carry_out")
            effects, after = self._finish(number, work, memory, asked)
        else:
            after, usage = settle(work, Effects(), memory, _users(view))
            self._journal.note(work, memory, after, usage)
        clock.lap("finish")
        if config.feedback is not None:
            self._speaker.say(messages(view, decision, after), view, config.feedback)
            clock.lap("say")
        return Epoch(snapshot=snapshot, decision=decision, orders=orders, view=view, effects=effects, seconds=clock.laps)

    def recover(self) -> None:
        """Bring to its end what an earlier epoch began: after a crash, or where the scheduler went away in the middle."""
        left = self._journal.undertaking()
        if left is not None:
            number, work = left
            logger.warning("epoch %d was not brought to its end; doing that now", number)
            self._finish(number, work, self._journal.load())

    def rehearse(self) -> Epoch:
        """One epoch that changes nothing: what would be done."""
        clock = Stopwatch()
        config, view, _, scope, found = self._look(clock)
        snapshot, decision, orders = self._decided(config, view, found.memory, scope, found, clock)
        return Epoch(snapshot=snapshot, decision=decision, orders=orders, view=view, effects=None, seconds=clock.laps)

    def watch(self) -> Epoch:
        """One epoch beside the scheduler in charge: what runs is remembered, what would be done is told, nothing is done."""
        clock = Stopwatch()
        config, view, memory, scope, found = self._look(clock)
        self._journal.observe(memory, found.memory, found.usage, found.events)
        snapshot, decision, orders = self._decided(config, view, found.memory, scope, found, clock)
        if self._recorder is not None:
            self._recorder.record(snapshot, decision)
        return Epoch(snapshot=snapshot, decision=decision, orders=orders, view=view, effects=None, seconds=clock.laps)

    def _look(self, clock: Stopwatch) -> tuple[Config, View, Memory, Scope, Observation]:
        """What there is, and what has happened since the last look."""
        config = self._config()
        view = self._launcher.view()
        clock.lap("view")
        memory = self._journal.load(view.now - _window(config))
        view = replace(view, now=_forward(view.now, memory.seen))
        scope = scope_of(view, config.pools)
        leaves = leaves_of(budgets_for(view, config))
        self._requests = requests_of(view, scope, config, leaves)
        found = observe(view, memory, scope, self._requests, config.policy.protection_cap)
        clock.lap("observe")
        return config, view, memory, scope, found

    def _decided(
        self, config: Config, view: View, memory: Memory, scope: Scope, found: Observation, clock: Stopwatch
    ) -> tuple[Snapshot, Decision, Orders]:
        memory = replace(memory, usage=(*memory.usage, *(row.record for row in found.usage)))
        snapshot = build(view, memory, scope, self._requests, config)
        clock.lap("build")
        decision = self._decide(snapshot)
        clock.lap("decide")
        orders = plan(decision, view, scope, found.strays, config)
        clock.lap("plan")
        return snapshot, decision, orders

    def _finish(self, number: int, work: Undertaking, memory: Memory, asked: Collection[str] = ()) -> tuple[Effects, Memory]:
        """Bring an undertaking to its end: what took effect is remembered, the rest taken back.

        `asked` are the jobs that the scheduler was told to start: those of them that it did not are refused.
        """
        view, effects = self._executor.tidy(work)
        effects.refused = {job for job in asked if job not in effects.started and is_waiting(view, job)}
        after, usage = settle(work, effects, memory, _users(view))
        self._journal.end(number, work, effects, memory, after, usage)
        for row in work.decision.starts:
            if row.workload not in effects.started:
                logger.warning("start of %s did not take effect; it waits on", row.workload)
        return effects, after


class Stopwatch:
    """Seconds by step."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.monotonic()

    def lap(self, name: str) -> None:
        """The time since the last lap belongs to this step."""
        now = time.monotonic()
        self.laps[name] = self.laps.get(name, 0.0) + now - self._last
        self._last = now


def _window(config: Config) -> int:
    """How far back usage counts; with a half-life, until it has faded to a thousandth."""
    half_life = config.policy.half_life
    return config.policy.window if half_life is None else 10 * half_life


def _forward(now: int, seen: int) -> int:
    """Now, but never before the last look: a clock that goes back must not undo promises."""
    if now < seen:
        logger.warning(
            "the clock is %d s behind the last look at the scheduler: time stands still until it has caught up; set the clock, "
            "or put back a backup of the journal if it was the last look whose clock was wrong",
            seen - now,
        )
    return max(now, seen)


def _users(view: View) -> dict[str, str]:
    return {job.id: job.user for job in view.jobs.values()}


def _tell(found: Observation) -> None:
    for event in found.events:
        level = logging.INFO if event.kind in ("adopted", "requeued") else logging.WARNING
        logger.log(level, "%s: %s: %s", event.subject, event.kind, event.detail)
