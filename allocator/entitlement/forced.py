"""Stops that nobody chooses."""

from __future__ import annotations

from enum import IntEnum


class Forced(IntEnum):
    """Stops that are no choice."""

    NONE = 0
    NODE_DOWN = 1
    DRAIN_DEADLINE = 2
    DRAIN = 3
    ORDER_LOST = 4
    """An ordered start whose place a victim has not left in time."""
    RESERVED = 5
    """It lies where a gang starts whose reservation is due."""


UNFORCED = int(Forced.NONE)
"""The code of a run that need not stop, as a plain number: it is what arrays of codes are compared with."""
