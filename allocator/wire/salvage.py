"""The slow way into a snapshot: read what can be read, and name every field that cannot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from allocator.domain import Issue, Reason
from allocator.wire.draft import Draft, workload_path
from allocator.wire.requests import Finding, Requests, canonical_raw, reject
from allocator.wire.shapes import problems
from allocator.wire.snapshot_doc import (
    AllocationDoc,
    ClusterDoc,
    NodeDoc,
    PolicyDoc,
    ReservationDoc,
    SnapshotDoc,
    UsageDoc,
    WorkloadDoc,
)
from allocator.wire.source import loads, refuse, refuse_syntax

_SECTIONS: Mapping[str, type[msgspec.Struct]] = {
    "budgets": AllocationDoc,
    "usage": UsageDoc,
    "workloads": WorkloadDoc,
    "reservations": ReservationDoc,
}
_KEYS = {"budgets": "id", "cluster.nodes": "name"}

_BLANK: Mapping[str, object] = {
    "id": "?", "allocation": "?", "submit_time": 0, "tasks": 1, "gpus_per_task": 1, "min_runtime": 0, "resumable": True
}  # fmt: skip
"""Stands in for the fields of a workload that cannot be read while its other fields are judged."""

Unreadable = list[tuple[int, bytes]]
"""Elements that could not be read: index in the document and JSON text."""

T = TypeVar("T", bound=msgspec.Struct)


def salvage(data: bytes) -> tuple[Draft, Unreadable]:
    """A draft of everything readable, and the workloads that are not: index in the document and JSON text.

    Raises
    ------
    SnapshotError
        If the document is not JSON at all, or not an object.
    """
    parts = _members(data, "$")
    if "starts" in parts and "cluster" not in parts:
        refuse("$", "this is a decision, not a snapshot", "give the snapshot; on the command line it comes first")
    nodes: list[Raw] | None = None
    frame: dict[str, Any] = {}
    sections: dict[str, list[Raw]] = {}
    for key, raw in parts.items():
        elements = _elements(raw) if key in _SECTIONS else None
        if elements is not None:
            sections[key], frame[key] = elements, []
        elif key == "cluster" and _is_object(raw):
            members = _members(raw, "$.cluster")
            nodes = _elements(members["nodes"]) if "nodes" in members else None
            frame[key] = {name: [] if name == "nodes" and nodes is not None else loads(part) for name, part in members.items()}
        else:
            frame[key] = loads(raw)
    draft = _frame(frame)
    draft.doc.cluster.nodes = _read(draft, "cluster.nodes", nodes or [], NodeDoc)
    draft.cluster_known &= nodes is not None
    draft.budgets_known = "budgets" in sections
    for section, elements in sections.items():
        if section != "workloads":
            setattr(draft.doc, section, _read(draft, section, elements, _SECTIONS[section]))
    return draft, _read_workloads(draft, sections.get("workloads", []))


def judge_unreadable(draft: Draft, unreadable: Unreadable, requests: Requests) -> None:
    """Reject by name the waiting workloads that could not be read; those that run or have no id refuse the document."""
    for at, text in unreadable:
        raw = canonical_raw(text)
        value = loads(raw)
        key = value.get("id") if isinstance(value, dict) else None
        if not isinstance(key, str) or not key or value.get("run") is not None:
            draft.issues += problems(value, WorkloadDoc, f"$.workloads[{at}]")
            continue
        issues = problems(value, WorkloadDoc, workload_path(key))
        found: list[Finding] = [(Reason.INVALID_REQUEST, issue) for issue in issues]
        found += judge_rest(value, issues, requests)
        reject(draft, key, found, raw)


def judge_rest(value: Mapping[str, Any], issues: Sequence[Issue], requests: Requests) -> list[Finding]:
    """What else is wrong with a workload, in the fields that could be read."""
    start = len(workload_path(value["id"])) + 1
    bad = {issue.path[start:].split(".")[0].split("[")[0] for issue in issues}
    readable = {key: value[key] for key in WorkloadDoc.__struct_encode_fields__ if key in value and key not in bad}
    try:
        work = msgspec.convert({**_BLANK, **readable}, WorkloadDoc)
    except msgspec.ValidationError:
        return []
    return [(reason, issue) for reason, issue in requests.findings(work) if issue.path[start:].split(".")[0] not in bad]


def _frame(frame: dict[str, Any]) -> Draft:
    """The document without the elements of its long lists; parts that cannot be read take a stand-in."""
    issues = problems(frame, SnapshotDoc, "$")
    cluster, known = _convert(frame.get("cluster"), ClusterDoc), True
    if cluster is None:
        cluster, known = ClusterDoc(levels=("node",), nodes=[]), False
    policy = _convert(frame.get("policy", {}), PolicyDoc) or PolicyDoc()
    now = frame.get("now")
    now = now if isinstance(now, int) and not isinstance(now, bool) and now >= 0 else 0
    doc = SnapshotDoc(version=1, now=now, cluster=cluster, budgets=[], workloads=[], policy=policy)
    return Draft(doc=doc, issues=issues, cluster_known=known)


def _convert(value: Any, kind: type[T]) -> T | None:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return None


def _read(draft: Draft, section: str, elements: Sequence[Raw], kind: type[T]) -> list[T]:
    """The readable elements of a list; the issues of the others go to the draft, their names are remembered."""
    decoder = msgspec.json.Decoder(kind)
    found: list[T] = []
    positions: list[int] = []
    for at, raw in enumerate(elements):
        try:
            found.append(decoder.decode(raw))
            positions.append(at)
        except msgspec.ValidationError:
            value = loads(bytes(raw))
            draft.issues += problems(value, kind, f"$.{section}[{at}]")
            name = value.get(_KEYS.get(section, "id")) if isinstance(value, dict) else None
            draft.unread.setdefault(section, set()).add(name if isinstance(name, str) else "")
    draft.positions[section] = positions
    return found


def _read_workloads(draft: Draft, elements: Sequence[Raw]) -> Unreadable:
    """The readable workloads go to the draft, the others are handed back."""
    decoder = msgspec.json.Decoder(WorkloadDoc)
    unreadable: Unreadable = []
    positions: list[int] = []
    for at, raw in enumerate(elements):
        try:
            draft.doc.workloads.append(decoder.decode(raw))
            positions.append(at)
        except msgspec.ValidationError:
            unreadable.append((at, bytes(raw)))
    draft.positions["workloads"] = positions
    return unreadable


def _members(data: bytes | Raw, path: str) -> dict[str, Raw]:
    """The members of an object, undecoded. Reads the whole text, so that what is not JSON is found here."""
    try:
        return msgspec.json.decode(data, type=dict[str, Raw])
    except msgspec.ValidationError:
        refuse(path, "the document is not a JSON object", "give one object with version, now, cluster, budgets and workloads")
    except (msgspec.DecodeError, RecursionError) as error:
        refuse_syntax(bytes(data), error)


def _is_object(raw: Raw) -> bool:
    return bytes(raw).lstrip().startswith(b"{")


def _elements(raw: Raw) -> list[Raw] | None:
    """The elements of an array, undecoded; None if it is none."""
    try:
        return msgspec.json.decode(raw, type=list[Raw])
    except msgspec.ValidationError:
        return None
