"""What can go wrong in a replay."""

from __future__ import annotations

from allocator.domain import AllocatorError


class ReplayError(AllocatorError):
    """The replay cannot go on: a broken invariant, an impossible decision, or a checkpoint that does not fit."""


class MissingExtraError(AllocatorError):
    """A package is needed that is not installed."""


def broken(now: int, where: str, what: str) -> ReplayError:
    """An invariant that does not hold, with place and time."""
    return ReplayError(f"at {now}: {where}: {what}")
