"""The answer to "what if I submitted this now", in types."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from allocator.domain import Decision, Preemption, Snapshot, Start, WaitingRow, Workload


class Effect(StrEnum):
    """What a request does to other work, compared with the same call without it."""

    STOPS = "stops"
    """It runs, and would be stopped."""
    MOVES = "moves"
    """It runs, and would be stopped and start again elsewhere."""
    WAITS = "waits"
    """It would have GPUs after this decision, and would wait."""
    UNPROTECTED = "unprotected"
    """It would be charged and protected from now on, and would run free of charge."""
    RESERVED_LATER = "reserved later"
    """It is kept nodes for some instant, and would be kept them for a later one or not at all."""


class Kind(StrEnum):
    """One way to change a request."""

    TASKS = "tasks"
    POOL = "pool"
    LEVEL = "level"
    SEGMENT = "segment"
    MIN_RUNTIME = "min_runtime"
    UNALLOCATED = "unallocated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Displaced:
    """Somebody else's work that is worse off. `lost_gpu_seconds`: what a stop throws away, restart not counted."""

    workload: str
    effect: Effect
    gpus: int
    lost_gpu_seconds: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one decision does to one request. Either `start` or `waiting` is given.

    Attributes
    ----------
    snapshot, decision
        The snapshot with the request in it, and the decision on it.
    makes_room
        The stops that name the request as their beneficiary, those included that would happen without it.
    displaced
        What differs from the decision without the request, to somebody's disadvantage.
    """

    snapshot: Snapshot
    decision: Decision
    start: Start | None
    waiting: WaitingRow | None
    makes_room: tuple[Preemption, ...]
    displaced: tuple[Displaced, ...]

    @property
    def charged(self) -> bool:
        """Whether it would start, charged and protected."""
        return self.start is not None and self.start.charged


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One changed request that was tried.

    `value` is what was changed to: tasks, a pool, a level, seconds of min runtime; None: without the wish. `helps`: it starts
    where the request as asked waits, or is charged where that would run free of charge.
    """

    kind: Kind
    value: int | str | None
    workload: Workload
    outcome: Outcome
    helps: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """All that was tried of one kind, in this order, and the smallest change of it that helps, None if none did."""

    kind: Kind
    tried: tuple[Trial, ...]
    best: Trial | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """The whole answer. `without`: the decision without the request, which displacement is compared with.

    `advice` is empty where the request starts as it is wished. `calls` counts the decisions that were made.
    """

    request: Workload
    engine: str
    without: Decision
    as_asked: Outcome
    advice: tuple[Advice, ...]
    calls: int
