"""Usage from before the dispatcher, as sacct prints it: read once, however often it is imported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from allocator.dispatch.journal import Journal
from allocator.dispatch.memory import Memory
from allocator.dispatch.slurm.history import read_history
from allocator.domain import SnapshotError
from tests.dispatch import samples
from tests.dispatch.test_command import run
from tests.dispatch.test_journal import JOB
from tests.dispatch.test_observe import held

HEADER = "JobID|Account|User|QOS|Start|End|State|AllocTRES"
GPUS = "billing=8,cpu=8,gres/gpu:h100=8,gres/gpu=8,node=1"


def log(*rows: str) -> str:
    return "\n".join([HEADER, *rows, ""])


def row(job: str = "5", start: object = 1000, end: object = 4600, *, tres: str = GPUS, qos: str = "normal") -> str:
    return f"{job}|nlp|ana|{qos}|{start}|{end}|COMPLETED|{tres}"


def test_a_run_is_a_record() -> None:
    (found,) = read_history(log(row()), set(), {}).rows
    record = found.record
    assert (found.job, found.user, record.allocation, record.pool, record.gpus) == ("5", "ana", "nlp/ana", "h100", 8)
    assert (record.start, record.end, record.charged) == (1000, 4600, True)


def test_what_slurm_really_printed() -> None:
    found = read_history(samples.text("sacct_2205.txt"), set(), {})
    assert [item.job for item in found.rows] == ["1", "8", "14", "16", "17"]
    assert {item.record.pool for item in found.rows} == {"h100"}
    assert all(item.record.start < item.record.end for item in found.rows)
    assert set(found.skipped) == {"it had no GPU", "it took no time", "it has not begun", "it has not ended"}


def test_local_times_are_those_of_the_machine() -> None:
    (found,) = read_history(log(row(start="2026-11-29T16:02:31", end="2026-11-29T17:02:31")), set(), {}).rows
    assert found.record.end - found.record.start == 3600


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (row("5.batch"), "it is a step of a job"),
        (row(tres="billing=1,cpu=1"), "it had no GPU"),
        (row(tres=""), "it had no GPU"),
        (row(tres="gres/gpu=0"), "it had no GPU"),
        (row(start="None"), "it has not begun"),
        (row(start="Unknown"), "it has not begun"),
        (row(end="Unknown"), "it has not ended"),
        (row(end=1000), "it took no time"),
        (row(start="yesterday"), "a time or a number cannot be read"),
        ("5|nlp", "the row has too few cells"),
    ],
)
def test_rows_that_are_no_runs_are_counted_with_their_line(line: str, reason: str) -> None:
    found = read_history(log(row(), line, line), set(), {})
    assert len(found.rows) == 1
    assert (dict(found.skipped), found.first) == ({reason: 2}, {reason: 3})


@pytest.mark.parametrize("text", ["", "no header", "JobID|User|Start"])
def test_a_log_without_its_columns(text: str) -> None:
    with pytest.raises(SnapshotError, match=r"are missing.*sacct -a -D"):
        read_history(text, set(), {})


def test_whose_and_at_what_price() -> None:
    qos = {"default": {"min_runtime": 60}, "scavenger": {"min_runtime": 0}}
    text = log(row("1"), row("2", qos="scavenger"), row("3", tres="gres/gpu=4"), row("4", tres="gres/gpu:a=1,gres/gpu:b=2"))
    found = {item.record.id: item.record for item in read_history(text, {"nlp"}, qos, "b200").rows}
    assert {record.allocation for record in found.values()} == {"nlp"}
    assert [record.charged for record in found.values()] == [True, False, True, True, True]
    assert found["3@1000-4600"].pool == "b200"
    assert {key: (record.pool, record.gpus) for key, record in found.items() if key and key.startswith("4@")} == {
        "4@1000-4600/a": ("a", 1),
        "4@1000-4600/b": ("b", 2),
    }


def test_twice_is_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name, file = str(tmp_path / "j.db"), tmp_path / "log"
    file.write_text(log(row("1"), row("1"), row("2", tres="gres/gpu:a=1,gres/gpu:b=2"), row("3", tres="")))
    assert run("journal", "import", name, str(file)) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown == [
        "3 runs of 1 allocations, 11.0 GPU-hours; 1 were known already",
        "left out: 1 rows: it had no GPU (line 5)",
    ]
    before = Journal(name).load().usage
    assert run("journal", "import", name, str(file)) == 0
    assert capsys.readouterr().out.startswith("0 runs of 0 allocations, 0.0 GPU-hours; 4 were known already")
    assert Journal(name).load().usage == before
    assert len(before) == 3


def test_what_the_dispatcher_has_accounted_for_itself_stays_its_own(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "j.db"))
    first = read_history(log(row("1", 1000, 2000)), set(), {}).rows
    going_on = replace(JOB, id="2", held=replace(held(), run=replace(held().run, start_time=5000)))
    journal.observe(Memory(), Memory(jobs={"2": going_on}, seen=6000), first, [])
    again = log(row("1", 1001, 2003), row("1", 2000, 3000), row("2", 1000, 5000), row("2", 5001, 6000))
    fresh = journal.add_usage(read_history(again, set(), {}).rows)
    assert [item.record.id for item in fresh] == ["1@2000-3000", "2@1000-5000"], "a second's difference is no other run"
    assert {item.id for item in journal.load().usage} == {"1@1000-2000", "1@2000-3000", "2@1000-5000"}


def test_files_that_are_no_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    for name, problem in (("none", "cannot be read"), (".", "cannot be read"), ("bytes", "are missing")):
        assert run("journal", "import", str(tmp_path / "j.db"), str(tmp_path / name)) == 2
        assert problem in capsys.readouterr().err
    assert not (tmp_path / "j.db").exists(), "nothing is made in vain"


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"AllocTRES": "gres/gpu:h100=-8,gres/gpu=-8"}, "a time or a number cannot be read"),
        ({"AllocTRES": "gres/gpu:h100=nan,gres/gpu=8"}, "a time or a number cannot be read"),
        ({"AllocTRES": "gres/gpu:h100=8K"}, "a time or a number cannot be read"),
        ({"AllocTRES": "gres/gpu=1000000000000"}, "its numbers are larger than any cluster's"),
        ({"End": "1000000000000"}, "its numbers are larger than any cluster's"),
        ({"Account": ""}, "it has no account"),
    ],
)
def test_what_no_cluster_did_is_left_out(cells: dict[str, str], reason: str) -> None:
    """It would be booked against a budget, or for one."""
    row = {"JobID": "1", "Account": "acc", "User": "u", "QOS": "normal", "Start": "1764547200", "End": "1764550800"}
    row |= {"State": "COMPLETED", "AllocTRES": "gres/gpu:h100=8,gres/gpu=8"}
    text = "\n".join("|".join(table) for table in (row, row.values(), (row | cells).values()))
    found = read_history(text, (), {})
    assert [(one.record.pool, one.record.gpus) for one in found.rows] == [("h100", 8)]
    assert dict(found.skipped) == {reason: 1}
