"""`allocator generate`."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from typer.testing import CliRunner

from allocator.cli.main import app
from allocator.generate import generate_snapshot
from allocator.wire import decode_snapshot, load_snapshot

TREE = "SwitchName=spine Switches=leaf[1-2]\nSwitchName=leaf[1] Nodes=n[01-04]\nSwitchName=leaf2 Nodes=n[05-08]\n"


def run(*arguments: str) -> tuple[int, bytes, str]:
    result = CliRunner().invoke(app, ["generate", *arguments])
    return result.exit_code, result.stdout_bytes, result.stderr


def test_a_snapshot_goes_to_standard_output() -> None:
    code, out, err = run("snapshot", "--gpus", "64", "--seed", "3")
    assert (code, err) == (0, "")
    assert decode_snapshot(out) == generate_snapshot(gpus=64, seed=3)


def test_compressed_files_of_one_seed_are_the_same_bytes(tmp_path: Path) -> None:
    files = [tmp_path / "a.json.gz", tmp_path / "b.json.gz"]
    for file in files:
        assert run("snapshot", "--gpus", "64", "--seed", "3", "--no-history", "--out", str(file))[:2] == (0, b"")
    assert files[0].read_bytes() == files[1].read_bytes()
    assert load_snapshot(files[0]) == generate_snapshot(gpus=64, seed=3, history=False)
    assert gzip.decompress(files[0].read_bytes()).startswith(b"{")


def test_a_topology_with_notes(tmp_path: Path) -> None:
    path = tmp_path / "topology.conf"
    path.write_text(TREE + "SwitchName=island Nodes=x[1-2]\n")
    code, out, err = run("snapshot", "--seed", "1", "--from-topology", str(path), "--pool", "b200")
    assert code == 0
    assert {node.pool for node in decode_snapshot(out).cluster.nodes} == {"b200-spine", "b200-island"}
    assert "note:" in err


def test_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("job_id,submit_s,duration_s,gpus,vc\na,0,100,1,x\nb,0,100,99,x\n")
    code, out, err = run("snapshot", "--from-trace", str(path), "--at", "50", "--gpus", "16")
    assert code == 0
    assert len(decode_snapshot(out).workloads) == 1
    assert "1 of them cannot be used" in err


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--gpus", "63"), "56 or 64"),
        (("--at", "3d"), "--at"),
        (("--from-trace", "x.csv"), "--at"),
        (("--from-trace", "absent.csv", "--at", "3d"), "cannot be read"),
        (("--from-trace", "x.csv", "--at", "3d", "--pools", "3"), "no effect"),
        (("--from-topology", "x.conf", "--gpus", "64"), "no effect"),
        (("--gpus-per-node", "4"), "no effect"),
        (("--family", "nope"), "mixed"),
        (("--gpus", "64", "--out", "/absent/file"), "written"),
    ],
)
def test_wrong_use_exits_with_2_and_nothing_on_standard_output(arguments: tuple[str, ...], word: str) -> None:
    code, out, err = run("snapshot", *arguments)
    assert (code, out) == (2, b"")
    assert word in err


def test_families_are_listed() -> None:
    code, out, _ = run("families")
    assert code == 0
    assert out.startswith(b"mixed ")
