"""What a reservation is, before and beyond its row in a decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from allocator.topology.layout import BoolArray


@dataclass(frozen=True, slots=True, eq=False)
class Reserved:
    """A gang that is kept `nodes` nodes of a domain from `start` on, for `promise` seconds.

    Attributes
    ----------
    row
        The gang, -1 for one that has started at this very instant.
    pool, domain
        Pool index, and path of the domain (empty: the whole pool).
    usable
        Nodes of the domain of which any `nodes` hold the gang, shape (num_nodes,).
    placement, victims
        Where it starts in this decision (node index -> tasks) and the rows that stop for it; empty before it is due.
    segmented
        Its gang has segments: a number of nodes says too little, so it is kept all that are free by its start.
    bound
        It starts by then, an epoch and down nodes apart.
    waits_for
        Ids of the promises that end at its start.
    remade
        Why an earlier reservation could not be kept; empty if it was, or if there was none.
    """

    row: int
    pool: int
    domain: tuple[str, ...]
    usable: BoolArray
    nodes: int
    start: int
    promise: int
    segmented: bool = False
    eligible_since: int = 0
    bound: int = 0
    waits_for: tuple[str, ...] = ()
    remade: str = ""
    placement: Mapping[int, int] = field(default_factory=dict)
    victims: tuple[int, ...] = ()

    @property
    def due(self) -> bool:
        """Whether it starts in this decision."""
        return bool(self.placement)

    def overlaps(self, other: Reserved) -> bool:
        """Whether some node could serve either."""
        return bool((self.usable & other.usable).any())

    def holds_at(self, instant: int, now: int) -> bool:
        """Whether its gang runs at an instant, if it starts as planned."""
        start = max(self.start, now)
        return start <= instant < start + self.promise
