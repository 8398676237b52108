"""A workload that has not been submitted, for the snapshot it would be submitted into."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec
from msgspec import Raw

from allocator.domain import Issue, Reason, Snapshot, SnapshotError, Workload
from allocator.wire.decode import settle
from allocator.wire.draft import Draft, workload_path
from allocator.wire.requests import Finding, Requests
from allocator.wire.salvage import judge_rest
from allocator.wire.scalars import Name
from allocator.wire.shapes import problems, show
from allocator.wire.snapshot_doc import SnapshotDoc, WorkloadDoc
from allocator.wire.source import loads, plain, refuse, refuse_syntax

_HISTORY = ("run", "stopped", "preempted", "entitled_since")
"""Fields that only what has been submitted can have."""


def decode_request(data: bytes, snapshot: Snapshot) -> Workload:
    """Decode one workload, plain or gzip-compressed, and judge it against a snapshot as `decode_snapshot` would.

    Parameters
    ----------
    data
        A workload in the snapshot's format. `submit_time` may be absent: then it is submitted at `snapshot.now`.
    snapshot
        Names the allocations, pools, levels and labels that exist, and the ids that are taken.

    Raises
    ------
    SnapshotError
        With every issue of the request; paths begin at the request (`$.tasks`). A gang that is merely too large for the
        cluster is no error: a decision rejects it by name.
    """
    value = _object(plain(data))
    value.setdefault("submit_time", snapshot.now)
    issues = [*_check_new(value, snapshot), *_check_fields(value, snapshot)]
    if issues:
        raise SnapshotError(issues)
    work = msgspec.convert(value, WorkloadDoc)
    settle(work)
    found: Workload = msgspec.convert(work, Workload, from_attributes=True)
    return found


def _object(data: bytes) -> dict[str, Any]:
    try:
        msgspec.json.decode(data, type=dict[str, Raw])
        found: dict[str, Any] = loads(data)
    except msgspec.ValidationError:
        refuse("$", "the request is not a JSON object", "give one workload in the snapshot's format")
    except (msgspec.DecodeError, RecursionError) as error:
        refuse_syntax(data, error)
    return found


def _check_new(value: Mapping[str, Any], snapshot: Snapshot) -> Iterable[Issue]:
    """Ensures that nobody has submitted it yet."""
    for key in _HISTORY:
        if value.get(key) is not None:
            yield Issue(path=f"$.{key}", problem="what has not been submitted has no history", remedy="leave it out")
    taken = {work.id for work in snapshot.workloads} | {item.workload for item in snapshot.rejected}
    name = value.get("id")
    if isinstance(name, str) and name in taken:
        yield Issue(path="$.id", problem=f"{show(name)} is in the snapshot already", remedy="give an id of its own")


def _check_fields(value: Mapping[str, Any], snapshot: Snapshot) -> Iterable[Issue]:
    """What a snapshot would reject it for, size apart."""
    asked = {key: field for key, field in value.items() if key not in _HISTORY}
    unnamed = bool(problems(asked.get("id"), Name, "$.id"))
    named = {**asked, "id": "request"} if unnamed else asked
    root = workload_path(named["id"])
    issues = problems(named, WorkloadDoc, root)
    # Struct and dataclass share their field names, and nothing but cluster and budgets is read here.
    requests = Requests(Draft(doc=cast(SnapshotDoc, snapshot)))
    found: list[Finding] = [(Reason.INVALID_REQUEST, issue) for issue in issues]
    found += judge_rest(named, issues, requests)
    if unnamed:
        yield from (issue for issue in problems(asked, WorkloadDoc, "$") if issue.path == "$.id")
    for reason, issue in found:
        path = issue.path.removeprefix(root)
        if reason is Reason.INVALID_REQUEST or path != ".tasks":
            yield Issue(path=f"${path}", problem=issue.problem, remedy=issue.remedy)
