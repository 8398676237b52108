"""How a trace is replayed."""

from __future__ import annotations

from dataclasses import dataclass

from allocator.replay.errors import ReplayError


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """Spans in seconds.

    Parameters
    ----------
    tick
        Decisions are made at multiples of it since the start of the trace.
    drift
        While work waits, a decision is made at least this often, because what is owed to whom drifts as time passes.
    until
        Where to stop, an instant of the trace; None: at its end.
    """

    tick: int = 15
    drift: int = 300
    until: int | None = None

    def __post_init__(self) -> None:
        if self.tick < 1 or self.drift < self.tick:
            raise ReplayError(f"tick must be at least 1 s and drift at least one tick, not {self.tick} and {self.drift}")
