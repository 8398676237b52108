"""Two simulators on one trace: what they are given is the same, and the table says who was faster and what is missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from allocator.wire import encode_trace
from benchmarks import simulators
from benchmarks.simulators import ABSENT, Took, in_child, least, lines, main, make, swf_lines


def test_both_are_given_the_same_jobs() -> None:
    trace = make(30, 64, 1.0, 2, 1)
    comment, *rows = swf_lines(trace)
    assert comment == f"; UnixStartTime: {trace.start}"
    assert len(rows) == len(trace.jobs) == 30
    for row, job in zip(rows, trace.jobs, strict=True):
        fields = [int(field) for field in row.split()]
        assert len(fields) == 18
        assert fields[1] == job.workload.submit_time - trace.start
        assert fields[3] == min(job.work, job.fails_after or job.work) <= fields[8]
        assert fields[4] == fields[7] == job.workload.gpus
    assert all(job.idle == 0 and job.after is None for job in trace.jobs)
    assert not trace.outages


def test_too_few_jobs_are_said() -> None:
    with pytest.raises(SystemExit, match="more --days"):
        make(1_000_000, 64, 1.0, 1, 1)


def test_our_side_plays_all_jobs_to_their_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "trace.json").write_bytes(encode_trace(make(30, 64, 1.0, 2, 1)))
    main(["--play", str(tmp_path)])
    whole, alone = (Took(*row) for row in json.loads(capsys.readouterr().out))
    assert whole.jobs == alone.jobs == 30
    assert alone.cpu <= whole.cpu
    assert (tmp_path / "results" / "jobs.csv").exists()


def test_the_table_has_a_ratio_only_where_there_are_two() -> None:
    mine, part = Took("fifo_backfill", 100, 2.0, 4.0), Took("part", 100, 1.0, 2.0)
    other, main_process = Took("AccaSim 1, EASY", 100, 4.0, 8.0), Took("its main process", 100, 0.5, 8.0)
    found = lines([mine, part, other, main_process])
    assert "ratio of jobs per CPU second, ours to AccaSim: 2.00; of the second rows: 0.50" in found
    assert ABSENT in lines([mine, part])
    assert least([[mine, part], [mine._replace(cpu=1.5), part._replace(cpu=3.0)]]) == [mine._replace(cpu=1.5), part]


def test_a_side_that_fails_is_said(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="failed with status"):
        in_child("benchmarks.simulators", tmp_path)


def test_without_accasim_only_ours_is_measured(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[str] = []

    def child(module: str, folder: Path) -> list[Took]:
        asked.append(module)
        assert (folder / "trace.json").exists()
        assert (folder / "log.swf").exists()
        assert json.loads((folder / "system.json").read_text())["resources"] == {"node": 8}
        return [Took("fifo_backfill", 30, 1.0, 1.0), Took("of this, without files", 30, 0.5, 0.5)]

    monkeypatch.setattr(simulators, "find_spec", lambda name: None)
    monkeypatch.setattr(simulators, "in_child", child)
    main(["--jobs", "30", "--gpus", "64", "--load", "1.0", "--days", "2", "--repeat", "1"])
    assert asked == ["benchmarks.simulators"]
    assert ABSENT in capsys.readouterr().out
