"""The words of the allocator as frozen dataclasses: no input or output, no numpy, no solver."""

from allocator.domain.budgets import Allocation, UsageRecord
from allocator.domain.cluster import Cluster, Node, NodeState
from allocator.domain.decision import (
    AllocationRow,
    BrokenContract,
    Decision,
    DrainRow,
    Lapse,
    Preemption,
    Promotion,
    Reason,
    Renewal,
    SolverReport,
    Start,
    StopReason,
    WaitingRow,
)
from allocator.domain.errors import AllocatorError, InfeasibleError, Issue, OversizedError, SnapshotError
from allocator.domain.policy import ExpressLane, Policy, Weights
from allocator.domain.printable import printable
from allocator.domain.snapshot import Rejection, Reservation, Snapshot
from allocator.domain.workload import LastStop, Run, Segment, TopologyWish, Unfunded, Workload

__all__ = [
    "Allocation",
    "AllocationRow",
    "AllocatorError",
    "BrokenContract",
    "Cluster",
    "Decision",
    "DrainRow",
    "ExpressLane",
    "InfeasibleError",
    "Issue",
    "Lapse",
    "LastStop",
    "Node",
    "NodeState",
    "OversizedError",
    "Policy",
    "Preemption",
    "Promotion",
    "Reason",
    "Rejection",
    "Renewal",
    "Reservation",
    "Run",
    "Segment",
    "Snapshot",
    "SnapshotError",
    "SolverReport",
    "Start",
    "StopReason",
    "TopologyWish",
    "Unfunded",
    "UsageRecord",
    "WaitingRow",
    "Weights",
    "Workload",
    "printable",
]
