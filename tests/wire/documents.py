"""Snapshot documents in few words, as plain JSON values."""

from __future__ import annotations

import json
from typing import Any

import pytest

from allocator.domain import Issue, Rejection, SnapshotError
from allocator.wire import decode_snapshot

Json = dict[str, Any]

NOW = 1_764_430_000


def node(name: str, *domains: str, **fields: Any) -> Json:
    return {"name": name, "pool": "h100", "gpus": 8, "domains": list(domains) or ["east", "rack1"], **fields}


def budget(key: str, parent: str | None = None, share: float = 1, **fields: Any) -> Json:
    return {"id": key, "parent": parent, "share": share, **fields}


def job(key: str, allocation: str = "eval", **fields: Any) -> Json:
    asked = {"submit_time": NOW - 60, "tasks": 1, "gpus_per_task": 4, "min_runtime": 3600, "resumable": True}
    return {"id": key, "allocation": allocation, **asked, **fields}


def running(key: str, placement: Json, **fields: Any) -> Json:
    run = {"start_time": NOW - 600, "placement": placement, "charged": True}
    return job(key, **{"tasks": sum(placement.values()), **fields}) | {"run": run | fields.get("run", {})}


def document(*workloads: Json, **fields: Any) -> Json:
    """Two racks of two nodes, one program with two projects."""
    cluster = {
        "levels": ["cluster", "rack", "node"],
        "slowdown": {"rack": 0.05},
        "nodes": [node("n1"), node("n2"), node("n3", "east", "rack2"), node("n4", "east", "rack2", pool="b200")],
    }
    budgets = [budget("base"), budget("pretrain", "base", 3), budget("eval", "base", 0.1)]
    return {"version": 1, "now": NOW, "cluster": cluster, "budgets": budgets, "workloads": list(workloads), **fields}


def encoded(value: Json) -> bytes:
    return json.dumps(value).encode()


def issues_of(value: Json | bytes) -> list[Issue]:
    """Why a document is refused."""
    with pytest.raises(SnapshotError) as caught:
        decode_snapshot(value if isinstance(value, bytes) else encoded(value))
    return list(caught.value.issues)


def issue_of(value: Json | bytes) -> str:
    """The one reason for which a document is refused."""
    issues = issues_of(value)
    assert len(issues) == 1, "\n".join(map(str, issues))
    return str(issues[0])


def rejection_of(value: Json) -> Rejection:
    """The one workload that is rejected, while the others are read."""
    snapshot = decode_snapshot(encoded(value))
    assert len(snapshot.rejected) == 1
    assert len(snapshot.workloads) == len(value["workloads"]) - 1
    return snapshot.rejected[0]
