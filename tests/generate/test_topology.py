"""Clusters from topology files: Slurm's own forms written by hand, and real dumps where they are at hand."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

import pytest

from allocator.domain import SnapshotError
from allocator.generate import generate_on_topology, read_topology
from allocator.generate.hostlist import expand_hosts
from allocator.generate.topology_file import TopologyOptions
from allocator.wire import decode_snapshot, encode_snapshot
from tests.generate.checks import complaints, shared_file

TREE = """
# two leaves under a spine
SwitchName=spine Switches=leaf[1-2]
SwitchName=leaf1 Nodes=n[01-04]
SwitchName=leaf2 Nodes=n[05-07],m1
"""
BLOCKS = """
BlockName=a Nodes=t[00-17]
BlockName=b Nodes=t[18-35]
BlockName=c Nodes=t[36-52]
BlockSizes=18,36
"""
FABRIC = """
Switch	64 "S-1"		# "MF0;leaf-a:MQM9700/U1" enhanced port 0 lid 1 lmc 0
[1]	"H-11"[1](11) 		# "gpu01 mlx5_0" lid 11 4xNDR
[2]	"H-21"[1](21) 		# "gpu02 mlx5_0" lid 12 4xNDR
[3]	"H-91"[1](91) 		# "MT4129 ConnectX7   Mellanox Technologies" lid 13 4xNDR
[33]	"S-3"[1]		# "MF0;spine-1:MQM9700/U1" lid 3 4xNDR

Switch	64 "S-2"		# "MF0;leaf-b:MQM9700/U1" enhanced port 0 lid 2 lmc 0
[1]	"H-12"[1](12) 		# "gpu01 mlx5_1" lid 14 4xNDR
[2]	"H-22"[1](22) 		# "gpu02 mlx5_1" lid 15 4xNDR
[3]	"H-92"[1](92) 		# "MT4129 ConnectX7   Mellanox Technologies" lid 16 4xNDR
[33]	"S-3"[2]		# "MF0;spine-1:MQM9700/U1" lid 3 4xNDR
[34]	"S-3"[3]		# "MF0;spine-1:MQM9700/U1" lid 3 4xNDR

Switch	64 "S-3"		# "MF0;spine-1:MQM9700/U1" enhanced port 0 lid 3 lmc 0
[1]	"S-1"[33]		# "MF0;leaf-a:MQM9700/U1" lid 1 4xNDR

Ca	1 "H-11"		# "gpu01 mlx5_0"
Ca	1 "H-12"		# "gpu01 mlx5_1"
Ca	1 "H-21"		# "gpu02 mlx5_0"
Ca	1 "H-22"		# "gpu02 mlx5_1"
Ca	1 "H-91"		# "MT4129 ConnectX7   Mellanox Technologies"
Ca	1 "H-92"		# "MT4129 ConnectX7   Mellanox Technologies"
Ca	1 "H-99"		# "ufm01 mlx5_0"
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "topology.conf"
    path.write_text(text)
    return path


def test_a_switch_tree_gives_a_level_per_tier(tmp_path: Path) -> None:
    cluster, notes = read_topology(write(tmp_path, TREE))
    assert cluster.levels == ("cluster", "leaf", "node")
    domains = {node.name: node.domains for node in cluster.nodes}
    assert domains["n04"] == ("spine", "leaf1")
    assert domains["m1"] == ("spine", "leaf2")
    assert {node.gpus for node in cluster.nodes} == {8}
    assert notes == ()


def test_separate_trees_are_pools_of_their_own(tmp_path: Path) -> None:
    cluster, notes = read_topology(write(tmp_path, TREE + "SwitchName=island Switches=leaf9\nSwitchName=leaf9 Nodes=x[1-2]\n"))
    assert Counter(node.pool for node in cluster.nodes) == {"h100-spine": 8, "h100-island": 2}
    assert "2 separate fabrics" in notes[0]


def test_a_single_tier_hangs_under_one_fabric(tmp_path: Path) -> None:
    cluster, _ = read_topology(write(tmp_path, "SwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=n3\n"))
    assert cluster.levels == ("cluster", "leaf", "node")
    assert {node.domains for node in cluster.nodes} == {("fabric", "a"), ("fabric", "b")}


def test_a_shallow_branch_repeats_its_name(tmp_path: Path) -> None:
    text = "SwitchName=top Switches=mid,near\nSwitchName=mid Switches=far\nSwitchName=far Nodes=n1\nSwitchName=near Nodes=n2\n"
    cluster, notes = read_topology(write(tmp_path, text))
    assert {node.domains for node in cluster.nodes} == {("top", "mid", "far"), ("top", "near", "near")}
    assert "near" in notes[0]


def test_blocks_are_nvlink_domains_and_sizes_are_levels(tmp_path: Path) -> None:
    cluster, notes = read_topology(write(tmp_path, BLOCKS))
    assert cluster.levels == ("cluster", "block36", "nvlink", "node")
    assert Counter(node.domains[1:] for node in cluster.nodes) == {
        ("block36-1", "a"): 18,
        ("block36-1", "b"): 18,
        ("block36-2", "c"): 17,
    }
    assert {node.gpus for node in cluster.nodes} == {4}
    assert notes == ("block c has 17 of 18 nodes",)


def test_what_the_file_does_not_say_can_be_given(tmp_path: Path) -> None:
    cluster, _ = read_topology(write(tmp_path, BLOCKS), TopologyOptions(pool="gb300", gpus_per_node=2))
    assert {(node.pool, node.gpus) for node in cluster.nodes} == {("gb300", 2)}


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("SwitchName=a Nodes=n[1-2\n", 1, "brackets"),
        ("SwitchName=a Nodes=n[2-1]\n", 1, "backwards"),
        ("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2\n", 2, "one new name"),
        ("SwitchName=a Switches=b\n", 1, "not defined"),
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a\nSwitchName=c Nodes=n1\n", 1, "circle"),
        ("SwitchName=a Nodes=n1\nSwitchName=b Nodes=n1\n", 2, "in line 1 too"),
        ("SwitchName=a Nodes=n1\nBlockName=b Nodes=n2\n", 1, "both"),
        ("BlockName=a Nodes=n1\nBlockSizes=x\n", 2, "BlockSizes"),
        ("SwitchName=a Nodes=n1\nSwitch=b\n", 2, "neither"),
    ],
)
def test_a_broken_file_is_refused_with_the_line(tmp_path: Path, text: str, line: int, problem: str) -> None:
    with pytest.raises(SnapshotError) as caught:
        read_topology(write(tmp_path, text))
    issue = caught.value.issues[0]
    assert issue.path.endswith(f"line {line}")
    assert problem in issue.problem


def test_ranges_that_multiply_are_not_expanded() -> None:
    with pytest.raises(ValueError, match="stands for more than 1,000,000 names"):
        expand_hosts("n[1-9][1-99999][1-99999]")


def test_host_lists() -> None:
    assert expand_hosts("r[1-2]n[01-02],x") == ["r1n01", "r1n02", "r2n01", "r2n02", "x"]


def test_a_small_fabric_with_a_nameless_host_and_a_missing_link(tmp_path: Path) -> None:
    cluster, notes = read_topology(write(tmp_path, FABRIC))
    assert cluster.levels == ("cluster", "su", "leaf", "node")
    assert {node.name for node in cluster.nodes} == {"gpu01", "gpu02", "unnamed-91"}
    assert {node.domains for node in cluster.nodes} == {("fabric1", "su1", "leaf-a")}
    assert {node.gpus for node in cluster.nodes} == {2}
    text = "\n".join(notes)
    assert "ufm01" in text
    assert "1 trays without a host name" in text
    assert "1 links of 4" in text


def test_the_real_nvl72_unit_has_eight_racks_of_four_gpu_trays() -> None:
    cluster, notes = read_topology(shared_file("topology/ibnetdiscover_gb200_1su.out.gz"))
    assert cluster.levels == ("cluster", "su", "nvlink", "node")
    racks = Counter(node.domains for node in cluster.nodes)
    assert len(racks) == 8
    assert sum(not node.name.startswith("unnamed") for node in cluster.nodes) == 119
    # Twenty trays are seen without a name, five are not seen at all: 144 in the unit.
    assert sum(racks.values()) == 139
    assert all(16 <= count <= 18 for count in racks.values())
    assert {node.gpus for node in cluster.nodes} == {4}
    text = "\n".join(notes)
    assert "20 trays without a host name" in text
    assert "a05-p1-dgx-01: 3 of 4 leaf switches seen" in text


def test_the_real_unit_agrees_with_the_table_made_from_it() -> None:
    cluster, _ = read_topology(shared_file("topology/ibnetdiscover_gb200_1su.out.gz"))
    rows = shared_file("topology/gb200_1su_nodes.csv").read_text().splitlines()[1:]
    racks = {row.split(",")[0]: row.split(",")[1] for row in rows}
    for node in cluster.nodes:
        if not node.name.startswith("unnamed"):
            assert node.domains[-1].endswith(racks[node.name])


@pytest.mark.parametrize(
    "name",
    ["ibnetdiscover_gb200_1su.out.gz", "slurm_topology_block_example.conf", "slurm_topology_tree_example.conf"],
)
def test_work_can_be_put_on_a_real_topology(name: str) -> None:
    snapshot, _ = generate_on_topology(shared_file(f"topology/{name}"), seed=3)
    assert complaints(snapshot) == []
    assert decode_snapshot(encode_snapshot(snapshot)) == snapshot
    assert sum(work.gpus for work in snapshot.workloads if work.run) > 0.9 * sum(node.gpus for node in snapshot.cluster.nodes)


@pytest.mark.parametrize("data", [b"hello", gzip.compress(b"SwitchName=a Nodes=n1\n", mtime=0)[:-9], b"\xff\xfe\x00"])
def test_a_file_of_no_known_form_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(SnapshotError, match="file"):
        read_topology(path)


def test_an_absent_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="cannot be read"):
        read_topology(tmp_path / "absent")
