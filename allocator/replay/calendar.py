"""What is to come, in order of time."""

from __future__ import annotations

from enum import IntEnum
from heapq import heappop, heappush
from typing import NamedTuple


class Kind(IntEnum):
    """What happens; of several things at one instant the lower number comes first."""

    END = 0
    REPAIR = 1
    GIVE_BACK = 2
    FAIL = 3
    ANNOUNCE = 4
    DEADLINE = 5
    REVISE = 6
    ARRIVE = 7


class Event(NamedTuple):
    """`key` is a job or node, `number` tells it apart: the attempt of a job, or the row of an outage, maintenance, revision."""

    time: int
    kind: Kind
    key: str
    number: int


class Calendar:
    """A heap of events."""

    def __init__(self) -> None:
        self._heap: list[Event] = []

    def add(self, time: int, kind: Kind, key: str, number: int = 0) -> None:
        """Something will happen."""
        heappush(self._heap, Event(time, kind, key, number))

    @property
    def next_time(self) -> int | None:
        """When the next thing happens."""
        return self._heap[0].time if self._heap else None

    def pop(self) -> Event:
        """The next thing to happen."""
        return heappop(self._heap)
