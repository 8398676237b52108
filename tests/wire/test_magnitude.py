"""Snapshots whose fields are in range each, and whose sums are not: refused, never counted wrongly."""

from __future__ import annotations

import json
from typing import Any

import pytest

from allocator.engine import allocate
from allocator.verify import verify
from allocator.wire import decode_decision, decode_snapshot, encode_decision
from allocator.wire.magnitude import LARGEST_DECAYED_USAGE, LARGEST_USAGE
from tests.wire.documents import NOW, Json, document, encoded, issue_of, job, node, running

WEIGHTS = ("unfairness", "express", "idle", "lost_work", "spread", "fragmentation", "order")


def record(gpus: int, seconds: int, **fields: Any) -> Json:
    return {"allocation": "eval", "pool": "h100", "gpus": gpus, "start": NOW - seconds, "end": NOW, **fields}


def heavy(gpus: int, step: int) -> Json:
    value = document(job("w"), policy={"weights": dict.fromkeys(WEIGHTS, 1e4), "planning_step": step})
    value["cluster"]["nodes"] = [node(f"n{i}", gpus=gpus) for i in range(200)]
    return value


def test_an_objective_beyond_64_bits_is_refused() -> None:
    message = issue_of(heavy(4096, 315_360_000))
    assert message.startswith("$.policy.weights: the objective could reach 2.")
    assert "lower the weights" in message


def test_a_start_long_ago_counts_at_the_weight_of_lost_work() -> None:
    works = [running("r", {"n1": 1}, resumable=False, run={"start_time": 0})]
    assert len(decode_snapshot(encoded(document(*works))).workloads) == 1
    value = document(*works, policy={"weights": {"lost_work": 10_000}})
    value["cluster"]["nodes"] += [node(f"m{i}", gpus=4096) for i in range(100)]
    assert issue_of(value).startswith("$.policy.weights: ")


def test_what_is_lost_counts_once_for_each_stop_before() -> None:
    """On the last try nothing limits what a stop costs, so that it may be as dear as that."""

    def stopped(times: int) -> Json:
        value = document(running("r", {"n1": 1}, resumable=False, preempted=times, run={"start_time": NOW - 86_400}))
        value["cluster"]["nodes"] += [node(f"m{i}", gpus=4096) for i in range(100)]
        return value

    assert len(decode_snapshot(encoded(stopped(8))).workloads) == 1
    assert issue_of(stopped(1_000_000)).startswith("$.policy.weights: ")


def test_an_objective_just_below_is_decided_and_verified() -> None:
    snapshot = decode_snapshot(encoded(heavy(4096, 1_000)))
    decision = allocate(snapshot, engine="greedy")
    assert verify(snapshot, decode_decision(encode_decision(decision))).ok


@pytest.mark.parametrize(
    ("policy", "records", "row"),
    [
        ({"window": 315_360_000}, [record(8, 60), *[record(10**9, 315_360_000)] * 40], 1),
        ({"half_life": 604_800}, [record(8, 60), record(10**9, 315_360_000)], 1),
        ({"half_life": 315_360_000}, [record(10**9, 10_000), record(8, 60)], 0),
    ],
)
def test_usage_that_cannot_be_added_up_is_refused(policy: Json, records: list[Json], row: int) -> None:
    message = issue_of(document(job("w"), usage=records, policy=policy))
    assert message.startswith(f"$.usage[{row}].gpus: 1000000000 GPUs in the largest of the records")


@pytest.mark.parametrize(
    ("policy", "records"),
    [
        ({}, [record(10**9, 604_800)] * 6),
        ({"half_life": 315_360_000}, [record(LARGEST_DECAYED_USAGE // 315_360_000, 315_360_000)]),
        ({"half_life": 3_600}, [record(10**9, 60, end=NOW - 40 * 86_400, start=NOW - 41 * 86_400)]),  # faded away
    ],
)
def test_usage_just_below_is_counted(policy: Json, records: list[Json]) -> None:
    snapshot = decode_snapshot(encoded(document(job("w"), usage=records, policy=policy)))
    rows = json.loads(encode_decision(allocate(snapshot, engine="greedy")))["allocations"]
    used = next(row["usage_gpu_seconds"] for row in rows if (row["id"], row["pool"]) == ("eval", "h100"))
    assert 0 <= used <= LARGEST_USAGE


def test_the_end_of_the_clock_can_still_be_written_down() -> None:
    last = document(job("w", min_runtime=28_800), now=90_000_000_000)
    assert decode_decision(encode_decision(allocate(decode_snapshot(encoded(last)), engine="greedy"))).starts
    assert issue_of({**last, "now": 90_000_000_001}).startswith("$.now: 90000000001 is not valid here")
