"""Waiting workloads that are rejected by name while everything else is read."""

from __future__ import annotations

import random

import pytest

from allocator.domain import Reason
from allocator.wire import decode_snapshot, encode_snapshot
from tests.wire.documents import Json, document, encoded, job, rejection_of

INVALID, IMPOSSIBLE = Reason.INVALID_REQUEST, Reason.TOPOLOGY_IMPOSSIBLE

CASES: list[tuple[str, Json, Reason, str]] = [
    ("unknown field", {"colour": "red"}, INVALID, '.colour: unknown field "colour"; valid are "id", "allocation"'),
    ("misspelt field", {"max_runtme": 5}, INVALID, '.max_runtme: unknown field "max_runtme"; did you mean "max_runtime"?'),
    ("wrong type", {"tasks": "2"}, INVALID, '.tasks: "2" is not valid here; give an integer from 1 to 1,000,000,000'),
    ("float", {"tasks": 1.5}, INVALID, ".tasks: 1.5 is not valid here; give an integer"),
    ("boolean", {"tasks": True}, INVALID, ".tasks: true is not valid here"),
    ("no tasks", {"tasks": 0}, INVALID, ".tasks: 0 is not valid here"),
    ("negative tasks", {"tasks": -1}, INVALID, ".tasks: -1 is not valid here"),
    ("a billion tasks", {"tasks": 10**9}, IMPOSSIBLE, ".tasks: 1000000000 tasks of 4 GPUs are 4000000000 GPUs, the largest"),
    ("more than any number", {"tasks": 10**30}, INVALID, ".tasks: 1000000000000000000000000000000 is not valid here"),
    ("negative runtime", {"min_runtime": -5}, INVALID, ".min_runtime: -5 is not valid here; give an integer from 0"),
    ("milliseconds", {"submit_time": 1_764_430_000_000}, INVALID, ".submit_time: 1764430000000 is not valid here"),
    ("empty name", {"pools": [""]}, INVALID, '.pools[0]: "" is not valid here; give a non-empty string'),
    ("unknown word", {"unfunded": "maybe"}, INVALID, '.unfunded: "maybe" is not valid here; give one of "run", "wait"'),
    ("null", {"resumable": None}, INVALID, ".resumable: null is not valid here; give true or false"),
    ("unknown allocation", {"allocation": "evla"}, INVALID, '.allocation: unknown allocation "evla"; did you mean "eval"?'),
    ("inner allocation", {"allocation": "base"}, INVALID, '.allocation: "base" is not a leaf of the budget tree; submit to a'),
    (
        "unknown level",
        {"topology": {"required": "rakc"}},
        IMPOSSIBLE,
        '.topology.required: unknown level "rakc"; did you mean "rack"?',
    ),
    (
        "unknown preferred level",
        {"topology": {"preferred": "su"}},
        IMPOSSIBLE,
        '.topology.preferred: unknown level "su"; valid are',
    ),
    (
        "unknown segment",
        {"topology": {"segment": {"level": "x", "tasks": 2}}},
        IMPOSSIBLE,
        ".topology.segment.level: unknown level",
    ),
    ("unknown pool", {"pools": ["h1000"]}, INVALID, '.pools: no accepted pool exists: "h1000"; did you mean "h100"?'),
    ("unknown label", {"node_labels": {"arch": "arm"}}, INVALID, '.node_labels: no node of "b200", "h100" has the labels'),
    (
        "task larger than a node",
        {"gpus_per_task": 9},
        INVALID,
        ".gpus_per_task: 9 exceeds every node, the largest of the nodes of",
    ),
    ("memory of a node", {"memory_gib_per_task": 3000}, INVALID, ".memory_gib_per_task: 3000 exceeds every node"),
    (
        "gang larger than a pool",
        {"tasks": 4, "gpus_per_task": 8},
        IMPOSSIBLE,
        ".tasks: 4 tasks of 8 GPUs are 32 GPUs, the largest",
    ),
]


@pytest.mark.parametrize(("change", "reason", "detail"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_rejected_by_name(change: Json, reason: Reason, detail: str) -> None:
    data = document(job("good"), job("bad") | change)
    for node in data["cluster"]["nodes"]:
        node["memory_gib"] = 2000
    rejection = rejection_of(data)
    assert rejection.workload == "bad"
    assert rejection.reason == reason
    assert rejection.detail.startswith(f"$.workloads[?@.id=='bad']{detail}")


def test_a_missing_field() -> None:
    data = document(job("good"), job("bad"))
    del data["workloads"][1]["min_runtime"]
    assert rejection_of(data).detail == (
        "$.workloads[?@.id=='bad'].min_runtime: the field is missing; "
        "give an integer from 0 to 315,360,000 (shortest useful run, in seconds; 0: free of charge and not protected)"
    )


def test_all_problems_of_a_workload_are_named() -> None:
    bad = job("bad", "evla", tasks=-1, topology={"required": "rakc"}, pools=["a100"], **{"odd one": 1})
    rejection = rejection_of(document(bad))
    assert rejection.reason == INVALID
    for part in (".tasks: -1", '"evla"', '"rakc"', '"a100"', '["odd one"]'):
        assert part in rejection.detail
    assert rejection.detail.count(" | ") == 4


def test_resources_count_together() -> None:
    """One node has the GPUs, another the memory, none has both."""
    data = document(job("bad", gpus_per_task=8, memory_gib_per_task=1000, pools=["h100"]))
    for node, gpus, memory in zip(data["cluster"]["nodes"], (8, 4, 8, 8), (500, 2000, 500, 2000), strict=True):
        node |= {"gpus": gpus, "memory_gib": memory}
    assert "no single one of the nodes" in rejection_of(data).detail


def test_some_known_pool_suffices() -> None:
    assert not decode_snapshot(encoded(document(job("w", pools=["a100", "h100"])))).rejected


def test_unlimited_nodes_hold_any_cpus() -> None:
    assert not decode_snapshot(encoded(document(job("w", cpus_per_task=900, memory_gib_per_task=9000)))).rejected


def test_labels_and_size_have_to_meet_on_a_node() -> None:
    data = document(job("bad", gpus_per_task=8, node_labels={"arch": "arm"}))
    data["cluster"]["nodes"][0] |= {"labels": {"arch": "arm"}, "gpus": 4}
    assert "has 4; ask for at most 4 per task" in rejection_of(data).detail


def test_ids_that_need_quoting() -> None:
    assert "[?@.id=='it\\'s \\\\']" in rejection_of(document(job("it's \\", tasks=0))).detail
    assert "[?@.id=='a \"b\" ü']" in rejection_of(document(job('a "b" ü', tasks=0))).detail
    assert "[?@.id=='a\\n\\u001b']" in rejection_of(document(job("a\n\x1b", tasks=0))).detail


def test_rejected_workloads_are_not_lost() -> None:
    bad = job("bad", tasks=0, colour="red", min_runtime=1.5)
    before = decode_snapshot(encoded(document(job("a"), bad, job("c", "evla"), job("d"))))
    written = encode_snapshot(before)
    assert b'"colour":"red"' in written
    assert decode_snapshot(written) == before
    assert encode_snapshot(decode_snapshot(written)) == written


@pytest.mark.parametrize("number", ["1e400", "0.10", "1E5", "1" * 5_000])
def test_numbers_of_rejected_workloads_stay_as_written(number: str) -> None:
    data = encoded(document(job("bad", tasks=77))).replace(b'"tasks": 77', f'"tasks": {number}'.encode())
    before = decode_snapshot(data)
    assert number.replace("E5", "E+5").replace("e400", "E+400").encode() in encode_snapshot(before)
    assert decode_snapshot(encode_snapshot(before)) == before


def test_messages_do_not_depend_on_the_order_of_lists() -> None:
    works = [job(f"w{at}", "evla", tasks=at % 3, pools=["x"]) for at in range(20)]
    data = document(*works)
    expected = decode_snapshot(encoded(data)).rejected
    rng = random.Random(1)
    for part in (data["workloads"], data["budgets"], data["cluster"]["nodes"]):
        rng.shuffle(part)
    assert decode_snapshot(encoded(data)).rejected == expected
