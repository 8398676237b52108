"""What the epochs of one cluster have in common: found once, as long as it does not change."""

from __future__ import annotations

from dataclasses import dataclass

from allocator.entitlement import Entitlement


@dataclass(slots=True)
class Session:
    """Give the same session to `allocate` for every epoch of a cluster.

    It saves time and never changes a decision: everything in it is looked at only after a check that what it was made from is
    still the same. It holds what the last epoch found, so that its size is bounded; a copy that was pickled remembers nothing.

    Taken over are the layout of the nodes with what was asked of it, the budget tree, the columns of workloads (as long as a
    workload is the same object or an equal one) and the texts that the digest is made from (as long as the object is the same).
    Snapshots and what stands in them are immutable: to change something, put a new object in its place.

    Attributes
    ----------
    before
        What held at the last call.
    """

    before: Entitlement | None = None

    def __reduce__(self) -> tuple[type[Session], tuple[()]]:
        """Without its memory: that is only a matter of time, and full of weak references."""
        return Session, ()
