"""The names that a user imports."""

from __future__ import annotations

import json

import allocator
from tests.wire.documents import document, job


def test_the_whole_way_through_the_public_names() -> None:
    snapshot = allocator.decode_snapshot(json.dumps(document(job("w"))).encode())
    decision = allocator.allocate(snapshot, engine="greedy")
    assert allocator.verify(snapshot, decision).ok
    assert allocator.decode_decision(allocator.encode_decision(decision)) == decision
    later = allocator.apply(snapshot, decision, advance=60)
    assert [work.id for work in later.workloads if work.run is not None] == ["w"]
    assert decision.snapshot == allocator.snapshot_digest(snapshot)
    assert allocator.decode_snapshot(allocator.encode_snapshot(later)) == later
