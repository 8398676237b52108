"""`fifo_backfill`: first come, first served, with EASY backfill by time limits."""

from __future__ import annotations

from dataclasses import dataclass, field

from allocator.domain import Decision, Snapshot
from allocator.replay.baselines.easy import backfill
from allocator.replay.baselines.yard import Yard
from allocator.replay.policy import Idling, plain_decision


@dataclass
class FifoBackfill:
    """The order of submission; who waits at its head is not delayed by who goes before it.

    Nobody is ever stopped but by a dead node, and shares mean nothing. A session keeps its GPUs as long as its user likes.
    """

    name: str = "fifo_backfill"
    idling: Idling = Idling.ALWAYS
    _yard: Yard = field(default_factory=Yard, repr=False)

    def decide(self, snapshot: Snapshot, previous: Decision | None) -> Decision:
        """Start from the head of the queue, then what fits around it."""
        yard = self._yard
        yard.see(snapshot)
        starts = [yard.start(*planned) for planned in backfill(yard, yard.waiting, yard.free.copy())]
        return plain_decision(snapshot, self.name, starts)

    def wake(self, snapshot: Snapshot, decision: Decision) -> int | None:
        """Time alone starts nothing."""
        return None
