"""Carrying out orders: stops before starts, every effect looked at before the next step. The only part that changes anything.

It may be killed between any two lines. What it was about was written down before, and `tidy` brings whatever it left behind to
one of two ends: done as decided, or taken back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from allocator.dispatch.facts import JobState, View
from allocator.dispatch.launcher import Launcher, LauncherError, StartOrder
from allocator.dispatch.plan import Orders
from allocator.dispatch.settle import Effects, Undertaking, effects_of

logger = logging.getLogger(__name__)

_ATTEMPTS = 5
"""How often what is armed or misplaced is taken back before the epoch is given up, to be settled by the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Seconds to wait: for stopped jobs to leave, for released ones to run, and between two looks.

    `apart` lie between two runs of one job. Nodes tell runs of the same job apart by the second: they take what begins in the
    second in which the last run was told to end for that run, and the scheduler then declares the job failed for good.
    """

    stop: float = 10.0
    start: float = 10.0
    poll: float = 0.25
    apart: float = 1.1


class Executor:
    """Carries out the orders of one epoch.

    Parameters
    ----------
    launcher
        The scheduler.
    patience
        How long to wait for it.
    sleep, clock
        Injected in tests.
    """

    def __init__(
        self,
        launcher: Launcher,
        patience: Patience,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._launcher, self._patience, self._sleep, self._clock = launcher, patience, sleep, clock

    def hold(self, jobs: Sequence[str]) -> None:
        """Keep jobs from starting by themselves, before anything is decided; again, until it shows.

        One that cannot be held is told of, and no reason to keep the others waiting. It still has the nodes that it asks for.
        """
        if not jobs:
            return
        logger.warning("held, since they would start by themselves: %s", ", ".join(jobs))
        loose = list(jobs)
        for _ in range(_ATTEMPTS):
            self._launcher.hold(loose)
            loose = _loose(self._launcher.view(), loose)
            if not loose:
                return
            self._sleep(self._patience.poll)
        logger.error("cannot be held, and may start by themselves: %s; hold or cancel them by hand", ", ".join(loose))

    def tend(self, orders: Orders) -> None:
        """Drain nodes and take them back; harmless to do again, and needs no record."""
        for reason, nodes in orders.drains.items():
            self._launcher.drain(nodes, reason)
        if orders.resumes:
            self._launcher.resume(orders.resumes)

    def carry_out(self, orders: Orders, ran: Collection[str] = ()) -> set[str]:
        """Stop, place, look, release, and wait until it shows.

        Parameters
        ----------
        orders
            What is to be done.
        ran
            Jobs that ran at the last look: a controller that crashed may have forgotten their runs, which their nodes have not.

        Returns
        -------
        The jobs that the scheduler was told to start; those that were put off are not among them.
        """
        if orders.stops:
            self._launcher.stop(orders.stops)
            self._wait_for_end(orders.stops)
        view = self._launcher.view()
        ready = [order for order in orders.starts if _is_free(view, order)]
        for order in set(orders.starts) - set(ready):
            logger.info("%s is put off: it or its nodes are not free yet", order.job)
        if not ready:
            return set()
        if any(view.jobs[order.job].incarnation > 0 or order.job in ran for order in ready):
            # counted from a look that shows the last run as over, so that it holds whatever the clocks of the hosts say
            self._sleep(self._patience.apart)
        self._launcher.place(ready)
        view = self._launcher.view()
        placed = [order.job for order in ready if _is_placed(view, order)]
        for order in ready:
            if order.job not in placed:
                logger.warning("%s cannot be placed on %s: not released", order.job, ",".join(order.nodes))
        if placed:
            self._launcher.release(placed)
            self._until(lambda view: not _waiting(view, placed), self._patience.start)
        return {order.job for order in ready}

    def tidy(self, work: Undertaking) -> tuple[View, Effects]:
        """Take back what did not start, stop what lies elsewhere, and tell what took effect in the end.

        Raises
        ------
        LauncherError
            Where something cannot be taken back. The undertaking stays open then.
        """
        for _ in range(_ATTEMPTS):
            view = self._launcher.view()
            effects = effects_of(view, work)
            loose = _loose(view, sorted(effects.armed))
            if not loose and not effects.misplaced:
                if effects.armed:
                    # a stale list of nodes at a job that is held does no harm: whether it has been cleared does not matter
                    self._launcher.unplace(sorted(effects.armed))
                return view, effects
            if effects.misplaced:
                logger.error("not where they were to be, stopped: %s", ", ".join(sorted(effects.misplaced)))
                self._launcher.stop(sorted(effects.misplaced))
                self._wait_for_end(effects.misplaced)
            if loose:
                self._launcher.hold(loose)
            self._sleep(self._patience.poll)
        raise LauncherError(f"cannot be taken back: {', '.join(sorted({*loose, *effects.misplaced}))}")

    def _wait_for_end(self, jobs: Collection[str]) -> None:
        self._until(lambda view: not _holding(view, jobs), self._patience.stop)

    def _until(self, done: Callable[[View], bool], seconds: float) -> None:
        end = self._clock() + seconds
        while not done(self._launcher.view()) and self._clock() < end:
            self._sleep(self._patience.poll)


def _holding(view: View, jobs: Iterable[str]) -> list[str]:
    """Those of the jobs that still hold nodes."""
    return [job for job in jobs if job in view.jobs and view.jobs[job].state in (JobState.RUNNING, JobState.LEAVING)]


def _loose(view: View, jobs: Iterable[str]) -> list[str]:
    """Those of the jobs that wait and are not held."""
    facts = [view.jobs[job] for job in jobs if job in view.jobs]
    return [fact.id for fact in facts if fact.state is JobState.WAITING and not fact.held]


def _waiting(view: View, jobs: Iterable[str]) -> list[str]:
    """Those of the jobs that still wait, and could start: what is on hold again or blocked will not."""
    return [job for job in _loose(view, jobs) if not view.jobs[job].blocked]


def _is_free(view: View, order: StartOrder) -> bool:
    """Whether the job can be placed: it waits, is held, and nobody who was told to go is still on its nodes."""
    job = view.jobs.get(order.job)
    if job is None or job.state is not JobState.WAITING or not job.held:
        return False
    leaving = {name for other in view.jobs.values() if other.state is JobState.LEAVING and other.gpus for name in other.nodes}
    return not leaving & set(order.nodes)


def _is_placed(view: View, order: StartOrder) -> bool:
    """Whether the scheduler has taken the nodes as they were given: anything else could start elsewhere."""
    job = view.jobs.get(order.job)
    return (
        job is not None
        and job.state is JobState.WAITING
        and job.held
        and set(job.wanted_nodes) == set(order.nodes)
        and job.num_nodes == len(order.nodes)
    )
