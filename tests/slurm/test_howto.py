"""The how-to for Slurm is true: its commands run, in the order of the page, on a real Slurm."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import HOLD_GPU_JOBS, SlurmCluster
from tests.slurm.live import Site
from tests.test_docs import DOCS, ROOT, blocks_of
from tests.uncounted import uncounted

pytestmark = pytest.mark.slow

PAGE = DOCS / "howto" / "slurm.md"
PATIENTLY = '[ "$1" = dispatch ] && set -- "$@" --patience 120'
"""Commands are those of the page, but on a machine that does much else Slurm may take longer than usual."""
MARK = "on a real Slurm, by tests/slurm/test_howto.py"


@pytest.fixture
def site(cluster: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "allocator"
    command.write_text(f'#!/bin/sh\n{PATIENTLY}\nPYTHONPATH={ROOT} exec {sys.executable} -m allocator "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    site = Site(cluster, tmp_path)
    yield site
    site.clear()
    cluster.run("sacctmgr", "-i", "-Q", "delete", "account", "name=language,speech")  # of the page: others share the cluster


def test_every_command_of_the_page_runs(site: Site) -> None:
    commands = [
        line.removeprefix("$ ")
        for block in blocks_of(PAGE)
        if block.notes.get("not run") == MARK
        for line in block.text.splitlines()
        if line.startswith("$ ")
    ]
    assert len(commands) > 10
    printed: dict[str, str] = {}
    for command in commands:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=site.folder,
            env=uncounted(),
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        printed[command] = done.stdout + done.stderr
    assert sum(line.startswith("start ") for line in printed["allocator dispatch slurm --dry-run"].splitlines()) >= 7
    assert sum(state == "RUNNING" for state in site.states().values()) >= 7
    assert "promised until" in printed["allocator journal show journal.db"]
    assert "2 recorded epochs" in printed["allocator replay epochs --out again"]
    assert "would" in printed[next(command for command in commands if "--shadow" in command)]


def test_the_gate_of_the_page_is_the_one_that_the_tests_use() -> None:
    (page,) = [block.text for block in blocks_of(PAGE) if block.language == "lua"]
    for function in ("asks_for_gpus(job)", "slurm_job_submit", "job.priority ~= slurm.NO_VAL", "job.req_nodes ~= nil"):
        assert function in page
        assert function in HOLD_GPU_JOBS
