"""Nodes as `sinfo --json` shows them, and the topology, as facts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from allocator.dispatch.facts import Fabric, NodeCondition, NodeFact
from allocator.dispatch.slurm import values
from allocator.generate.slurm_topology import read_slurm_topology

_DOWN = frozenset({"DOWN", "ERROR", "FUTURE"})
_DRAIN = frozenset({"DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING"})
_CLOSED = frozenset({"NOT_RESPONDING", "NO_RESPOND", "MAINT", "MAINTENANCE", "RESERVED", "INVALID_REG", "BLOCKED"})
_CLOSED_STEMS = ("POWER", "REBOOT")
UNKNOWN = "UNKNOWN"


def read_nodes(records: Iterable[Mapping[str, Any]]) -> dict[str, NodeFact]:
    """All nodes by name."""
    return {fact.name: fact for fact in map(_fact, records)}


def are_unknown(records: Iterable[Mapping[str, Any]]) -> list[str]:
    """Nodes of which the controller has not heard since it was started."""
    return sorted(str(record["name"]) for record in records if UNKNOWN in _states(record))


def _states(record: Mapping[str, Any]) -> frozenset[str]:
    return values.words(record.get("state")) | values.words(record.get("state_flags"))


def _condition(states: frozenset[str]) -> NodeCondition:
    if states & _DOWN:
        return NodeCondition.DOWN
    if states & _DRAIN:
        return NodeCondition.DRAIN
    if states & _CLOSED or any(state.startswith(_CLOSED_STEMS) for state in states):
        return NodeCondition.CLOSED
    return NodeCondition.OPEN


def _fact(record: Mapping[str, Any]) -> NodeFact:
    count, kind = values.gpus(record.get("gres"))
    partitions = record.get("partitions") or []
    return NodeFact(
        name=str(record["name"]),
        condition=_condition(_states(record)),
        gpus=count,
        gpu_type=kind,
        cpus=values.number(record.get("effective_cpus")) or values.number(record.get("cpus")) or 0,
        memory_mib=values.number(record.get("real_memory")) or 0,
        cpus_used=values.number(record.get("alloc_cpus")) or 0,
        memory_used_mib=values.number(record.get("alloc_memory")) or 0,
        features=_features(record.get("active_features") or record.get("features")),
        partitions=tuple(partitions if isinstance(partitions, list) else str(partitions).split(",")),
        reason=values.text(record.get("reason")),
    )


def _features(value: Any) -> frozenset[str]:
    found = value if isinstance(value, list) else values.text(value).split(",")
    return frozenset(str(name) for name in found if name)


def read_fabric(text: str) -> Fabric:
    """The topology from what `scontrol show topology` prints; without one, all nodes hang at one vertex.

    A switch that has switches repeats the nodes below it there, which topology.conf does not.
    """
    lines = [re.sub(r"\bNodes=\S+", "", line) if "Switches=" in line else line for line in text.splitlines()]
    known = [line for line in lines if line.strip().startswith(("SwitchName=", "BlockName="))]
    if not known:
        return Fabric()
    cluster, _ = read_slurm_topology("\n".join(known), "scontrol show topology")
    return Fabric(levels=cluster.levels, domains={node.name: node.domains for node in cluster.nodes})
