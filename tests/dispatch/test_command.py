"""The commands `dispatch` and `journal`, on Slurm commands that print samples and note what they are told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from allocator.cli.main import main
from allocator.dispatch.config import load_config
from allocator.dispatch.journal import Journal
from allocator.dispatch.launcher import LauncherError, NotReadyError
from allocator.dispatch.memory import Event, Memory
from allocator.dispatch.slurm.commands import Commands
from allocator.dispatch.slurm.launcher import SlurmLauncher
from allocator.domain import SnapshotError
from allocator.record import recorded
from tests.dispatch import samples
from tests.dispatch.test_journal import JOB, KEPT, USAGE, undertaking

CONFIG = """
pools = ["h100"]
budgets = "budgets.json"
[policy]
protection_cap = 600
[qos.default]
min_runtime = "10m"
[qos.normal]
topology = { preferred = "leaf" }
priority = 3
[[maintenance]]
nodes = "n[01-02]"
start = 2027-01-01T06:00:00Z
end = 2027-01-01T10:00:00
reason = "firmware"
"""
BUDGETS = '[{"id": "nlp", "parent": null, "share": 2}, {"id": "vision", "parent": null, "share": 1}]'


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Slurm's commands as scripts; the file in which `scontrol` notes what it was told."""
    binaries, told = tmp_path / "bin", tmp_path / "told"
    binaries.mkdir()
    show = {"squeue": "squeue_2205.json", "sinfo": "sinfo_2205.json", "sacctmgr": "sacctmgr_tree_2205.txt"}
    for name, sample in show.items():
        script(binaries / name, f"cat {samples.FOLDER / sample}")
    script(
        binaries / "scontrol",
        f'case "$*" in *topology*) cat {samples.FOLDER}/scontrol_topology_2205.txt;; '
        f"*nodes*) cat {samples.FOLDER}/scontrol_nodes_2205.txt;; *jobs*) cat {samples.FOLDER}/scontrol_jobs_2205.txt;; "
        f'*update*) echo "$*" >> {told};; *) cat >> {told};; esac',
    )
    monkeypatch.setenv("PATH", f"{binaries}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return told


def script(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def run(*args: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(args))
    return int(ended.value.code or 0)


def test_a_dry_run_prints_orders_and_leaves_no_trace(told: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("dispatch", "slurm", "--dry-run", "--engine", "greedy") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["stop 3_1"]  # it is not protected, and n03 drains; n01 and n02 are taken, n04 is down
    assert not told.exists()
    assert not Path("allocator-journal.db").exists()


def test_one_epoch_places_and_looks_before_it_releases(told: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    sinfo = json.loads(samples.text("sinfo_2205.json"))
    for node in sinfo["nodes"]:
        node["state_flags"], node["state"] = [], "idle"
    (tmp_path / "idle.json").write_text(json.dumps(sinfo))
    script(tmp_path / "bin" / "sinfo", f"cat {tmp_path}/idle.json")
    options = ("--journal", "j.db", "--record", "rec", "--once", "-v", "--engine", "greedy", "--patience", "0.3")
    assert run("dispatch", "slurm", *options) == 0
    assert "wait;" in capsys.readouterr().err
    lines = told.read_text().splitlines()
    placed = [line for line in lines if "NumNodes=2-2" in line]
    assert [line.split()[1] for line in placed] == ["JobId=2"]
    assert placed[0].endswith("StartTime=now Switches=0 TresPerNode=gres:gpu:8")
    assert not [line for line in lines if line.startswith("release")], "this Slurm did not take the nodes: nothing is released"
    assert len(list(recorded(Path("rec")))) == 1
    assert run("journal", "show", "j.db") == 0
    shown = capsys.readouterr().out
    assert "adopted" in shown
    assert "promised until" in shown


def test_shadow_tells_what_it_would_do(told: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("dispatch", "slurm", "--shadow", "--once", "--journal", "j.db", "--engine", "greedy") == 0
    assert "would" in json.loads(capsys.readouterr().out)
    assert not told.exists()
    assert Journal("j.db").load().jobs["1"].held is not None


@pytest.mark.usefixtures("told")
def test_the_loop_ends_when_it_is_asked_to(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "allocator", "dispatch", "slurm", "--shadow", "--interval", "0.1", "--engine", "greedy"]
    here = Path(__file__).parents[2]
    process = subprocess.Popen(
        [*command, "-v", "--journal", "j.db"], stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(here)}, cwd=tmp_path
    )
    assert process.stdout is not None
    watchdog = threading.Timer(60, process.kill)
    watchdog.start()
    line = json.loads(process.stdout.readline())
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    watchdog.cancel()
    process.stdout.close()
    assert line["both"] == []


@pytest.mark.usefixtures("told")
def test_wrong_usage_and_a_scheduler_that_is_away(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run("dispatch", "slurm", "--dry-run", "--shadow") == 2
    assert run("dispatch", "slurm", "--dry-run", "--config", "no.toml") == 2
    assert run("dispatch", "slurm", "--once", "--journal", "no/j.db") == 2
    assert run("journal", "show", "no.db") == 2
    for name in ("squeue", "scontrol"):
        script(tmp_path / "bin" / name, "echo 'Unable to contact slurm controller' >&2; exit 1")
    assert run("dispatch", "slurm", "--once", "--journal", "j.db") == 2
    assert "is slurmctld up?" in capsys.readouterr().err


@pytest.mark.usefixtures("told")
def test_without_json_the_text_is_read(tmp_path: Path) -> None:
    with_json = SlurmLauncher(Commands()).view()
    script(tmp_path / "bin" / "squeue", "echo 'unrecognized option --json' >&2; exit 1")
    launcher = SlurmLauncher(Commands())
    for _ in range(2):
        assert set(launcher.view().jobs) == set(with_json.jobs)
    assert launcher.view().accounts == with_json.accounts
    assert SlurmLauncher(Commands(), read_accounts=False).view().accounts == ()


def test_orders_are_lines_of_scontrol(told: Path) -> None:
    launcher = SlurmLauncher(Commands())
    launcher.stop(["1", "3_2"])
    launcher.hold(["2"])
    launcher.unplace(["2"])
    launcher.release([])
    launcher.release(["2"])
    launcher.drain(["n1", "n2"], "allocator: firmware")
    launcher.resume(["n1"])
    assert told.read_text().splitlines() == [
        "update JobId=1 Requeue=1",
        "update JobId=3_2 Requeue=1",
        "requeuehold Incomplete 1",
        "requeuehold Incomplete 3_2",
        "hold 2",
        "update JobId=2 ReqNodeList=",
        "release 2",
        "update NodeName=n1,n2 State=DRAIN Reason=allocator: firmware",
        "update NodeName=n1 State=RESUME",
    ]


@pytest.mark.usefixtures("told")
def test_a_controller_that_has_just_come_back_is_not_believed(tmp_path: Path) -> None:
    script(tmp_path / "bin" / "sinfo", """echo '{"nodes": [{"name": "n1", "state": "unknown"}]}'""")
    with pytest.raises(NotReadyError, match="n1"):
        SlurmLauncher(Commands()).view()
    script(tmp_path / "bin" / "sinfo", "echo '{}'")
    with pytest.raises(LauncherError, match="no list of nodes"):
        SlurmLauncher(Commands()).view()


def test_commands_that_hang_or_are_missing(told: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(told.parent / "bin" / "sinfo", "sleep 60")
    with pytest.raises(LauncherError, match=r"more than 0\.2 s"):
        Commands(timeout=0.2).read("sinfo")
    script(told.parent / "bin" / "scontrol", "echo 'Unable to contact slurm controller (connect failure)' >&2")
    with pytest.raises(LauncherError, match="slurmctld"):
        Commands().feed(["release 1"])
    monkeypatch.setattr("allocator.dispatch.slurm.commands._leash", tuple)
    with pytest.raises(LauncherError, match="is not installed"):
        Commands().read("no-such-command")


def test_a_command_dies_with_the_dispatcher(told: Path) -> None:
    """An orphan could release a job after the next dispatcher has taken that back."""
    script(told.parent / "bin" / "scontrol", f"echo $$ > {told}.pid; exec sleep 60")
    here = Path(__file__).parents[2]
    code = "from allocator.dispatch.slurm.commands import Commands; Commands().feed(['release 1'])"
    process = subprocess.Popen([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(here)})
    pid_file = Path(f"{told}.pid")
    end = time.monotonic() + 60
    while not (pid_file.exists() and pid_file.read_text()) and time.monotonic() < end:
        time.sleep(0.02)
    pid = int(pid_file.read_text())
    process.kill()
    process.wait()
    while _lives(pid) and time.monotonic() < end:
        time.sleep(0.02)
    assert not _lives(pid)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_configuration(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(CONFIG)
    (tmp_path / "budgets.json").write_text(BUDGETS)
    config = load_config(tmp_path / "c.toml")
    assert config.pools == {"h100"}
    assert config.policy.protection_cap == 600
    assert config.qos == {"default": {"min_runtime": 600}, "normal": {"topology": {"preferred": "leaf"}, "priority": 3}}
    assert config.budgets is not None
    assert [vertex.id for vertex in config.budgets] == ["nlp", "vision"]
    (window,) = config.maintenance
    assert (window.nodes, window.end - window.start) == (("n01", "n02"), 4 * 3600)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("pools = 5", "pools"),
        ("[qos.high]\nmin_runtme = 5", "min_runtme"),
        ("[qos.high]\nmin_runtime = 'soon'", "no span"),
        ("budgets = 'none.json'", "cannot be read"),
        ("= 5", "Invalid"),
        ("[[maintenance]]\nnodes = 'n1'\nstart = 2027-01-02T00:00:00Z\nend = 2027-01-01T00:00:00Z", "ends before"),
    ],
)
def test_a_configuration_that_makes_no_sense(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "c.toml").write_text(text)
    with pytest.raises(SnapshotError, match=problem):
        load_config(tmp_path / "c.toml")


def test_the_journal_is_shown_and_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = str(tmp_path / "j.db")
    journal = Journal(name)
    memory = Memory(jobs={"1": JOB}, reservations=(KEPT,), seen=5)
    journal.observe(Memory(), memory, [USAGE], [Event(at=5, subject="1", kind="adopted", detail="d")])
    journal.begin(undertaking())
    assert run("journal", "show", name) == 0
    shown = capsys.readouterr().out
    assert "run          1: 8 GPUs of nlp/ana on n1, promised until" in shown
    assert "reservation  2: 3 nodes from" in shown
    assert "not brought to its end" in shown
    assert "1: adopted: d" in shown
    assert run("journal", "show", name, "--json") == 0
    assert json.loads(capsys.readouterr().out)["reservations"][0]["workload"] == "2"
    assert run("journal", "export", name) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header == "id,job,user,allocation,pool,gpus,start,end,charged"
    assert row.startswith("1@1-9,1,ana,nlp,h100,8,1,")
    assert run("journal", "export", name, "--since", "2100-01-01") == 0
    assert capsys.readouterr().out == ""
    assert run("journal", "export", name, "--out", str(tmp_path / "u.parquet")) == 0
    assert pq.read_table(tmp_path / "u.parquet").to_pylist()[0]["gpus"] == 8
    assert run("journal", "export", name, "--table", "jobs", "--out", str(tmp_path / "jobs.csv")) == 0
    assert (tmp_path / "jobs.csv").read_text().startswith("id,submit_time")
