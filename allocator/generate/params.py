"""What a generated snapshot is asked to look like."""

from __future__ import annotations

from dataclasses import dataclass

from allocator.domain import Issue, SnapshotError

DAY = 86_400
HOUR = 3_600

NOW = 1_764_430_000
"""The instant of every synthetic snapshot: a Saturday afternoon, so that files of one seed never differ."""

TRACE_START = 1_764_547_200
"""Where synthetic traces begin: a Monday, 00:00 local time."""

MAX_GPUS = 2_000_000
"""Beyond this a request is a typing error, not a cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotParams:
    """Size and shape of a synthetic snapshot; None leaves the choice to the family.

    Attributes
    ----------
    gpus
        Installed GPUs over all pools.
    pools
        1 (h100) or 3 (h100, b200, b300).
    queue
        Running plus waiting demand as a multiple of the installed GPUs.
    leaves
        Researchers in the budget tree.
    history
        Whether a week of usage records comes with the snapshot.
    """

    gpus: int | None = None
    pools: int | None = None
    queue: float | None = None
    leaves: int | None = None
    history: bool = True

    def __post_init__(self) -> None:
        """Refuse what cannot be generated, all of it at once."""
        issues: list[Issue] = []
        if self.gpus is not None and not 8 <= self.gpus <= MAX_GPUS:
            issues.append(Issue(path="gpus", problem=f"{self.gpus} GPUs", remedy=f"give 8 to {MAX_GPUS}"))
        if self.pools is not None and self.pools not in (1, 3):
            issues.append(Issue(path="pools", problem=f"{self.pools} pools", remedy="give 1 (h100) or 3 (h100, b200, b300)"))
        if self.queue is not None and not 0 <= self.queue <= 1000:
            issues.append(Issue(path="queue", problem=f"demand of {self.queue} clusters", remedy="give 0 to 1000"))
        if self.leaves is not None and not 1 <= self.leaves <= 100_000:
            issues.append(Issue(path="leaves", problem=f"{self.leaves} leaf allocations", remedy="give 1 to 100000"))
        if issues:
            raise SnapshotError(issues)
