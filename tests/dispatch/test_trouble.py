"""What an operator or a bad day may give the commands: a message with place and remedy, never a trace, and nothing lost."""

from __future__ import annotations

import json
import logging
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from allocator.dispatch.config import load_config
from allocator.dispatch.journal import Journal
from allocator.dispatch.launcher import LauncherError
from allocator.dispatch.migrations import JournalError
from allocator.dispatch.scope import scope_of
from allocator.dispatch.slurm.commands import Commands
from allocator.dispatch.slurm.launcher import REFRESH, SlurmLauncher
from allocator.domain import SnapshotError
from tests.dispatch import samples, test_command
from tests.dispatch.site import Site
from tests.dispatch.test_command import run, script
from tests.dispatch.test_requests import job, view

told = test_command.told  # the fixture

ONCE = ("dispatch", "slurm", "--once", "--engine", "greedy", "--patience", "0.3")


def refusal(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    """What a command says that must end with status 2; frames and line breaks of the terminal do not count."""
    assert run(*args) == 2
    shown = capsys.readouterr()
    assert "Traceback" not in shown.err
    assert "internal error" not in shown.err
    return " ".join(shown.err.split())


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize(
    ("options", "problem", "remedy"),
    [
        (("--config", "no.toml"), "no.toml: cannot be read", "give a file that exists"),
        (("--config", "."), ".: cannot be read", "give a file"),
        (("--config", "bytes"), "bytes: 'utf-8'", "correct it"),
        (("--config", "word.toml"), "word.toml: Expected `int`", "shows every field"),
        (("--config", "shares.toml"), "shares.toml: shares.json: Object missing", "give the list `budgets`"),
        (("--config", "soon.toml"), "soon.toml: at: 'soon' is no span", "give seconds"),
        (("--pool", "b300"), "pools: no node is in b300", "give some of h100"),
        (("--journal", "."), ". is a folder", "give the path of a file"),
        (("--journal", ""), ". is a folder", "give the path of a file"),
        (("--journal", "no/j.db"), "no is no folder", "make it"),
        (("--journal", "word.toml"), "file is not a database", "give the file"),
        (("--journal", "newer.db"), "schema version 99", "use the release"),
        (("--journal", "sqlite:////no/j.db"), "/no/j.db: unable to open", "may write"),
        (("--journal", "dbase://host/name"), "no database can be opened as given", "DIALECT://HOST/NAME"),
        (("--journal", "://"), "no database can be opened as given", "give a file"),
        (("--journal", "oracle://host/name"), "driver", "pip install"),
        (("--record", "word.toml"), "--record: word.toml cannot be made", "give a folder"),
        (("--interval", "0"), "'--interval': 0.0 is not above 0", "give seconds"),
    ],
)
def test_wrong_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], problem: str, remedy: str
) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    (tmp_path / "word.toml").write_text("[policy]\nnotice = 'a word of more than sixteen bytes: no database begins like that'")
    (tmp_path / "shares.toml").write_text("budgets = 'shares.json'")
    (tmp_path / "shares.json").write_text('[{"id": "x"}]')
    (tmp_path / "soon.toml").write_text("[qos.default]\nmin_runtime = 'soon'")
    Journal("newer.db").close()
    with sqlite3.connect("newer.db") as connection:
        connection.execute("UPDATE schema_version SET version = 99")
    said = refusal(capsys, *ONCE, *options)
    assert problem in said
    assert remedy in said


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize("command", ["show", "export"])
@pytest.mark.parametrize("journal", ["no.db", ".", "word", "newer.db", "dbase://host/name"])
def test_what_is_no_journal(tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, journal: str) -> None:
    (tmp_path / "word").write_text("no database begins like that")
    Journal("newer.db").close()
    with sqlite3.connect("newer.db") as connection:
        connection.execute("UPDATE schema_version SET version = 99")
    assert ": " in refusal(capsys, "journal", command, journal)


@pytest.mark.usefixtures("told")
def test_an_export_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*ONCE, "--journal", "j.db") == 0
    full = Path("/dev/full")
    for table in ("jobs", "epochs"):
        if full.exists():
            assert "No space left" in refusal(capsys, "journal", "export", "j.db", "--table", table, "--out", str(full))
        assert "folder that exists" in refusal(capsys, "journal", "export", "j.db", "--out", str(tmp_path / "no" / "x.parquet"))


BROKEN = {
    "half": '{"jobs": [',
    "nothing": "",
    "no list": '{"jobs": {}}',
    "no records": '{"jobs": [5]}',
    "no id": '{"jobs": [{"job_state": "RUNNING"}]}',
    "half a list of hosts": '{"jobs": [{"job_id": 1, "job_state": "RUNNING", "nodes": "n[01-"}]}',
    "an error beside an empty list": '{"jobs": [], "errors": [{"error": "Unable to contact slurm controller"}]}',
    "a number as a state": '{"jobs": [{"job_id": 1, "job_state": ["RUNNING"], "time_limit": {"set": true, "number": "x"}}]}',
}


@pytest.mark.parametrize("broken", BROKEN, ids=str)
def test_jobs_that_cannot_be_understood_are_not_taken_for_gone(
    told: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], broken: str
) -> None:
    assert run(*ONCE, "--journal", "j.db") == 0
    promised = Journal("j.db").load().jobs
    assert promised["1"].held is not None
    (tmp_path / "broken.json").write_text(BROKEN[broken])
    script(tmp_path / "bin" / "squeue", f"cat {tmp_path}/broken.json")
    before = told.read_text() if told.exists() else ""
    assert "jobs" in refusal(capsys, *ONCE, "--journal", "j.db")
    assert Journal("j.db").load().jobs == promised
    assert (told.read_text() if told.exists() else "") == before, "nothing is ordered"


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize(
    "shown", ['{"nodes": [{}]}', '{"nodes": [{"name": "n1", "gres": {}, "cpus": []}]}', '{"nodes": null}', "\\0377"]
)
def test_nodes_that_cannot_be_understood(tmp_path: Path, capsys: pytest.CaptureFixture[str], shown: str) -> None:
    script(tmp_path / "bin" / "sinfo", f"printf '%b' '{shown}'")
    assert "nodes" in refusal(capsys, *ONCE, "--journal", "j.db")


def test_the_loop_goes_on_after_output_that_cannot_be_understood(told: Path) -> None:
    script(told.parent / "bin" / "squeue", """echo '{"jobs": [5]}'""")
    with pytest.raises(LauncherError, match="no list of jobs"):  # what the loop survives, see `Dispatcher.run`
        SlurmLauncher(Commands()).view()
    script(told.parent / "bin" / "scontrol", "echo 'SwitchName=s0 Level=0 Nodes=n[01-'")
    with pytest.raises((LauncherError, SnapshotError)):
        SlurmLauncher(Commands()).view()


def test_commands_that_are_not_installed(told: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("squeue", "sinfo", "scontrol", "sacctmgr"):
        (tmp_path / "bin" / name).unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(tmp_path / "bin"))
        assert "is not installed: install Slurm's client commands" in refusal(capsys, *ONCE, "--journal", "j.db")
    assert not told.exists()


@pytest.mark.usefixtures("told")
def test_json_is_tried_again_after_a_while(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    now = [1_000_000.0]
    launcher = SlurmLauncher(Commands(), clock=lambda: now[0])
    script(tmp_path / "bin" / "squeue", "exit 1")
    launcher.view()
    launcher.view()
    assert [record.levelname for record in caplog.records] == ["WARNING"], "said once"
    script(tmp_path / "bin" / "squeue", f"cat {samples.FOLDER / 'squeue_2205.json'}")
    now[0] += REFRESH + 1
    asked = tmp_path / "asked"
    script(tmp_path / "bin" / "squeue", f"echo x >> {asked}; cat {samples.FOLDER / 'squeue_2205.json'}")
    launcher.view()
    assert asked.exists()
    now[0] -= 1_000_000
    launcher.view()
    assert asked.read_text().count("x") == 2, "a clock that went back keeps nothing away for ever"


def test_a_clock_that_goes_back_undoes_no_promise(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    site = Site(tmp_path)
    site.scheduler.submit("a1", "a", num_nodes=4)
    site.epochs(2)
    before = site.memory()
    held = before.jobs["a1"].held
    assert held is not None
    site.scheduler.submit("b1", "b", num_nodes=4)
    site.scheduler.now -= 86_400
    with caplog.at_level(logging.WARNING):
        site.epochs(2)
    assert "behind the last look" in caplog.text
    assert site.memory().jobs["a1"].held == held
    assert site.memory().seen == before.seen
    assert not [row for decision in site.decisions for row in decision.preemptions]
    site.scheduler.now += 2 * 86_400
    site.epochs(3)
    assert any(start.job == "b1" for start in site.scheduler.starts), "once the clock is right, all goes on"
    site.check(["a1", "b1"])


def test_pools_that_are_not_there() -> None:
    shown = view(job(gpu_type="h100"))
    assert scope_of(shown, frozenset({"h100", "b300"})).pools, "one of them is enough: nodes come and go"
    with pytest.raises(SnapshotError, match="see its configuration"):
        scope_of(replace(shown, nodes={}), frozenset({"h100"}))


def test_a_journal_that_may_not_be_locked(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "j.db"))
    (tmp_path / "j.db.lock").mkdir()
    with pytest.raises(JournalError, match=r"j\.db\.lock cannot be written"):
        journal.exclusive().__enter__()


def test_a_backup_that_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    Journal(str(path)).close()
    data = bytearray(path.read_bytes())
    data[100:] = bytes(len(data) - 100)
    path.write_bytes(data)
    with pytest.raises(JournalError, match="put a backup in its place"):
        Journal(str(path))


def test_budgets_beside_the_configuration_may_be_missing(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(f"budgets = {json.dumps('none.json')}")
    with pytest.raises(SnapshotError, match=r"c\.toml: .*none\.json: cannot be read"):
        load_config(tmp_path / "c.toml")
