"""`allocator generate trace`, and `allocator schema trace`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from allocator.cli.main import app
from allocator.wire import decode_trace, load_trace

LOG = "job_id,submit_s,duration_s,gpus,vc\na,0,3600,8,x\nb,40,7200,16,y\nc,90000,3600,8,x\nd,5,60,99,x\n"


def run(*arguments: str) -> tuple[int, bytes, str]:
    result = CliRunner().invoke(app, ["generate", "trace", *arguments])
    return result.exit_code, result.stdout_bytes, result.stderr


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "log.csv"
    path.write_text(LOG)
    return str(path)


def test_a_log_becomes_a_trace_and_says_what_was_left_out(log: str) -> None:
    code, out, err = run("--from", log, "--gpus", "16")
    trace = decode_trace(out)
    assert code == 0
    assert [job.workload.id for job in trace.jobs] == ["x-a", "y-b", "x-c"]
    assert "note: Philly trace: 4 rows, 1 of them cannot be used" in err
    assert "more than the cluster's 16 GPUs (first in line 5)" in err


def test_days_load_seed_and_jitter(log: str, tmp_path: Path) -> None:
    files = [tmp_path / "a.json.gz", tmp_path / "b.json.gz"]
    for file in files:
        given = ("--from", log, "--format", "plain", "--gpus", "16", "--days", "0:1", "--load", "0.3", "--seed", "1")
        assert run(*given, "--out", str(file))[:2] == (0, b"")
    assert files[0].read_bytes() == files[1].read_bytes()
    trace = load_trace(files[0])
    assert {job.workload.id.partition("~")[0] for job in trace.jobs} <= {"a", "b"}
    recorded = decode_trace(run("--from", log, "--gpus", "16")[1]).jobs[0].workload.submit_time
    moved = decode_trace(run("--from", log, "--gpus", "16", "--seed", "4", "--jitter", "2m")[1])
    times = [job.workload.submit_time - recorded for job in moved.jobs]
    assert all(abs(time - at) <= 120 for time, at in zip(sorted(times), (0, 40, 90_000), strict=True))


def test_synthetic_ones_and_scenarios(tmp_path: Path) -> None:
    code, out, err = run("--gpus", "64", "--pools", "1", "--days", "1", "--seed", "2", "--failures", "0")
    assert (code, decode_trace(out).outages) == (0, ())
    assert "offered load" in err
    code, out, err = run("--scenario", "eval-flood", "--gpus", "64")
    assert (code, len(decode_trace(out).cluster.nodes)) == (0, 8)
    assert "scenario eval-flood" in err
    code, out, _ = run("--scenario", "list")
    assert code == 0
    assert out.startswith(b"big-gang-arrival ")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--from", "absent.csv"), "cannot be read"),
        (("--from", "x.csv", "--pools", "3"), "no effect"),
        (("--from", "x.csv", "--scenario", "eval-flood"), "no effect"),
        (("--from", "x.csv", "--jitter", "5m"), "--seed"),
        (("--from", "x.csv", "--days", "7"), "span of days"),
        (("--format", "philly"), "no effect"),
        (("--jitter", "5m"), "no effect"),
        (("--days", "1:2"), "number of days"),
        (("--scenario", "nope"), "eval-flood"),
        (("--gpus", "65"), "64 or 72"),
        (("--gpus", "64", "--out", "/absent/file"), "written"),
    ],
)
def test_wrong_use_exits_with_2_and_nothing_on_standard_output(arguments: tuple[str, ...], word: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, b"")
    assert word in err


def test_the_schema_of_traces() -> None:
    result = CliRunner().invoke(app, ["schema", "trace"])
    assert json.loads(result.stdout)["$id"] == "urn:allocator:trace:1"
