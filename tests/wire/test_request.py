"""Work that has not been submitted: read like the workloads of a snapshot, and refused with everything that is wrong."""

from __future__ import annotations

import gzip
from typing import Any

import pytest

from allocator.domain import SnapshotError
from allocator.wire import decode_request, decode_snapshot
from tests.wire.documents import NOW, Json, document, encoded, job

SNAPSHOT = decode_snapshot(encoded(document(job("w"), job("bad", tasks=-1))))


def paths(value: Any) -> list[str]:
    data = value if isinstance(value, bytes) else encoded(value)
    with pytest.raises(SnapshotError) as caught:
        decode_request(data, SNAPSHOT)
    return sorted(issue.path for issue in caught.value.issues)


def without(value: Json, *keys: str) -> Json:
    return {key: field for key, field in value.items() if key not in keys}


def test_it_is_the_workload_that_a_snapshot_would_hold() -> None:
    asked = job("new", pools=["b200", "h100"], topology={"required": "rack"}, exclude_nodes=["n2", "n1"], user="u")
    submitted = decode_snapshot(encoded(document(asked))).workloads[0]
    assert decode_request(encoded(asked), SNAPSHOT) == submitted
    assert decode_request(gzip.compress(encoded(asked)), SNAPSHOT) == submitted


def test_without_a_submit_time_it_is_submitted_now() -> None:
    assert decode_request(encoded(without(job("new"), "submit_time")), SNAPSHOT).submit_time == NOW


def test_a_gang_beyond_the_cluster_is_left_to_the_decision() -> None:
    assert decode_request(encoded(job("new", tasks=10**9)), SNAPSHOT).tasks == 10**9


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (job("w"), ["$.id"]),
        (job("bad"), ["$.id"]),
        (job("new", allocation="evla"), ["$.allocation"]),
        (job("new", allocation="base"), ["$.allocation"]),
        (job("new", gpus_per_task=9), ["$.gpus_per_task"]),
        (job("new", pools=["a100"]), ["$.pools"]),
        (job("new", node_labels={"arch": "arm"}), ["$.node_labels"]),
        (job("new", topology={"required": "rakc", "preferred": "pod"}), ["$.topology.preferred", "$.topology.required"]),
        (job("new", colour="red"), ["$.colour"]),
        (job("new", run={"placement": {"n1": 1}, "charged": True}), ["$.run"]),
        (job("new", preempted=2, entitled_since=5), ["$.entitled_since", "$.preempted"]),
        (without(job("new"), "id"), ["$.id"]),
        (job("") | {"allocation": "evla", "tasks": 0}, ["$.allocation", "$.id", "$.tasks"]),
        (job("new", tasks=0, min_runtime="1h") | {"allocation": "evla"}, ["$.allocation", "$.min_runtime", "$.tasks"]),
        ([], ["$"]),
        (b"", ["$"]),
        (b'{"id": ', ["$"]),
        (b'{"id": "new", "tasks": NaN}', ["$"]),
        (b"[" * 100_000, ["$"]),
    ],
)
def test_everything_that_is_wrong_is_named(value: Any, expected: list[str]) -> None:
    assert paths(value) == expected
