"""Where work was, and when nodes took none."""

from __future__ import annotations

from allocator.domain import NodeState
from allocator.domain.trace import Maintenance, Outage
from allocator.replay.places import Closures
from allocator.replay.tables import frames_of
from tests.replay.play import START, job, play, trace


def test_each_run_is_on_its_nodes() -> None:
    frames = frames_of(play(trace(job("a", tasks=2, work=50), job("b", tasks=1, gpus_per_task=3, work=4000), num_nodes=3)))
    rows = [tuple(row) for row in frames["placements"].itertuples(index=False)]
    assert rows == [("a", 1, "n1", 8), ("a", 1, "n2", 8), ("b", 1, "n3", 3)]
    held = frames["placements"].groupby(["job", "number"]).gpus.sum()
    runs = frames["runs"].set_index(["job", "number"])
    assert held.to_dict() == runs.gpus.to_dict()
    nodes = frames["nodes"]
    assert nodes.columns.to_list() == ["node", "pool", "gpus", "level_cluster", "level_rack"]
    assert nodes.node.to_list() == ["n1", "n2", "n3"]
    assert nodes.level_rack.to_list() == ["r1", "r1", "r1"]


def test_dead_and_draining_nodes_are_closed() -> None:
    outages = (Outage(node="n1", start=START + 95, end=START + 400), Outage(node="n2", start=START + 3000, end=START + 9999))
    maintenance = (Maintenance(node="n3", announced=START + 200, deadline=START + 500, end=START + 900),)
    frames = frames_of(play(trace(num_nodes=3, outages=outages, maintenance=maintenance)))
    closures = frames["closures"].itertuples(index=False, name=None)
    rows = [(node, start - START, end - START, state) for node, start, end, state in closures]
    assert rows == [("n1", 95, 400, "down"), ("n3", 200, 900, "drain"), ("n2", 3000, 3600, "down")]


def test_a_node_that_dies_while_it_drains_has_two_spans() -> None:
    closures = Closures()
    for now, state, accepts in (
        (0, NodeState.UP, True), (10, NodeState.UP, False), (20, NodeState.DRAIN, False), (30, NodeState.DOWN, False),
        (30, NodeState.UP, True),
    ):  # fmt: skip
        closures.see(now, "n", state, accepts=accepts)
    closures.close(50, ["n"])
    assert [tuple(row) for row in closures.rows] == [("n", 10, 30, "drain")]
