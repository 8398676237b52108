"""Which nodes a gang may use, whether it fits, and where it is put: by hand and against brute force."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.domain import Cluster, Node, NodeState, Segment, Snapshot, TopologyWish, Workload
from allocator.topology import (
    IntArray,
    Layout,
    build_layout,
    can_place,
    eligible,
    fewest_domains,
    largest_gang,
    place_tasks,
    pool_order,
    shape_of,
    suitable,
    tasks_per_node,
)
from tests.topology.brute import all_placements, domains_touched, is_valid

LEVELS = ("cluster", "su", "leaf", "node")


def layout_of(nodes: Sequence[Node], levels: tuple[str, ...] = LEVELS) -> Layout:
    return build_layout(Snapshot(now=0, cluster=Cluster(levels=levels, nodes=tuple(nodes)), budgets=(), workloads=()))


def node(name: str, su: str = "s", leaf: str = "l", **fields: Any) -> Node:
    stated: dict[str, Any] = {"name": name, "pool": "p", "gpus": 8, "domains": ("c", su, leaf)}
    return Node(**stated | fields)


def gang(
    tasks: int, gpus: int = 1, segment: tuple[str, int] | None = None, required: str | None = None, **fields: Any
) -> Workload:
    wish = TopologyWish(required=required, segment=None if segment is None else Segment(level=segment[0], tasks=segment[1]))
    stated: dict[str, Any] = {
        "id": "w",
        "allocation": "A",
        "submit_time": 0,
        "min_runtime": 0,
        "resumable": True,
        "topology": wish,
    }
    return Workload(**stated | {"tasks": tasks, "gpus_per_task": gpus} | fields)


def rooms(*tasks: int) -> IntArray:
    return np.array(tasks, dtype=np.int64)


def leaves(*sizes: int) -> Layout:
    """One su with a leaf of so many nodes for each size; nodes n00, n01, ... in that order."""
    owners = [f"l{leaf}" for leaf, size in enumerate(sizes) for _ in range(size)]
    return layout_of([node(f"n{i:02}", leaf=leaf) for i, leaf in enumerate(owners)])


class TestNodes:
    LAYOUT = layout_of(
        [
            node("a", labels={"arch": "x"}),
            node("b", pool="q", labels={"arch": "x", "disk": "fast"}),
            node("c", state=NodeState.DRAIN),
            node("d", drain_deadline=50),
        ]
    )

    @pytest.mark.parametrize(
        ("fields", "names"),
        [
            ({}, "abcd"),
            ({"pools": ("q", "x")}, "b"),
            ({"pools": ("x",)}, ""),
            ({"node_labels": {"arch": "x"}}, "ab"),
            ({"node_labels": {"arch": "x", "disk": "fast"}}, "b"),
            ({"node_labels": {"arch": "y"}}, ""),
            ({"exclude_nodes": ("a", "d", "nowhere")}, "bc"),
        ],
    )
    def test_suitable(self, fields: dict[str, Any], names: str) -> None:
        mask = suitable(self.LAYOUT, gang(1, **fields))
        assert "".join(np.array(self.LAYOUT.names)[mask]) == names

    @pytest.mark.parametrize(("until", "expected"), [(None, "abd"), (50, "abd"), (51, "ab")])
    def test_eligible(self, until: int | None, expected: str) -> None:
        mask = eligible(self.LAYOUT, gang(1), until)
        assert "".join(np.array(self.LAYOUT.names)[mask]) == expected

    def test_pools_in_order_of_preference(self) -> None:
        assert pool_order(self.LAYOUT, gang(1, pools=("q", "x", "p", "q"))) == [1, 0]
        assert pool_order(self.LAYOUT, gang(1)) == [0, 1]


def test_tasks_per_node() -> None:
    free = np.array([[8, 8, 8, 0], [100, 20, 100, 100], [64, 64, 9, 64]])
    assert tasks_per_node(free, (3, 0, 0)).tolist() == [2, 2, 2, 0]
    assert tasks_per_node(free, (1, 10, 0)).tolist() == [8, 2, 8, 0]
    assert tasks_per_node(free, (1, 10, 8)).tolist() == [8, 2, 1, 0]
    assert tasks_per_node(free - 9, (1, 0, 0)).tolist() == [0, 0, 0, 0]
    assert shape_of(gang(2, 4, cpus_per_task=3)) == (4, 3, 0)


class TestPlacement:
    """Rooms are tasks by node; what is expected is derived from them."""

    def test_the_tightest_node_that_holds_all(self) -> None:
        assert place_tasks(leaves(3), gang(3), rooms(8, 4, 3)) == {2: 3}

    def test_among_equal_nodes_the_one_in_the_fullest_leaf(self) -> None:
        # Leaf l1 has 9 places left in all, l0 has 16: l0 stays whole.
        assert place_tasks(leaves(2, 2), gang(4), rooms(8, 8, 8, 1)) == {2: 4}

    def test_one_leaf_rather_than_two(self) -> None:
        # 16 tasks: only l1 has room for them alone.
        assert place_tasks(leaves(2, 3), gang(16), rooms(8, 7, 8, 4, 8)) == {2: 8, 4: 8}

    def test_the_tightest_leaf(self) -> None:
        assert place_tasks(leaves(3, 2, 3), gang(16), rooms(*[8] * 8)) == {3: 8, 4: 8}

    def test_few_nodes_and_the_rest_where_it_is_tight(self) -> None:
        # 8 + 8 + 3: the last 3 go to the node with 3, not to that with 7.
        assert place_tasks(leaves(5), gang(19), rooms(8, 7, 3, 8, 2)) == {0: 8, 3: 8, 2: 3}

    def test_as_many_whole_leaves_as_possible(self) -> None:
        # 5 nodes of tasks: l2 (3 nodes) and 2 more, which fill l0.
        assert place_tasks(leaves(2, 3, 3), gang(40), rooms(*[8] * 8)) == {2: 8, 3: 8, 4: 8, 0: 8, 1: 8}

    def test_one_pool(self) -> None:
        layout = layout_of([node("a"), node("b", pool="q"), node("c", pool="q")])
        assert place_tasks(layout, gang(16), rooms(8, 8, 8)) == {1: 8, 2: 8}
        assert place_tasks(layout, gang(17), rooms(8, 8, 8)) is None
        assert place_tasks(layout, gang(8, pools=("p", "q")), rooms(8, 8, 8)) == {0: 8}

    def test_the_required_level(self) -> None:
        assert place_tasks(leaves(2, 2), gang(20), rooms(8, 8, 8, 8)) is not None
        assert place_tasks(leaves(2, 2), gang(20, required="su"), rooms(8, 8, 8, 8)) is not None
        assert place_tasks(leaves(2, 2), gang(20, required="leaf"), rooms(8, 8, 8, 8)) is None
        assert place_tasks(leaves(2, 2), gang(16, required="leaf"), rooms(8, 7, 8, 8)) == {2: 8, 3: 8}
        assert place_tasks(leaves(2, 2), gang(9, required="node"), rooms(8, 8, 8, 8)) is None

    def test_a_level_that_does_not_exist(self) -> None:
        assert place_tasks(leaves(2), gang(1, required="rack"), rooms(8, 8)) is None
        assert not can_place(leaves(2), gang(1, segment=("rack", 2)), rooms(8, 8))

    def test_nothing_fits_nowhere(self) -> None:
        assert place_tasks(leaves(2), gang(1), rooms(0, 0)) is None
        assert place_tasks(layout_of([]), gang(1), rooms()) is None
        assert not can_place(layout_of([]), gang(1), rooms())

    def test_a_thousand_nodes(self) -> None:
        layout = leaves(*[16] * 64)
        placement = place_tasks(layout, gang(1024, 8), np.ones(1024, dtype=np.int64))
        assert placement == dict.fromkeys(range(1024), 1)


class TestSegments:
    """Racks of 18 nodes with 4 GPUs: a gang of 4-GPU tasks in segments of 16 leaves two nodes of each rack."""

    RACKS = layout_of([node(f"n{i:02}", leaf=f"r{i // 18}", gpus=4) for i in range(54)])
    FREE = np.ones(54, dtype=np.int64)

    def placed(self, work: Workload, room: IntArray) -> list[int] | None:
        """Tasks by rack."""
        placement = place_tasks(self.RACKS, work, room)
        assert (placement is not None) == can_place(self.RACKS, work, room)
        if placement is None:
            return None
        assert is_valid(self.RACKS, work, placement, room)
        racks = self.RACKS.domain[2, list(placement)]
        return [int(tasks) for tasks in np.bincount(racks, list(placement.values()), 3)]

    def test_whole_segments(self) -> None:
        assert self.placed(gang(32, 4, ("leaf", 16)), self.FREE) == [16, 16, 0]
        assert self.placed(gang(48, 4, ("leaf", 16)), self.FREE) == [16, 16, 16]
        assert self.placed(gang(49, 4, ("leaf", 16)), self.FREE) == [16, 16, 17]
        assert self.placed(gang(50, 4, ("leaf", 16)), self.FREE) == [16, 16, 18]
        assert self.placed(gang(51, 4, ("leaf", 16)), self.FREE) is None

    def test_the_remainder_takes_the_place_of_a_segment(self) -> None:
        # 40 = 2 x 16 + 8: the 8 need a third rack.
        assert self.placed(gang(40, 4, ("leaf", 16)), self.FREE) == [16, 16, 8]

    def test_the_remainder_goes_where_there_is_room_for_it(self) -> None:
        # Racks with 17, 18 and 3 free nodes; of 32 + 2 the 2 fit beside the segment of the second, of 32 + 3 the third takes 3.
        room = self.FREE.copy()
        room[[0, *range(39, 54)]] = 0
        assert self.placed(gang(34, 4, ("leaf", 16)), room) == [16, 18, 0]
        assert self.placed(gang(35, 4, ("leaf", 16)), room) == [16, 16, 3]
        assert self.placed(gang(36, 4, ("leaf", 16)), room) is None

    def test_the_remainder_stays_where_alone_it_fits(self) -> None:
        # Segments of 4: su a has leaves with 4 and 7 places, su b one with 4; the 3 of 15 = 3 x 4 + 3 fit only beside a's 7.
        layout = layout_of([node("n0", "a", "l0"), node("n1", "a", "l1"), node("n2", "b", "l2")])
        assert place_tasks(layout, gang(15, 1, ("leaf", 4)), rooms(4, 7, 4)) == {0: 4, 1: 7, 2: 4}
        assert place_tasks(layout, gang(16, 1, ("leaf", 4)), rooms(4, 7, 4)) is None

    def test_inside_one_domain_any_number_is_fine(self) -> None:
        assert self.placed(gang(17, 4, ("leaf", 16), required="leaf"), self.FREE) == [17, 0, 0]
        assert self.placed(gang(17, 4, ("cluster", 16)), self.FREE) == [17, 0, 0]
        assert self.placed(gang(20, 4, ("cluster", 16)), self.FREE) == [18, 2, 0]

    def test_fewest(self) -> None:
        assert fewest_domains(self.RACKS, gang(32, 4, ("leaf", 16)), 0).tolist() == [1, 1, 2, 32]
        assert fewest_domains(self.RACKS, gang(34, 4, ("leaf", 16)), 0).tolist() == [1, 1, 2, 34]
        assert fewest_domains(self.RACKS, gang(35, 4, ("leaf", 16)), 0).tolist() == [1, 1, 3, 35]
        assert fewest_domains(self.RACKS, gang(36, 4, ("leaf", 12)), 0).tolist() == [1, 1, 3, 36]
        assert fewest_domains(self.RACKS, gang(36, 4), 0).tolist() == [1, 1, 2, 36]
        assert fewest_domains(self.RACKS, gang(99, 4), 0).tolist() == [1, 1, 1, 1]


def test_fewest_looks_at_suitable_nodes_of_the_empty_pool() -> None:
    layout = layout_of(
        [node("a", state=NodeState.DOWN), node("b"), node("c", gpus=4), node("d", gpus=4), node("e", pool="q", gpus=2)]
    )
    assert fewest_domains(layout, gang(16), 0).tolist() == [1, 1, 1, 2]
    assert fewest_domains(layout, gang(16, exclude_nodes=("a",)), 0).tolist() == [1, 1, 1, 3]
    assert fewest_domains(layout, gang(2), 1).tolist() == [1, 1, 1, 1]


def test_the_largest_gang() -> None:
    layout = leaves(2, 3)
    assert largest_gang(layout, -1, rooms(8, 8, 1, 8, 8)) == 33
    assert largest_gang(layout, LEVELS.index("leaf"), rooms(8, 8, 1, 8, 8)) == 17
    assert largest_gang(layout, LEVELS.index("node"), rooms(8, 8, 1, 8, 8)) == 8


@st.composite
def tiny(draw: st.DrawFn) -> tuple[Layout, Workload, IntArray]:
    """Up to five nodes of up to four GPUs in two pools, a gang of 1-GPU tasks with any wish, and some room."""
    spots = draw(
        st.lists(
            st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.sampled_from("ppq"), st.integers(1, 4)),
            min_size=1,
            max_size=5,
        )
    )
    layout = layout_of([node(f"n{i}", su, f"l{leaf}", pool=pool, gpus=gpus) for i, (su, leaf, pool, gpus) in enumerate(spots)])
    segment = st.none() | st.tuples(st.sampled_from(LEVELS), st.integers(1, 4))
    work = gang(draw(st.integers(1, 9)), segment=draw(segment), required=draw(st.none() | st.sampled_from(LEVELS)))
    return layout, work, np.array([draw(st.integers(0, gpus)) for *_, gpus in spots], dtype=np.int64)


@pytest.mark.slow
@settings(max_examples=6 * settings().max_examples)
@given(tiny())
def test_agrees_with_brute_force(case: tuple[Layout, Workload, IntArray]) -> None:
    layout, work, room = case
    possible = all_placements(layout, work, room)
    placement = place_tasks(layout, work, room)
    assert can_place(layout, work, room) == bool(possible)
    assert (placement is not None) == bool(possible)
    if placement is not None:
        assert is_valid(layout, work, placement, room)
        assert placement == place_tasks(layout, work, room)


@pytest.mark.slow
@settings(max_examples=3 * settings().max_examples)
@given(tiny())
def test_the_fewest_domains_are_a_bound_and_exact_without_segments(case: tuple[Layout, Workload, IntArray]) -> None:
    layout, work, _ = case
    room = tasks_per_node(layout.capacity, shape_of(work))
    for pool in range(len(layout.pools)):
        found = all_placements(layout, work, np.where(layout.pool == pool, room, 0))
        fewest = fewest_domains(layout, work, pool).tolist()
        if not found:
            assert fewest == [1] * len(LEVELS)
            continue
        least = np.min([domains_touched(layout, placement) for placement in found], axis=0).tolist()
        exact_to = len(LEVELS) if work.topology.segment is None else LEVELS.index(work.topology.segment.level) + 1
        assert fewest[:exact_to] == least[:exact_to]
        assert all(few <= actual for few, actual in zip(fewest, least, strict=True))
