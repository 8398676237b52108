"""Large documents: seconds, not minutes, and a bounded amount of memory."""

from __future__ import annotations

import resource
import time

import msgspec
import pytest

from allocator.wire import decode_snapshot, encode_snapshot, snapshot_digest
from tests.wire.documents import NOW, Json, budget, job, node

NUM_NODES, NUM_WORKLOADS = 12_800, 320_000


def large() -> Json:
    """A cluster of 102,400 GPUs, full, and a queue of 300,000."""
    nodes = [node(f"n{at:05d}", "east", f"rack{at // 16}", cpus=192, memory_gib=2048) for at in range(NUM_NODES)]
    works = [job(f"w{at}", f"a{at % 100}", user=f"u{at % 500}", pools=["h100"], cpus_per_task=8) for at in range(NUM_WORKLOADS)]
    for at in range(NUM_NODES):
        works[at]["run"] = {"start_time": NOW - 600, "placement": {f"n{at:05d}": 1}, "charged": True}
    record = {"pool": "h100", "gpus": 8, "end": NOW}
    usage = [{"id": f"r{at}", "allocation": f"a{at % 100}", "start": NOW - at, **record} for at in range(100_000)]
    cluster = {"levels": ["cluster", "rack", "node"], "nodes": nodes}
    budgets = [budget(f"a{at}") for at in range(100)]
    return {"version": 1, "now": NOW, "cluster": cluster, "budgets": budgets, "usage": usage, "workloads": works}


@pytest.mark.slow
def test_320_000_workloads() -> None:
    value = large()
    data = msgspec.json.encode(value)
    value["workloads"][-1]["tasks"] = -1
    value["workloads"][-2]["colour"] = "red"
    del value["workloads"][: -NUM_WORKLOADS // 10], value["usage"]
    odd = msgspec.json.encode(value)
    del value
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.process_time()
    snapshot = decode_snapshot(data)
    assert time.process_time() - started < 15  # 2 to 3 s on an idle machine
    assert len(snapshot.workloads) == NUM_WORKLOADS
    started = time.process_time()
    assert [rejection.workload for rejection in decode_snapshot(odd).rejected] == ["w319998", "w319999"]
    assert time.process_time() - started < 5  # a tenth, element by element; 0.3 s
    started = time.process_time()
    assert len(encode_snapshot(snapshot)) > 50_000_000
    assert snapshot_digest(snapshot).startswith("sha256:")
    assert time.process_time() - started < 20  # 3 s
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 25 * len(data) / 1024  # all of the above together; a plain dict of everything takes as much alone
