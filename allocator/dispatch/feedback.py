"""What the owner of a job is shown by the scheduler: why it waits, or how long it is promised to run.

Off unless the configuration has `[feedback]`. Only what has changed is said, to each job not too often, and never over an
administrator's words. What cannot be said costs nothing: it is tried again later.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from allocator.dispatch.config import Feedback
from allocator.dispatch.facts import JobFact, JobState, View
from allocator.dispatch.launcher import Launcher, LauncherError
from allocator.dispatch.memory import Held, Memory
from allocator.dispatch.plan import MARK
from allocator.domain import Decision, printable

logger = logging.getLogger(__name__)

LONGEST = 240
"""Characters of a message: a line or two in a terminal."""


def messages(view: View, decision: Decision, memory: Memory) -> dict[str, str]:
    """What is to be said at each job, without the mark. A pure function.

    Parameters
    ----------
    view
        What the decision was made for.
    decision
        Has the reasons of what waits.
    memory
        After the decision was carried out: what has started has its promise there, what was refused its next try.
    """
    found = {job.id: job.problem for job in view.jobs.values() if job.problem is not None and job.held and job.gpus}
    found |= {row.workload: row.detail or row.reason.value for row in decision.waiting}
    for key, known in memory.jobs.items():
        if known.held is not None and key in view.jobs and view.jobs[key].state is JobState.RUNNING:
            found[key] = _promise(known.held, view.now)
        elif known.retry_at is not None and known.retry_at > view.now:
            found[key] = f"the scheduler has not followed its start; tried again from {_instant(known.retry_at)}"
    left = _records_left(view, memory)
    return {key: text for key, text in found.items() if key in view.jobs and view.jobs[key].record not in left}


def _records_left(view: View, memory: Memory) -> set[str]:
    """Records of arrays that tasks have left since the view, to run: their names would mean those tasks too."""
    begun = [view.jobs[key] for key, known in memory.jobs.items() if known.held is not None and key in view.jobs]
    return {job.record for job in begun if job.record}


def _promise(held: Held, now: int) -> str:
    until = held.run.protected_until
    if until is not None and until > now:
        return f"promised until {_instant(until)}"
    return "runs on, and may be stopped for others" if held.run.charged else "runs free of charge: may be stopped at any time"


class Speaker:
    """Says what has changed, within limits.

    Parameters
    ----------
    launcher
        The scheduler.
    clock
        Seconds; injected in tests.
    """

    def __init__(self, launcher: Launcher, clock: Callable[[], float] = time.monotonic) -> None:
        self._launcher, self._clock = launcher, clock
        self._said: dict[str, float] = {}

    def say(self, texts: Mapping[str, str], view: View, limits: Feedback) -> None:
        """Say what is new; what is over the limits is said in one of the next epochs.

        Parameters
        ----------
        texts
            By job, from `messages`.
        view
            What the scheduler shows now, also of what was said before.
        """
        now = self._clock()
        self._said = {key: at for key, at in self._said.items() if now - at < limits.interval}
        due: dict[str, str] = {}
        for key in sorted(texts):
            job, text = view.jobs[key], _line(texts[key])
            place = job.record or job.id
            if place not in self._said and _may_change(job, text):
                due.setdefault(place, text)  # tasks of an array that wait as one record share a message
        chosen = dict(list(due.items())[: limits.most])
        if not chosen:
            return
        self._said |= dict.fromkeys(chosen, now)
        try:
            self._launcher.say(chosen)
        except LauncherError as error:
            logger.warning("owners are not told why their jobs wait: %s", error)


def _may_change(job: JobFact, text: str) -> bool:
    return job.said != text and (not job.said or job.said.startswith(MARK))


def _line(text: str) -> str:
    """One line that every scheduler's command takes between quotes."""
    plain = printable(text).encode("ascii", "replace").decode().translate(str.maketrans('"\\`', "'/'"))
    line = MARK + " ".join(plain.split())
    return line if len(line) <= LONGEST else line[: LONGEST - 3] + "..."


def _instant(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
