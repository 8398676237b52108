"""Plays a small cluster through some instants: every bar of a picture is what decisions made of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import allocator
from allocator.domain import Decision, NodeState, Snapshot, Workload
from allocator.wire import decode_request

Json = dict[str, Any]
Event = Callable[[Snapshot], Snapshot]

NOW = 1_764_576_000
"""The instant 0 of every picture."""

HOUR = 3600
MINUTE = 60


@dataclass(slots=True)
class Bar:
    """Work on one node, or in the queue (`node` None), from one instant to another, in seconds since `NOW`."""

    work: str
    allocation: str
    node: str | None
    gpus: int
    begin: int
    end: int
    kind: str
    """promised, after (charged, promise over), free (of charge), waits, leaves (told to stop) or ordered (to start later)"""


@dataclass(slots=True)
class Mark:
    """A vertical line with a word, and a stretch of a node that takes no work (`until` given)."""

    at: int
    text: str = ""
    node: str | None = None
    until: int | None = None


@dataclass(slots=True)
class Picture:
    """What is to be drawn. `unit`: seconds of a tick."""

    title: str
    nodes: Sequence[str]
    end: int
    bars: list[Bar]
    marks: list[Mark] = field(default_factory=list)
    unit: int = HOUR
    size: int = 8
    """GPUs of a node"""


@dataclass(slots=True)
class Play:
    """A snapshot that goes through instants; `decisions` by instant."""

    snapshot: Snapshot
    bars: list[Bar] = field(default_factory=list)
    decisions: dict[int, Decision] = field(default_factory=dict)

    def run(self, instants: Sequence[int], events: Mapping[int, Event] | None = None) -> Play:
        """Decide at each instant but the last, after what happens there."""
        for at, following in pairwise(instants):
            event = (events or {}).get(at)
            if event is not None:
                self.snapshot = event(self.snapshot)
            decision = allocator.allocate(self.snapshot, engine="greedy")
            assert allocator.verify(self.snapshot, decision).ok
            self.decisions[at] = decision
            self._draw(allocator.apply(self.snapshot, decision), at, following)
            self.snapshot = allocator.apply(self.snapshot, decision, advance=following - at)
        return self

    def _draw(self, snapshot: Snapshot, begin: int, end: int) -> None:
        """One stretch of time; what goes on as it was is drawn on."""
        for work in snapshot.workloads:
            if work.run is None:
                self._add(Bar(work.id, work.allocation, None, work.gpus, begin, end, "waits"))
                continue
            for node, tasks in work.run.placement.items():
                for left, right, kind in _stretches(work, begin, end):
                    self._add(Bar(work.id, work.allocation, node, tasks * work.gpus_per_task, left, right, kind))

    def _add(self, bar: Bar) -> None:
        for other in reversed(self.bars):
            if (other.work, other.node, other.kind, other.end) == (bar.work, bar.node, bar.kind, bar.begin):
                other.end = bar.end
                return
        self.bars.append(bar)


def _stretches(work: Workload, begin: int, end: int) -> list[tuple[int, int, str]]:
    """How a run is seen between two instants: told to leave, ordered for later, promised, charged, free of charge."""
    run = work.run
    assert run is not None
    if run.terminating_until is not None:
        return [(begin, end, "leaves")]
    if not run.charged:
        return [(begin, end, "free")]
    start = max(begin, (run.start_time or 0) - NOW)
    until = min(max((run.protected_until or 0) - NOW, start), end)
    parts = [(begin, min(start, end), "ordered"), (start, until, "promised"), (until, end, "after")]
    return [part for part in parts if part[0] < part[1]]


# --- what scenes are made of ---------------------------------------------------------------------------------------------


def cluster(
    nodes: Sequence[str | Json], budgets: Mapping[str, float | Json], works: Sequence[Json] = (), **fields: Any
) -> Snapshot:
    """One rack of 8-GPU nodes, allocations with their shares, and work."""
    machines = [
        {"pool": "h100", "gpus": 8, "domains": ["c", "r1"]} | ({"name": one} if isinstance(one, str) else one) for one in nodes
    ]
    document = {
        "version": 1,
        "now": NOW,
        "cluster": {"levels": ["cluster", "rack", "node"], "nodes": machines},
        "budgets": [
            {"id": key, "parent": None} | (share if isinstance(share, dict) else {"share": share})
            for key, share in budgets.items()
        ],
        "workloads": list(works),
        **fields,
    }
    return allocator.decode_snapshot(json.dumps(document).encode())


def job(key: str, allocation: str, hours: float, gpus: int = 8, **fields: Any) -> Json:
    """Work that waits: tasks of up to 8 GPUs, a promise of some hours, nothing lost but a minute when it is stopped."""
    per_task = min(gpus, 8)
    usual = {"submit_time": NOW, "tasks": gpus // per_task, "gpus_per_task": per_task, "min_runtime": round(hours * HOUR)}
    usual |= {"resumable": True, "checkpoint_on_notice": True, "restart_time": 60}
    return {"id": key, "allocation": allocation, **usual, **fields}


def running(work: Json, *nodes: str, since: float = -1, until: float | None = None, **fields: Any) -> Json:
    """The same work on nodes, in hours since the instant 0; charged unless said otherwise."""
    start = NOW + round(since * HOUR)
    run: Json = {"placement": dict.fromkeys(nodes, 1), "charged": True, "start_time": start, **fields}
    if run["charged"]:
        run = {"granted_at": start, "charged_since": start} | run
    if until is not None:
        run["protected_until"] = NOW + round(until * HOUR)
    return work | {"run": run}


def arrives(*works: Json) -> Event:
    """Work that is submitted at an instant."""

    def event(snapshot: Snapshot) -> Snapshot:
        for work in works:
            new = {key: value for key, value in work.items() if key != "submit_time"}
            request = decode_request(json.dumps(new).encode(), snapshot)
            snapshot = replace(snapshot, workloads=(*snapshot.workloads, request)).canonical()
        return snapshot

    return event


def ends(*ids: str) -> Event:
    """Work that ends by itself."""
    return lambda snapshot: allocator.finish(snapshot, *ids)


def dies(name: str) -> Event:
    """A node that goes down."""

    def event(snapshot: Snapshot) -> Snapshot:
        nodes = tuple(replace(node, state=NodeState.DOWN) if node.name == name else node for node in snapshot.cluster.nodes)
        return replace(snapshot, cluster=replace(snapshot.cluster, nodes=nodes))

    return event


def hours(*instants: float) -> list[int]:
    """Instants in seconds."""
    return [round(instant * HOUR) for instant in instants]
