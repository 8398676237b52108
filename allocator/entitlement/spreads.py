"""What gangs pay for being spread, as far as somebody has asked."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from allocator.topology import IntArray


class SpreadCosts(NamedTuple):
    """Of one gang in one pool, by level, shape (num_levels,): the cost of each further domain, and how many cost nothing."""

    per_domain: IntArray
    fewest: IntArray


Spreads = dict[tuple[Hashable, int], SpreadCosts]
"""By what is asked of the nodes, and pool."""
