"""What can go wrong while cells are played."""

from __future__ import annotations

from allocator.domain import AllocatorError


class WhatIfError(AllocatorError):
    """A cell cannot be played, or what should play it is not there."""
