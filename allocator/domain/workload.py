"""Workloads: what is asked for, and where it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Unfunded(StrEnum):
    """What a workload accepts when its promise cannot be funded."""

    RUN = "run"
    WAIT = "wait"


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Every domain of `level` holds a multiple of `tasks` tasks, but for one remainder."""

    level: str
    tasks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyWish:
    """`required`: all tasks inside one domain of that level. `preferred`: costs more when it is missed."""

    required: str | None = None
    preferred: str | None = None
    segment: Segment | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LastStop:
    """The last stop by a decision. `placement` is known when this product's own `apply` wrote it; so is `express`: a run of
    the express lane that was stopped by choice. `begun` is False for what was ordered for later and had not begun: such a
    stop costs nothing and counts for nothing."""

    at: int
    pool: str
    gpus: int
    charged: bool
    placement: Mapping[str, int] | None = None
    express: bool = False
    begun: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run that holds GPUs: `placement` maps node names to tasks. Times are seconds since the epoch.

    `charged_since` is the moment from which the time is charged (a promotion comes later than the start), `granted_at`
    the moment of the promise that `protected_until` ends.
    """

    placement: Mapping[str, int]
    charged: bool
    start_time: int | None = None
    charged_since: int | None = None
    granted_at: int | None = None
    protected_until: int | None = None
    express: bool = False
    last_checkpoint: int | None = None
    terminating_until: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A gang of `tasks` x `gpus_per_task`, all or nothing, in one pool. Without `run` it is waiting.

    Spans (`min_runtime`, `checkpoint_interval`, `restart_time`, `max_runtime`) are seconds. `job_class` is `class` on the
    wire. An empty `pools` accepts any pool.
    """

    id: str
    allocation: str
    submit_time: int
    tasks: int
    gpus_per_task: int
    min_runtime: int
    resumable: bool
    user: str | None = None
    job_class: str | None = None
    cpus_per_task: int | None = None
    memory_gib_per_task: int | None = None
    pools: tuple[str, ...] = ()
    topology: TopologyWish = field(default_factory=TopologyWish)
    node_labels: Mapping[str, str] = field(default_factory=dict)
    exclude_nodes: tuple[str, ...] = ()
    checkpoint_interval: int | None = None
    checkpoint_on_notice: bool = False
    restart_time: int = 300
    unfunded: Unfunded = Unfunded.RUN
    renew: bool = False
    priority: int = 0
    max_runtime: int | None = None
    preempted: int = 0
    entitled_since: int | None = None
    stopped: LastStop | None = None
    run: Run | None = None

    @property
    def gpus(self) -> int:
        """GPUs of the whole gang."""
        return self.tasks * self.gpus_per_task
