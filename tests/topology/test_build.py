"""From nodes to arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from allocator.domain import Cluster, Node, NodeState, Snapshot
from allocator.topology import NEVER, UNLIMITED, Layout, build_layout

NOW = 1000


def layout_of(*nodes: Node, levels: tuple[str, ...] = ("cluster", "leaf", "node")) -> Layout:
    return build_layout(Snapshot(now=NOW, cluster=Cluster(levels=levels, nodes=nodes), budgets=(), workloads=()))


def node(name: str, *domains: str, **fields: Any) -> Node:
    stated: dict[str, Any] = {"name": name, "pool": "p", "gpus": 8, "domains": domains or ("c", "l")}
    return Node(**stated | fields)


def test_nodes_stand_in_the_order_of_their_names() -> None:
    layout = layout_of(node("b", pool="q", gpus=4, cpus=32), node("a", memory_gib=64))
    assert layout.names == ("a", "b")
    assert layout.index == {"a": 0, "b": 1}
    assert layout.pools == ("p", "q")
    assert layout.pool.tolist() == [0, 1]
    assert layout.capacity.tolist() == [[8, 4], [UNLIMITED, 32], [64, UNLIMITED]]


def test_a_domain_is_its_whole_path() -> None:
    # Both leaves are called l, but hang in different clusters.
    layout = layout_of(node("a", "y", "l"), node("b", "x", "l"), node("c", "x", "l"))
    assert layout.domain.tolist() == [[1, 0, 0], [1, 0, 0], [0, 1, 2]]
    assert layout.domain_paths[1] == (("x", "l"), ("y", "l"))
    assert layout.domain_paths[2] == (("y", "l", "a"), ("x", "l", "b"), ("x", "l", "c"))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        # accepting, down, leaving, expired
        ({}, (True, False, False, False)),
        ({"drain_deadline": NOW + 1}, (True, False, False, False)),
        ({"drain_deadline": NOW}, (False, False, True, True)),
        ({"state": NodeState.DRAIN}, (False, False, True, False)),
        ({"state": NodeState.DRAIN, "drain_deadline": NOW + 1}, (False, False, True, False)),
        ({"state": NodeState.DRAIN, "drain_deadline": NOW}, (False, False, True, True)),
        ({"state": NodeState.DOWN, "drain_deadline": NOW}, (False, True, False, False)),
    ],
)
def test_states(fields: dict[str, Any], expected: tuple[bool, ...]) -> None:
    layout = layout_of(node("a", **fields))
    assert (layout.accepting[0], layout.down[0], layout.leaving[0], layout.expired[0]) == expected
    assert layout.deadline.tolist() == [fields.get("drain_deadline", NEVER)]


def test_labels() -> None:
    layout = layout_of(node("a", labels={"arch": "x", "disk": "fast"}), node("b", labels={"arch": "x"}))
    assert layout.labels[("arch", "x")].tolist() == [True, True]
    assert layout.labels[("disk", "fast")].tolist() == [True, False]


def test_arrays_are_read_only() -> None:
    layout = layout_of(node("a", labels={"arch": "x"}))
    for array in (layout.pool, layout.capacity, layout.domain, layout.accepting, layout.deadline, *layout.labels.values()):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_no_nodes() -> None:
    layout = layout_of()
    assert layout.pools == ()
    assert layout.domain.shape == (3, 0)
    assert np.array_equal(layout.capacity, np.zeros((3, 0)))
