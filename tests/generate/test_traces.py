"""Snapshots of a moment of a job trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from allocator.domain import SnapshotError
from allocator.generate import snapshot_from_trace
from allocator.generate.instant import parse_span
from allocator.wire import decode_snapshot, encode_snapshot
from tests.generate.checks import complaints, runs, shared_file

HEADER = "job_id,submit_s,duration_s,gpus,vc\n"
ORIGIN = 1_504_521_041


def trace(tmp_path: Path, rows: str) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + rows)
    return path


def test_first_come_first_served_on_two_nodes(tmp_path: Path) -> None:
    """16 GPUs. a ends at 100; b holds one node; c needs both and waits for b until 1000; d may not overtake c."""
    path = trace(tmp_path, "a,0,100,4,x\nb,10,990,8,x\nc,20,500,16,y\nd,30,500,1,y\ne,800,10,1,y\n")
    snapshot, notes = snapshot_from_trace(path, 700, gpus=16)
    assert snapshot.now == ORIGIN + 700
    assert {work.id for work, _ in runs(snapshot)} == {"x-b"}
    assert {work.id for work in snapshot.workloads if work.run is None} == {"y-c", "y-d"}
    assert [(record.id, record.gpus, record.end - record.start) for record in snapshot.usage] == [("x-a", 4, 100)]
    assert notes[-1] == "at that moment 1 ended, 1 run, 2 wait, 1 come later"
    later, _ = snapshot_from_trace(path, 1001, gpus=16)
    started = {work.id: run.start_time for work, run in runs(later)}
    assert started == {"y-c": ORIGIN + 1000}


def test_shares_are_the_tenants_parts_of_the_work(tmp_path: Path) -> None:
    snapshot, _ = snapshot_from_trace(trace(tmp_path, "a,0,300,1,x\nb,0,100,1,y\n"), 50, gpus=16)
    assert {vertex.name: vertex.share for vertex in snapshot.budgets if vertex.parent} == {"x": 750, "y": 250}


def test_rows_that_cannot_be_used_are_counted(tmp_path: Path) -> None:
    rows = (
        "a,0,100,1,x\nb,0,zero,1,x\nc,0,0,1,x\nd,0,100,99,x\ne,0,100,0,x\na,0,100,1,x\nf,0,100,1,\ng,0,nan,1,x\nh,0,100,15,x\n"
    )
    _, notes = snapshot_from_trace(trace(tmp_path, rows), 50, gpus=16)
    assert notes[0] == "Philly trace: 9 rows, 8 of them cannot be used"
    text = "\n".join(notes)
    assert "2 rows not used: duration_s is no number (first in line 3)" in text
    assert "more than the cluster's 16 GPUs (first in line 5)" in text
    assert "given twice (first in line 7)" in text
    assert "do not pack" in text


@pytest.mark.parametrize(
    ("rows", "at", "gpus", "problem"),
    [
        ("a,0,100,1,x\n", 500, 16, "nothing runs or waits"),
        ("a,0,100,99,x\n", 50, 16, "none of 1 rows"),
        ("", 50, 16, "none of 0 rows"),
        ("a,0,100,1,x\n", 50, 12, "not whole 8-GPU nodes"),
        ("a,0,100,1,x\n", 50, 0, "0 GPUs"),
    ],
)
def test_a_moment_without_work_is_refused(tmp_path: Path, rows: str, at: int, gpus: int, problem: str) -> None:
    with pytest.raises(SnapshotError, match=problem):
        snapshot_from_trace(trace(tmp_path, rows), at, gpus=gpus)


def test_an_unknown_header_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("job,when\n1,2\n")
    with pytest.raises(SnapshotError, match="columns job, when"):
        snapshot_from_trace(path, 1)


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("3d6h", 280_800), ("2h30m", 9_000), ("1d", 86_400), ("45s", 45)])
def test_moments_as_people_write_them(text: str, seconds: int) -> None:
    assert parse_span(text) == seconds


@pytest.mark.parametrize("text", ["", "d", "3x", "6h3d", "-1", "1.5h"])
def test_moments_that_are_none(text: str) -> None:
    with pytest.raises(SnapshotError, match="no span"):
        parse_span(text)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "at", "gpus", "running"),
    [
        ("sample_elasticflow_c04_2000.csv", "6d", 256, 200),
        ("sample_philly_2000.csv", "43d", 128, 64),
        ("philly_2017.csv.gz", "30d", None, 256),
        ("acme_kalos_completed_training.csv", "50d11h", 1024, 1000),
    ],
)
def test_real_traces(name: str, at: str, gpus: int | None, running: int) -> None:
    path = shared_file(name)
    snapshot, notes = snapshot_from_trace(path, parse_span(at), gpus=gpus)
    assert complaints(snapshot) == []
    assert decode_snapshot(encode_snapshot(snapshot)) == snapshot
    assert sum(work.gpus for work, _ in runs(snapshot)) >= running, notes
    assert snapshot.usage
    if not name.startswith("sample"):
        return  # reading a whole log again takes its time
    again, _ = snapshot_from_trace(path, parse_span(at), gpus=gpus)
    assert again == snapshot
    cold, _ = snapshot_from_trace(path, parse_span(at), gpus=gpus, history=False)
    assert not cold.usage


@pytest.mark.slow
def test_the_whole_elasticflow_trace() -> None:
    snapshot, notes = snapshot_from_trace(shared_file("elasticflow_itp_2021.csv.gz"), parse_span("20d"), gpus=2048)
    assert complaints(snapshot) == []
    assert notes[0] == "ElasticFlow trace: 69351 rows, 0 of them cannot be used"
