"""The recorder: pairs that every command reads, rotation, and a disk that fails."""

from __future__ import annotations

import gzip
import logging
from pathlib import Path

import pytest

from allocator import allocate, decode_decision, decode_snapshot, load_snapshot
from allocator.record import Recorder, recorded
from allocator.wire import encode_snapshot

EXAMPLE = Path(__file__).parents[1] / "docs" / "examples" / "small.json"


def test_what_is_recorded_is_read_back(tmp_path: Path) -> None:
    snapshot = load_snapshot(EXAMPLE)
    decision = allocate(snapshot, engine="greedy")
    epoch = Recorder(tmp_path / "new" / "folder").record(snapshot, decision)
    assert epoch is not None
    assert list(recorded(tmp_path / "new" / "folder")) == [epoch]
    assert epoch.now == decision.now
    assert encode_snapshot(decode_snapshot(epoch.snapshot.read_bytes())) == encode_snapshot(snapshot)
    assert decode_decision(epoch.decision.read_bytes()).snapshot == decision.snapshot
    assert decision.snapshot.removeprefix("sha256:")[:12] in epoch.snapshot.name


def test_the_same_epoch_is_recorded_once_with_the_same_bytes(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    first = recorder.record_bytes(1000, "sha256:ab", b"{}", b"[]")
    assert first is not None
    data = first.snapshot.read_bytes()
    assert recorder.record_bytes(1000, "sha256:ab", b"{}", b"[]") == first
    assert first.snapshot.read_bytes() == data
    assert len(list(recorded(tmp_path))) == 1


def test_the_oldest_give_way_by_number_and_by_size(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "number", max_epochs=3)
    for now in range(10):
        recorder.record_bytes(now, "sha256:0a", b"{}", b"{}")
    assert [epoch.now for epoch in recorded(tmp_path / "number")] == [7, 8, 9]
    small = Recorder(tmp_path / "size", max_bytes=1)
    for now in range(3):
        small.record_bytes(now, "sha256:0a", b"{}", b"{}")
    assert [epoch.now for epoch in recorded(tmp_path / "size")] == [2]


def test_half_a_pair_and_foreign_files_are_passed_over(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    whole, half = (recorder.record_bytes(now, "sha256:0a", b"{}", b"{}") for now in (1, 2))
    assert whole is not None
    assert half is not None
    half.decision.unlink()
    (tmp_path / "notes.txt").write_text("mine")
    assert list(recorded(tmp_path)) == [whole]
    assert list(recorded(tmp_path / "absent")) == []


def test_names_hold_nothing_but_time_and_digits(tmp_path: Path) -> None:
    epoch = Recorder(tmp_path).record_bytes(0, "sha256:../../etc/passwd", b"{}", b"{}")
    assert epoch is not None
    assert epoch.snapshot.parent == tmp_path
    assert ".." not in epoch.snapshot.name
    assert gzip.decompress(epoch.decision.read_bytes()) == b"{}"


def test_a_disk_that_fails_costs_the_record_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("in the way")
    with caplog.at_level(logging.ERROR):
        assert Recorder(tmp_path / "file").record_bytes(5, "sha256:0a", b"{}", b"{}") is None
    assert "not recorded" in caplog.text


def test_a_disk_that_gets_full_between_two_files_leaves_no_half_a_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(tmp_path)
    kept = recorder.record_bytes(1000, "sha256:ab", b"{}", b"[]")
    write = Path.write_bytes

    def fails(path: Path, data: bytes) -> int:
        if "decision" in path.name:
            raise OSError(28, "No space left on device")
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", fails)
    assert recorder.record_bytes(1000, "sha256:ab", b"{}", b"[]") is None
    assert recorder.record_bytes(2000, "sha256:cd", b"{}", b"[]") is None
    assert list(recorded(tmp_path)) == [kept], "what was there stays"
    assert len(list(tmp_path.iterdir())) == 2


def test_limits_make_sense(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Recorder(tmp_path, max_epochs=0)
