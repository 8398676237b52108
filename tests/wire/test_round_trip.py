"""What is written is read again; the digest depends on the content alone."""

from __future__ import annotations

import gzip
import json
import random
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from allocator.domain import Policy, SnapshotError
from allocator.wire import decode_snapshot, encode_snapshot, snapshot_digest, snapshot_schema
from tests.wire.documents import NOW, Json, document, encoded, job, running
from tests.wire.strategies import documents


def shuffled(value: Json, seed: int) -> Json:
    """The same document with its unordered lists and all its keys in another order."""
    rng = random.Random(seed)
    lists = [value[key] for key in ("budgets", "usage", "workloads", "reservations") if key in value]
    lists += [value["cluster"]["nodes"], *(work["exclude_nodes"] for work in value["workloads"] if "exclude_nodes" in work)]
    for items in lists:
        rng.shuffle(items)
    return _shuffled_keys(value, rng)


def _shuffled_keys(value: Json, rng: random.Random) -> Json:
    keys = list(value)
    rng.shuffle(keys)
    return {key: _shuffled_item(value[key], rng) for key in keys}


def _shuffled_item(item: object, rng: random.Random) -> object:
    if isinstance(item, dict):
        return _shuffled_keys(item, rng)
    return [_shuffled_item(part, rng) for part in item] if isinstance(item, list) else item


@given(documents())
def test_written_and_read_again(value: Json) -> None:
    snapshot = decode_snapshot(encoded(value))
    written = encode_snapshot(snapshot)
    assert decode_snapshot(written) == snapshot
    assert encode_snapshot(decode_snapshot(written)) == written
    assert snapshot == snapshot.canonical()
    assert len(snapshot.workloads) + len(snapshot.rejected) == len(value["workloads"])


@given(documents(), st.integers(0, 10**6))
def test_order_and_compression_do_not_matter(value: Json, seed: int) -> None:
    snapshot = decode_snapshot(encoded(value))
    other = decode_snapshot(gzip.compress(encoded(shuffled(value, seed))))
    assert other == snapshot
    assert snapshot_digest(other) == snapshot_digest(snapshot)
    assert encode_snapshot(other) == encode_snapshot(snapshot)


@given(documents())
def test_what_is_accepted_fits_the_schema(value: Json) -> None:
    snapshot = decode_snapshot(encoded(value))
    if not snapshot.rejected:
        Draft202012Validator(snapshot_schema()).validate(json.loads(encode_snapshot(snapshot)))


def test_numbers_are_exact() -> None:
    data = document(policy={"reserve_from": 0.1, "weights": {"order": 0.001}})
    data["budgets"][2]["share_by_pool"] = {"h100": 1e-7, "b200": 1e3}
    snapshot = decode_snapshot(encoded(data))
    shares = {vertex.id: vertex for vertex in snapshot.budgets}
    assert shares["eval"].share == Fraction(1, 10)
    assert shares["eval"].share_by_pool == {"h100": Fraction(1, 10**7), "b200": 1000}
    assert snapshot.policy.reserve_from == Fraction(1, 10)
    assert snapshot.policy.weights.order == Fraction(1, 1000)
    assert snapshot.cluster.slowdown == {"rack": Fraction(1, 20)}


def test_defaults_of_document_and_domain_agree() -> None:
    """The wire has its own defaults; they must be those of the domain."""
    assert decode_snapshot(encoded(document(policy={}))).policy == Policy()
    assert decode_snapshot(encoded(document())).policy == Policy()
    work = decode_snapshot(encoded(document(job("w")))).workloads[0]
    short = type(work)(
        id="w", allocation="eval", submit_time=NOW - 60, tasks=1, gpus_per_task=4, min_runtime=3600, resumable=True
    )
    assert work == short


def test_given_defaults_change_no_digest() -> None:
    given_defaults = document(
        job("w", priority=0, renew=False, pools=[], topology={}, user=None), usage=[], policy={"notice": 120}
    )
    expected = snapshot_digest(decode_snapshot(encoded(document(job("w")))))
    assert snapshot_digest(decode_snapshot(encoded(given_defaults))) == expected
    assert expected.startswith("sha256:")
    assert len(expected) == 71


@pytest.mark.parametrize(
    "other",
    [
        document(job("w", tasks=2)),
        document(job("w"), job("v")),
        document(job("w", tasks=0)),
        document(job("w", colour=1)),
        document(job("w"), policy={"notice": 121}),
        document(job("w"), now=NOW + 1),
    ],
)
def test_any_other_content_changes_the_digest(other: Json) -> None:
    digest = snapshot_digest(decode_snapshot(encoded(document(job("w")))))
    assert snapshot_digest(decode_snapshot(encoded(other))) != digest


def test_order_that_means_something_changes_the_digest() -> None:
    one, two = (document(job("w", pools=pools)) for pools in (["h100", "b200"], ["b200", "h100"]))
    assert snapshot_digest(decode_snapshot(encoded(one))) != snapshot_digest(decode_snapshot(encoded(two)))


def test_keys_come_in_the_order_of_the_format() -> None:
    written = json.loads(encode_snapshot(decode_snapshot(encoded(document(running("r", {"n2": 1, "n1": 1}, tasks=2))))))
    assert list(written) == ["version", "now", "cluster", "budgets", "usage", "workloads", "reservations", "policy"]
    assert list(written["cluster"]) == ["levels", "slowdown", "nodes"]
    assert list(written["workloads"][0]) == [
        "id", "allocation", "submit_time", "tasks", "gpus_per_task", "min_runtime", "resumable", "run"
    ]  # fmt: skip
    assert list(written["workloads"][0]["run"]["placement"]) == ["n1", "n2"]
    assert list(written["policy"])[:3] == ["window", "horizon", "protection_cap"]
    assert encode_snapshot(decode_snapshot(encoded(document()))).count(b"\n") == 1


def test_what_the_format_does_not_allow_is_not_written() -> None:
    snapshot = decode_snapshot(encoded(document(job("w"))))
    built = replace(snapshot, workloads=(replace(snapshot.workloads[0], tasks=0),))
    with pytest.raises(SnapshotError, match=r"\$\.workloads\[0\]\.tasks: Expected `int` >= 1"):
        encode_snapshot(built)
    assert snapshot_digest(built) != snapshot_digest(snapshot)
