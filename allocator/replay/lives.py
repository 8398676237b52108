"""The life of a job: its runs, what they got done, and what was lost."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from allocator.domain import Workload
from allocator.domain.trace import Job
from allocator.replay.errors import broken
from allocator.replay.progress import Pace, Split


class Outcome(StrEnum):
    """How a run ended, where no decision stopped it."""

    COMPLETED = "completed"
    FAILED = "failed"
    RESUME_FAILED = "resume_failed"
    CRASHED = "crashed"
    PERSON = "person"
    CUT = "cut"


FINAL = frozenset({Outcome.COMPLETED, Outcome.FAILED})
"""After these the job is gone."""


class RunRow(NamedTuple):
    """One run as a row of the table `runs`. Spans are seconds of the whole gang; they add up from `restart` to `dead`."""

    job: str
    number: int
    pool: str
    gpus: int
    nodes: int
    excess_domains: int
    queued: int
    start: int
    end: int
    ended_by: str
    express: bool
    charged: int
    uncharged: int
    promised_until: int | None
    broken: bool
    restart: int
    checkpoint: int
    slow: int
    work: int
    parked: int
    dead: int
    lost: int


@dataclass(slots=True)
class Attempt:
    """A run that goes on.

    `base` is the progress it began with; `fails` marks a resume that will fail; `done_at` is when the work was done of a
    session that keeps its GPUs, `dead_at` when a node of it died; `excess` counts domains beyond the fewest possible.
    """

    number: int
    start: int
    pace: Pace
    base: int
    queued: int
    fails: bool = False
    excess: int = 0
    done_at: int | None = None
    dead_at: int | None = None


@dataclass(slots=True)
class Life:
    """A job and what has become of it. `progress` is work that is saved; `worked` is all work ever done, lost or not; `pool`
    is where it ran last."""

    job: Job
    submit: int
    queued_since: int
    failing: int
    progress: int = 0
    worked: int = 0
    lost: int = 0
    runs: int = 0
    stops: int = 0
    queued: int = 0
    first_start: int | None = None
    ended: int | None = None
    outcome: str | None = None
    pool: str | None = None
    attempt: Attempt | None = None

    @property
    def target(self) -> int:
        """Work after which the job ends, one way or the other."""
        fails = self.job.fails_after
        return self.job.work if fails is None else min(self.job.work, fails)

    @property
    def ending(self) -> Outcome:
        """How it ends once that work is done."""
        fails = self.job.fails_after
        return Outcome.COMPLETED if fails is None or fails > self.job.work else Outcome.FAILED

    def begin(self, now: int, speed: tuple[int, int], excess: int) -> Attempt:
        """Start a run; `speed` is the share of full speed as numerator and denominator."""
        work = self.job.workload
        waited = now - self.queued_since
        self.queued += waited
        self.runs += 1
        if self.first_start is None:
            self.first_start = now
        fails = self.runs > 1 and self.failing > 0
        self.failing -= fails
        interval = work.checkpoint_interval or 0 if work.resumable else 0
        cost = self.job.checkpoint_cost if interval else 0
        pace = Pace(work.restart_time if self.runs > 1 else 0, interval, cost, *speed)
        self.attempt = Attempt(self.runs, now, pace, self.progress, waited, fails=fails, excess=excess)
        return self.attempt

    def length(self) -> int:
        """How long the current run takes if nobody stops it."""
        attempt = self._current()
        if attempt.fails:
            return max(1, attempt.pace.restart)
        return attempt.pace.length(self.target - attempt.base)

    def end(self, now: int, how: str, *, notice: bool) -> tuple[Attempt, Split, int, int, int]:
        """End the current run.

        Parameters
        ----------
        how
            An `Outcome`, or the reason of a stop.
        notice
            Whether there was time for a last checkpoint.

        Returns
        -------
        The run, what its seconds went into, and the seconds parked, dead and lost.
        """
        attempt = self._current()
        alive = now if attempt.dead_at is None else attempt.dead_at
        busy = alive if attempt.done_at is None else min(alive, attempt.done_at)
        length = busy - attempt.start
        split = Split(length, 0, 0, 0) if attempt.fails else attempt.pace.split(length)
        reached = attempt.base + split.work
        done = how in FINAL or how == Outcome.CUT or attempt.done_at is not None
        self.progress = reached if done else self._kept(attempt, length, reached, notice)
        lost = reached - self.progress
        self.worked += split.work
        self.lost += lost
        self.attempt = None
        self.queued_since = now
        self._check(now, split, length, done and how != Outcome.CUT)
        return attempt, split, alive - busy, now - alive, lost

    def _kept(self, attempt: Attempt, length: int, reached: int, notice: bool) -> int:
        """The progress that survives a stop."""
        work = self.job.workload
        if not work.resumable:
            return 0
        if work.checkpoint_on_notice and notice:
            return reached
        return attempt.base if attempt.fails else attempt.base + attempt.pace.saved(length)

    def _check(self, now: int, split: Split, length: int, done: bool) -> None:
        """Work is done once, and lost work again; every second of a run went somewhere."""
        key = self.job.workload.id
        if self.worked - self.lost != self.progress:
            raise broken(now, key, f"worked {self.worked} s, lost {self.lost} s, but holds {self.progress} s of progress")
        if sum(split) != length or min(split) < 0:
            raise broken(now, key, f"the parts {tuple(split)} of a run do not add up to its {length} s")
        if done and self.progress != self.target:
            raise broken(now, key, f"ended with {self.progress} s of its {self.target} s of work")

    def _current(self) -> Attempt:
        assert self.attempt is not None, f"{self.job.workload.id} does not run"
        return self.attempt


def run_row(work: Workload, pool: str, now: int, how: str, ended: tuple[Attempt, Split, int, int, int]) -> RunRow:
    """The row of a run that has just ended; `work` is the workload while it ran."""
    attempt, split, parked, dead, lost = ended
    run = work.run
    assert run is not None, f"{work.id} does not run"
    charged = now - (run.charged_since if run.charged_since is not None else attempt.start) if run.charged else 0
    promised = run.protected_until if run.charged else None
    return RunRow(
        job=work.id,
        number=attempt.number,
        pool=pool,
        gpus=work.gpus,
        nodes=len(run.placement),
        excess_domains=attempt.excess,
        queued=attempt.queued,
        start=attempt.start,
        end=now,
        ended_by=str(how),
        express=run.express,
        charged=charged,
        uncharged=now - attempt.start - charged,
        promised_until=promised,
        broken=promised is not None and promised > now and how not in FINAL | {Outcome.CUT, Outcome.RESUME_FAILED},
        restart=split.restart,
        checkpoint=split.checkpoint,
        slow=split.slow,
        work=split.work,
        parked=parked,
        dead=dead,
        lost=lost,
    )
