"""What a scheduler forgets and the journal keeps: first submit times, promises, stops, failed resumes, reservations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from allocator.domain import LastStop, Reservation, Run, UsageRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A run that the journal knows, with its promise; `incarnation` tells it from the runs before and after it.

    `allocation`, `user`, `pool` and `gpus` are what its time is accounted to, also when the job itself is gone.
    """

    run: Run
    incarnation: int
    allocation: str
    pool: str
    gpus: int
    user: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMemory:
    """What is known of one job beyond what the scheduler shows.

    `failed_resumes` counts resumed runs that came to nothing, `failed_starts` orders to start that the scheduler did not follow
    since the last one it did; until `retry_at` it is not asked again.
    """

    id: str
    submit_time: int
    preempted: int = 0
    failed_resumes: int = 0
    failed_starts: int = 0
    retry_at: int | None = None
    entitled_since: int | None = None
    stopped: LastStop | None = None
    held: Held | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """Everything that is carried from epoch to epoch. `seen` is the instant of the last look at the scheduler."""

    jobs: Mapping[str, JobMemory] = field(default_factory=dict)
    reservations: tuple[Reservation, ...] = ()
    usage: tuple[UsageRecord, ...] = ()
    seen: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something people should know: which job or node, what kind of thing, and in words."""

    at: int
    subject: str
    kind: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRow:
    """A usage record with whom and what it was for."""

    record: UsageRecord
    job: str
    user: str
