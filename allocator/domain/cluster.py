"""Nodes and the topology tree they hang in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction


class NodeState(StrEnum):
    """What an operator or a health check says of a node."""

    UP = "up"
    DRAIN = "drain"
    DOWN = "down"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One schedulable host.

    `domains` names one domain per topology level above the node, coarse to fine; the identity of a domain is its whole
    path. `cpus` and `memory_gib` are None where they are not limited. `drain_deadline` is in seconds since the epoch.
    """

    name: str
    pool: str
    gpus: int
    domains: tuple[str, ...]
    cpus: int | None = None
    memory_gib: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    state: NodeState = NodeState.UP
    drain_deadline: int | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """All nodes, and the names of the topology levels from coarse to fine; the last level is the node.

    `slowdown` gives, by level, the share of speed that a gang loses per further domain of that level it touches.
    """

    levels: tuple[str, ...]
    nodes: tuple[Node, ...]
    slowdown: Mapping[str, Fraction] = field(default_factory=dict)
