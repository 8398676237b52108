"""What commands write to and read from: pipes, devices, links, closed streams; and names that could steer a terminal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from allocator.cli.main import main
from tests.cli.conftest import Invoke, write
from tests.wire.documents import document, job, running

STEERING = "a\nb\x1b[1m"
ESCAPED = "a\\u000ab\\u001b[1m"


def test_a_pipe_is_written_to_and_stays_one(invoke: Invoke, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert invoke("generate", "snapshot", "--gpus", 8, "--no-history", "--out", pipe).status == 0
        assert os.read(reader, 11) == b'{"version":'
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_a_device_is_written_to_and_stays_one(invoke: Invoke, tmp_path: Path) -> None:
    link = tmp_path / "nowhere"  # so that a defect replaces the link and not the device
    link.symlink_to(os.devnull)
    assert invoke("generate", "snapshot", "--gpus", 8, "--out", link).status == 0
    assert link.is_symlink()
    assert link.is_char_device()


def test_a_link_is_followed(invoke: Invoke, tmp_path: Path) -> None:
    link, target = tmp_path / "latest.json", tmp_path / "target.json"
    link.symlink_to(target)
    for _ in range(2):  # once it does not exist, once it does
        assert invoke("generate", "snapshot", "--gpus", 8, "--out", link).status == 0
        assert link.is_symlink()
        assert json.loads(target.read_bytes())["version"] == 1
    assert {path.name for path in tmp_path.iterdir()} == {"latest.json", "target.json"}


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="needs /dev/full")
@pytest.mark.parametrize("extra", [(), ("--out", "{link}")])
def test_a_full_disk_is_told(tmp_path: Path, extra: tuple[str, ...]) -> None:
    link = tmp_path / "full"
    link.symlink_to("/dev/full")
    command = [sys.executable, "-m", "allocator", "schema", "decision"]
    if extra:
        command = [sys.executable, "-m", "allocator", "generate", "snapshot", "--gpus", "8", "--out", str(link)]
    with link.open("wb") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 2
    assert "cannot be written (No space left on device)" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_closed_standard_output_is_told(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdout", None)
    with pytest.raises(SystemExit) as caught:
        main(["schema", "decision"])
    assert caught.value.code == 2
    assert "standard output is closed" in capfd.readouterr().err


def test_a_closed_standard_input_is_told(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(SystemExit) as caught:
        main(["solve", "-"])
    assert caught.value.code == 2
    assert capfd.readouterr().err.startswith("error: <stdin>: cannot be read (it is closed)")


@pytest.mark.parametrize("command", ["verify", "apply", "explain"])
def test_names_of_a_decision_cannot_steer_the_terminal(
    invoke: Invoke, snapshot: Path, decision: Path, tmp_path: Path, command: str
) -> None:
    value = json.loads(decision.read_bytes())
    value["starts"][0]["workload"] = value["snapshot"] = STEERING
    result = invoke(command, snapshot, write(tmp_path / "steering.json", value))
    assert "\x1b" not in result.err + result.text
    assert ESCAPED in result.err + result.text


@pytest.mark.parametrize("extra", [(), (STEERING,), ("--allocation", "eval")])
def test_names_of_a_snapshot_cannot_steer_the_terminal(invoke: Invoke, tmp_path: Path, extra: tuple[str, ...]) -> None:
    path = write(tmp_path / "s.json", document(job(STEERING), running(STEERING + "r", {"n1": 1})))
    decided = tmp_path / "d.json"
    assert invoke("solve", path, "-v", "--engine", "greedy", "--out", decided).status == 0
    result = invoke("explain", path, decided, *extra)
    assert result.status == 0
    assert "\x1b" not in result.err + result.text
    assert "\x1b" not in invoke("budgets", path).text


def test_a_decision_whose_outcome_contradicts_itself_is_not_applied(
    invoke: Invoke, snapshot: Path, decision: Path, tmp_path: Path
) -> None:
    value = json.loads(decision.read_bytes())
    value["starts"][0]["placement"] = {"n1": 1}  # full
    wrong = write(tmp_path / "wrong.json", value)
    result = invoke("apply", snapshot, wrong)
    assert (result.status, result.out) == (2, b"")
    assert result.err.startswith(f'error: {wrong}: after the decision: $.cluster.nodes[0].gpus: node "n1" is over-full')


def test_time_passes_for_ten_years_at_most(invoke: Invoke, snapshot: Path, decision: Path) -> None:
    assert invoke("apply", snapshot, decision, "--advance", 315_360_000).status == 0
    assert invoke("apply", snapshot, decision, "--advance", 315_360_001).status == 2


def test_a_change_set_that_does_not_fit_is_named(invoke: Invoke, snapshot: Path, tmp_path: Path) -> None:
    changes = write(tmp_path / "c.json", {"author": "a", "reason": "b", "changes": [{"id": "no", "share": 1}]})
    result = invoke("budgets", snapshot, "--try", changes)
    assert (result.status, result.out) == (2, b"")
    assert result.err.startswith(f"error: {changes}: $.changes[0].id: ")


def test_more_tasks_than_any_node_has_are_refused_by_all(
    invoke: Invoke, snapshot: Path, decision: Path, tmp_path: Path
) -> None:
    value = json.loads(decision.read_bytes())
    value["starts"][0]["placement"] = {"n2": 10**30}
    wrong = write(tmp_path / "wrong.json", value)
    for command in ("verify", "apply", "explain"):
        result = invoke(command, snapshot, wrong)
        assert (result.status, result.out) == (2, b"")
        assert "$.starts[0].placement.n2: 1000000000000000000000000000000 is not valid here" in result.err
