"""What happens to a cluster over a span of time: the input of a replay."""

from __future__ import annotations

from dataclasses import dataclass, field

from allocator.domain.budgets import Allocation, UsageRecord
from allocator.domain.cluster import Cluster
from allocator.domain.policy import Policy
from allocator.domain.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A workload as it is submitted, and what only its future knows. Spans are seconds.

    Parameters
    ----------
    workload
        What the user declares; without a run. For a segment of a campaign `submit_time` is the earliest moment.
    work
        Work at full speed, without restarts, checkpoints and slowdown.
    checkpoint_cost
        What each checkpoint takes, GPUs held.
    fails_after
        Work after which the job dies by itself, for good; None: it completes.
    failing_resumes
        How many of its resumes after a stop fail before one succeeds.
    after
        The job that has to end first (the segments of a campaign run one after the other); None: independent.
    idle
        How long a session keeps its GPUs without using them once its work is done, where the policy lets it.
    """

    workload: Workload
    work: int
    checkpoint_cost: int = 0
    fails_after: int | None = None
    failing_resumes: int = 0
    after: str | None = None
    idle: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """A node is down in [start, end)."""

    node: str
    start: int
    end: int
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintenance:
    """A node is wanted empty: announced at `announced`, work has to be off at `deadline`, the node is back at `end`.

    With `drain` the node takes nothing new from the announcement on; without, what ends in time may still start. A drain
    without a deadline waits until promises have ended.
    """

    node: str
    announced: int
    deadline: int | None
    end: int
    drain: bool = True
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """The whole budget tree that holds from `at` on."""

    at: int
    budgets: tuple[Allocation, ...]
    author: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A cluster, its budgets and all that happens to them in [start, end). Times are seconds since the epoch.

    `jobs` are in order of submission, then id; `usage` is the history before `start`.
    """

    name: str
    start: int
    end: int
    cluster: Cluster
    budgets: tuple[Allocation, ...]
    jobs: tuple[Job, ...]
    policy: Policy = field(default_factory=Policy)
    usage: tuple[UsageRecord, ...] = ()
    outages: tuple[Outage, ...] = ()
    maintenance: tuple[Maintenance, ...] = ()
    revisions: tuple[Revision, ...] = ()
    notes: tuple[str, ...] = ()
