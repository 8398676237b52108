"""Whatever is put in place of whatever: a document is read, or refused with messages; never anything else."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.domain import Issue, SnapshotError
from allocator.wire import decode_snapshot, encode_snapshot, snapshot_digest
from tests.wire.documents import NOW, Json, document, encoded, job, running
from tests.wire.strategies import documents

VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 2, 8, 10**9, 10**30, 0.5, 1e300, "", "n1", "eval", "rack", "h100", "\ud7ff", [], ["x"], [None],
    {}, {"x": 1}, {"n1": 1}, [[]], NOW,
]  # fmt: skip

EVERYTHING = document(
    job("w", topology={"required": "rack", "segment": {"level": "rack", "tasks": 2}}, exclude_nodes=["n1"], node_labels={}),
    running("r", {"n1": 1, "n2": 1}, tasks=2, stopped={"at": 1, "pool": "h100", "gpus": 8, "charged": True}),
    usage=[{"id": "u", "allocation": "eval", "pool": "h100", "gpus": 8, "start": NOW - 9, "end": NOW, "charged": True}],
    policy={"express": {"gpus": 8}, "weights": {"idle": 1}},
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))


def changed(value: Json, path: tuple[Any, ...], change: Any, *, remove: bool) -> Json:
    other = copy.deepcopy(value)
    parent: Any = other
    for key in path[:-1]:
        parent = parent[key]
    if remove:
        del parent[path[-1]]
    else:
        parent[path[-1]] = change
    return other


def check(value: Json) -> bool:
    """Whether it is read; either way all that is claimed has to hold."""
    issues = refusal(value)
    if issues:
        assert all(issue.path.startswith("$") and issue.problem and issue.remedy for issue in issues)
        return False
    snapshot = decode_snapshot(encoded(value))
    assert decode_snapshot(encode_snapshot(snapshot)) == snapshot
    assert snapshot_digest(snapshot)
    assert all(rejection.detail for rejection in snapshot.rejected)
    return True


def refusal(value: Json) -> tuple[Issue, ...]:
    try:
        decode_snapshot(encoded(value))
    except SnapshotError as error:
        return error.issues
    return ()


@pytest.mark.slow
def test_each_place_with_each_value() -> None:
    read = refused = 0
    for path in places(EVERYTHING):
        tries = [changed(EVERYTHING, path, value, remove=False) for value in VALUES]
        found = [check(value) for value in (*tries, changed(EVERYTHING, path, None, remove=True))]
        read += sum(found)
        refused += len(found) - sum(found)
    assert read > 500
    assert refused > 1_500


@pytest.mark.slow
@given(documents(), st.data())
def test_several_places_at_once(value: Json, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 4))):
        path = data.draw(st.sampled_from(list(places(value))))
        value = changed(value, path, data.draw(st.sampled_from(VALUES)), remove=data.draw(st.booleans()))
    check(value)
