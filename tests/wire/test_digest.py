"""The digest is that of the whole text, whether or not the texts of its parts are known from before."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import msgspec
import pytest

from allocator.domain import NodeState, Rejection, Snapshot
from allocator.wire import Texts, snapshot_digest
from tests.engines.epochs import World
from tests.engines.tiny_contract import tiny_contract


def _plain(value: object) -> object:
    return str(value) if isinstance(value, Fraction) else dict(value) if isinstance(value, Mapping) else None


def whole(snapshot: Snapshot) -> str:
    """The digest by its definition: every field, keys and lists sorted, in one text."""
    bare = replace(snapshot.canonical(), rejected=())
    return "sha256:" + hashlib.sha256(msgspec.json.encode(bare, order="sorted", enc_hook=_plain)).hexdigest()


@pytest.mark.parametrize("seed", range(5))
def test_the_digest_is_that_of_one_text(seed: int) -> None:
    snapshot = tiny_contract(seed)
    assert snapshot_digest(snapshot) == whole(snapshot)


def test_texts_from_before_change_no_digest() -> None:
    world, texts = World.new(2), Texts()
    for _ in range(6):
        assert texts.digest(world.snapshot) == whole(world.snapshot)
        first, *others = world.snapshot.cluster.nodes
        drained = replace(world.snapshot.cluster, nodes=(replace(first, state=NodeState.DRAIN), *others))
        changed = replace(world.snapshot, cluster=drained, budgets=world.snapshot.budgets[:-1])
        assert texts.digest(changed) == whole(changed)
        world.snapshot = replace(world.snapshot, now=world.snapshot.now + 60)


def test_what_is_rejected_counts_as_it_came() -> None:
    snapshot = replace(World.new(1).snapshot, rejected=(Rejection(workload="w", reason="r", detail="d", raw=b'{"id":"w"}'),))
    assert snapshot_digest(snapshot) != whole(snapshot)
    assert snapshot_digest(snapshot) == Texts().digest(snapshot)


def test_texts_remember_no_more_than_the_last_snapshot() -> None:
    texts, snapshot = Texts(), World.new(1).snapshot
    texts.digest(snapshot)
    texts.digest(replace(snapshot, workloads=snapshot.workloads[1:], usage=()))
    assert texts._known["workloads"].parts.keys() == {id(part) for part in snapshot.workloads[1:]}
    assert not texts._known["usage"].parts
    assert texts._known["nodes"].value is snapshot.cluster.nodes
    assert texts._known["budgets"].value is snapshot.budgets


def test_a_part_that_stands_twice_is_written_twice() -> None:
    snapshot = World.new(1).snapshot
    twice = replace(snapshot, budgets=(snapshot.budgets[0], *snapshot.budgets))
    texts = Texts()
    assert texts.digest(twice) == whole(twice)
    assert texts.digest(snapshot) == whole(snapshot)
