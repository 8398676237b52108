"""What a scheduler shows at one instant, in words that no scheduler owns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from allocator.domain import Allocation


class JobState(StrEnum):
    """Where a job is in its life."""

    WAITING = "waiting"
    RUNNING = "running"
    LEAVING = "leaving"  # told to stop, or ending: it still holds its nodes
    ENDED = "ended"


class NodeCondition(StrEnum):
    """What may happen on a node. CLOSED: nothing starts, and what runs there stays; it may come back by itself."""

    OPEN = "open"
    CLOSED = "closed"
    DRAIN = "drain"
    DOWN = "down"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFact:
    """One job as the scheduler shows it.

    `id` stays the same over restarts; `incarnation` counts them. `nodes` are those it holds, `wanted_nodes` those it would
    start on if it were released. `gpus`, `cpus` and `memory_mib` are those of the whole job, times in seconds since the epoch,
    spans in seconds. `gpus_per_node` is 0 where the job leaves open how its GPUs are split. `eligible` is False while a
    dependency or a begin time holds it back. `blocked`: it is released, but the scheduler will not start it. `problem` says
    why it can never be placed exactly. `said` is what its owner is shown of the allocator or an administrator; `record` names
    the tasks of an array that the scheduler keeps as one while they wait.
    """

    id: str
    state: JobState
    held: bool = False
    incarnation: int = 0
    nodes: tuple[str, ...] = ()
    wanted_nodes: tuple[str, ...] = ()
    submit_time: int = 0
    start_time: int | None = None
    end_time: int | None = None
    account: str = ""
    user: str = ""
    qos: str = ""
    partition: str = ""
    num_nodes: int = 1
    gpus: int = 0
    gpus_per_node: int = 0
    gpu_type: str | None = None
    cpus: int = 0
    memory_mib: int = 0
    time_limit: int | None = None
    min_runtime: int | None = None
    resumable: bool = True
    comment: str = ""
    features: str = ""
    exclude: tuple[str, ...] = ()
    eligible: bool = True
    reason: str = ""
    blocked: bool = False
    said: str = ""
    record: str = ""
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFact:
    """One node as the scheduler shows it; `gpus` are installed, `cpus_used` and `memory_used_mib` taken by jobs of any kind."""

    name: str
    condition: NodeCondition
    gpus: int = 0
    gpu_type: str | None = None
    cpus: int = 0
    memory_mib: int = 0
    cpus_used: int = 0
    memory_used_mib: int = 0
    features: frozenset[str] = frozenset()
    partitions: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """The topology: level names from coarse to fine, the last is the node, and the domains above each node."""

    levels: tuple[str, ...] = ("cluster", "node")
    domains: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Everything a scheduler shows at the instant `now`. `accounts` is empty where it keeps none."""

    now: int
    jobs: Mapping[str, JobFact]
    nodes: Mapping[str, NodeFact]
    fabric: Fabric = field(default_factory=Fabric)
    accounts: tuple[Allocation, ...] = ()
