"""The express lane of a decision: who is in it and what it still has room for."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from allocator.entitlement.model import Entitlement

MIN_ROOM = 8
"""GPUs of a pool that the lane may always use."""


def lane_limit(ent: Entitlement, pool: int) -> int:
    """GPUs that the lane may hold in a pool."""
    return max(MIN_ROOM, int(ent.snapshot.policy.express.pool_share * int(ent.market.installed[pool])))


@dataclass(slots=True, eq=False)
class Lane:
    """GPUs by pool and workloads by user that run in the lane."""

    ent: Entitlement
    gpus: Counter[int] = field(default_factory=Counter)
    users: Counter[str | None] = field(default_factory=Counter)

    def enter(self, row: int, pool: int) -> None:
        """A workload runs in the lane."""
        self.gpus[pool] += int(self.ent.works.gpus[row])
        self.users[self.ent.snapshot.workloads[row].user] += 1

    def leave(self, row: int, pool: int) -> None:
        """A workload runs in the lane no more."""
        self.gpus[pool] -= int(self.ent.works.gpus[row])
        self.users[self.ent.snapshot.workloads[row].user] -= 1

    def over(self, pool: int, more: int = 0) -> str | None:
        """What is wrong if that many GPUs more were used in a pool, if anything."""
        limit, used = lane_limit(self.ent, pool), self.gpus[pool] + more
        if used <= limit:
            return None
        return f"the lane of {self.ent.layout.pools[pool]} would hold {used} GPUs, it has room for {limit}"

    def crowded(self, user: str | None, more: int = 0) -> str | None:
        """What is wrong if a user had that many workloads more in the lane, if anything."""
        limit, count = self.ent.snapshot.policy.express.per_user, self.users[user] + more
        return f"user {user} would have {count} workloads in the lane, allowed are {limit}" if count > limit else None
