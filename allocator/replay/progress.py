"""How far a run gets: restart, checkpoints and slowdown in closed form, in integers.

A run of t seconds first restarts (`restart` seconds). Where it takes checkpoints, one is complete every `interval` seconds
after its start, and the last `cost` seconds before that are spent on writing it. All other seconds are useful; at a slower
pace `num / den` of them become work, rounded down.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Split(NamedTuple):
    """What the seconds of a run went into; they add up to its length, and `work` + `slow` are the useful ones."""

    restart: int
    checkpoint: int
    slow: int
    work: int


@dataclass(frozen=True, slots=True)
class Pace:
    """How a run spends its time. Seconds; `interval` 0: no checkpoints. `cost` is below `interval`, `num` at most `den`."""

    restart: int = 0
    interval: int = 0
    cost: int = 0
    num: int = 1
    den: int = 1

    def work(self, length: int) -> int:
        """Work done in the first `length` seconds."""
        return self._useful(length) * self.num // self.den

    def saved(self, length: int) -> int:
        """Work that the last checkpoint of the first `length` seconds holds."""
        return self.work(length // self.interval * self.interval) if self.interval else 0

    def length(self, work: int) -> int:
        """The shortest run that does that much work (at least 1)."""
        useful = -(-work * self.den // self.num)
        productive = useful + self.restart - self._writing(self.restart)
        if not self.cost:
            return productive
        full = (productive - 1) // (self.interval - self.cost)
        return productive + full * self.cost

    def split(self, length: int) -> Split:
        """What the first `length` seconds go into."""
        restart = min(length, self.restart)
        work = self.work(length)
        return Split(restart, self._writing(length) - self._writing(restart), self._useful(length) - work, work)

    def _useful(self, length: int) -> int:
        restart = min(length, self.restart)
        return length - restart - (self._writing(length) - self._writing(restart))

    def _writing(self, length: int) -> int:
        """Seconds of the first `length` that fall into the writing of checkpoints."""
        if not self.cost:
            return 0
        full, rest = divmod(length, self.interval)
        return full * self.cost + max(0, rest - (self.interval - self.cost))
