"""The commands `replay` and `compare`."""

from __future__ import annotations

import builtins
import io
import json
from pathlib import Path
from typing import Any

import pytest

from allocator.replay.tables import TABLES
from allocator.wire import encode_trace
from tests.cli.conftest import Invoke, invoke
from tests.replay.play import job, trace

__all__ = ["invoke"]

pytest.importorskip("pyarrow")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "trace.json"
    jobs = (job("a", 0, work=4000), job("b", 100, work=2000, allocation="b"), job("c", 200, min_runtime=0))
    path.write_bytes(encode_trace(trace(*jobs, hours=2)))
    return path


def test_a_replay_writes_tables_and_prints_a_summary(invoke: Invoke, file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = invoke("replay", file, "--out", out)
    assert (result.status, result.err) == (0, "")
    assert result.text.startswith("budgets_greedy on tiny: 0.1 days, 8 GPUs")
    assert "occupancy" in result.text
    names = {f"{table}.{kind}" for table in TABLES for kind in ("csv", "parquet")}
    assert {path.name for path in out.iterdir()} == names | {"summary.json", "timing.json"}


def test_a_replay_goes_on_from_its_checkpoint(invoke: Invoke, file: Path, tmp_path: Path) -> None:
    whole = invoke("replay", file, "--out", tmp_path / "whole", "--json")
    kept = tmp_path / "kept"
    args = ("replay", file, "--json", "--checkpoint", kept, "--every", "10m")
    first = invoke(*args, "--out", tmp_path / "first")
    assert kept.exists()
    second = invoke(*args, "--out", tmp_path / "second")
    assert whole.json == first.json == second.json
    assert (tmp_path / "second" / "runs.csv").read_bytes() == (tmp_path / "whole" / "runs.csv").read_bytes()
    other = invoke(*args, "--out", tmp_path / "third", "--tick", "30")
    assert other.status == 2
    assert "belongs to another options" in " ".join(other.err.split())
    other = invoke(*args, "--out", tmp_path / "third", "--seed", "1")
    assert "belongs to another policy" in " ".join(other.err.split())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--policy", "best"), "unknown policy 'best': choose one of budgets_greedy, budgets"),
        (("--drift", "5"), "5 s is less than a tick of 15 s"),
        (("--until", "soon"), "'soon' is no span of time"),
        (("--until", "0s"), "nothing happens in no time"),
    ],
)
def test_wrong_usage(invoke: Invoke, file: Path, tmp_path: Path, options: tuple[str, ...], says: str) -> None:
    result = invoke("replay", file, "--out", tmp_path / "out", *options)
    assert result.status == 2
    assert says in " ".join(result.err.replace("│", " ").split())
    assert result.out == b""


def test_files_that_are_not_there_or_in_the_way(invoke: Invoke, file: Path, tmp_path: Path) -> None:
    assert "is no file" in invoke("replay", tmp_path / "nothing", "--out", tmp_path / "out").err
    assert "is no folder" in invoke("replay", file, "--out", file).err


def test_without_the_extra_it_says_what_to_install(
    invoke: Invoke, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "pyarrow":
            raise ImportError("no", name=name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    result = invoke("replay", file, "--out", tmp_path / "out")
    assert result.status == 2
    assert "pyarrow is not installed: pip install 'gpu-epoch-allocator[replay]'" in " ".join(result.err.split())


def test_a_terminal_sees_how_far_it_is(invoke: Invoke, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    assert invoke("replay", file, "--out", tmp_path / "out").status == 0
    assert "budgets_greedy" in terminal.getvalue()


def test_replays_are_compared(invoke: Invoke, file: Path, tmp_path: Path) -> None:
    for name, tick in (("fine", 15), ("coarse", 60)):
        invoke("replay", file, "--out", tmp_path / name, "--tick", tick)
    folders = (tmp_path / "fine", tmp_path / "coarse")
    text = invoke("compare", *folders)
    assert text.status == 0
    assert "fine: budgets_greedy on tiny" in text.text
    found = json.loads(invoke("compare", *folders, "--json").out)
    assert [run["label"] for run in found["runs"]] == ["fine", "coarse"]
    assert invoke("compare", tmp_path / "fine").status == 2
    assert "holds no results" in " ".join(invoke("compare", tmp_path / "fine", tmp_path / "none").err.split())


def test_a_document_that_breaks_off_before_its_first_field(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text("[1")
    result = invoke("replay", tmp_path / "t.json", "--out", tmp_path / "o")
    assert (result.status, result.out) == (2, b"")
    assert "not JSON" in result.err
    assert not (tmp_path / "o").exists()


def test_results_that_are_damaged(invoke: Invoke, tmp_path: Path) -> None:
    for text in ("", "[]", "{}", '{"start": 0}'):
        (tmp_path / "summary.json").write_text(text)
        result = invoke("compare", tmp_path, tmp_path)
        assert result.status == 2
        assert "holds no results of a replay" in " ".join(result.err.split())


def test_a_checkpoint_that_is_damaged(invoke: Invoke, file: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    args = ("replay", file, "--out", tmp_path / "out", "--checkpoint", kept, "--every", "10m")
    assert invoke(*args).status == 0
    whole = kept.read_bytes()
    for damaged in (b"", b"no pickle", whole[:100], whole[:-100], whole[:200] + bytes(50) + whole[250:]):
        kept.write_bytes(damaged)
        result = invoke(*args)
        assert result.status == 2
        assert "delete it to begin anew" in " ".join(result.err.split())


def test_a_checkpoint_for_which_there_is_no_room(
    invoke: Invoke, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("allocator.replay.checkpoint.save", fail)
    result = invoke("replay", file, "--out", tmp_path / "out", "--checkpoint", tmp_path / "kept", "--every", "10m")
    assert result.status == 0, "what was played is not lost"
    assert "make room" in result.err
    assert (tmp_path / "out" / "summary.json").exists()
