"""The journal in a real PostgreSQL, on a socket of its own: what holds for a file holds there too."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest
import sqlalchemy as sa

from allocator.dispatch.journal import Journal
from allocator.dispatch.memory import Event, Memory
from allocator.dispatch.migrations import JournalError
from tests.dispatch.site import PROMISE, Site
from tests.dispatch.test_command import run
from tests.dispatch.test_crashes import JOBS, contested, one_epoch
from tests.dispatch.test_journal import JOB, KEPT, USAGE, undertaking
from tests.dispatch.test_requests import NOW

USER = "postgres"
"""The server refuses to run as root."""
NUMBERS = itertools.count()


def _skip(why: str) -> NoReturn:
    warnings.warn(f"THE TESTS ON A REAL POSTGRESQL DO NOT RUN: {why}", stacklevel=2)
    pytest.skip(f"no real PostgreSQL: {why}")


def _program(name: str) -> str:
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    path = shutil.which(name) or (str(found[-1]) if found else None)
    return path or _skip(f"{name} is not installed")


@dataclass(frozen=True)
class Server:
    """A cluster of its own in a folder, without a port."""

    folder: Path

    def run(self, *command: str) -> None:
        other = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups") if os.geteuid() == 0 else ()
        subprocess.run([*other, *command], check=True, cwd=self.folder, stdout=subprocess.DEVNULL, timeout=120)

    def control(self, verb: str) -> None:
        options = f"-c unix_socket_directories={self.folder} -c listen_addresses= -c fsync=off -c autovacuum=off"
        log = str(self.folder / "log")
        self.run(_program("pg_ctl"), "-w", "-m", "immediate", "-D", f"{self.folder}/data", "-l", log, "-o", options, verb)

    def url(self, name: str) -> str:
        return f"postgresql+psycopg://{USER}@/{name}?host={self.folder}"

    def execute(self, statement: str) -> None:
        engine = sa.create_engine(self.url("postgres"), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(sa.text(statement))
        engine.dispose()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    pytest.importorskip("psycopg", reason="the driver psycopg is not installed")
    programs = _program("initdb"), _program("pg_ctl")
    with tempfile.TemporaryDirectory(prefix="pg-") as folder:  # short: the path of a socket is bounded
        server = Server(Path(folder))
        if os.geteuid() == 0:
            shutil.chown(folder, USER, USER)
        server.run(programs[0], "-D", f"{folder}/data", "-U", USER, "--auth=trust", "--no-sync", "--no-instructions")
        server.control("start")
        yield server
        server.control("stop")


@pytest.fixture
def url(server: Server) -> str:
    """A database of its own for each test."""
    name = f"t{next(NUMBERS)}"
    server.execute(f"CREATE DATABASE {name}")
    return server.url(name)


def test_memory_comes_back(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    journal = Journal(url)
    after = Memory(jobs={"1": JOB}, reservations=(KEPT,), usage=(USAGE.record,), seen=NOW)
    journal.observe(Memory(), after, [USAGE, USAGE], [Event(at=NOW, subject="1", kind="adopted", detail="d")])
    number = journal.begin(undertaking())
    again = Journal(url)
    assert again.load() == after
    assert again.load(since=NOW + 1).usage == ()
    left = again.undertaking()
    assert left is not None
    assert left[0] == number
    assert left[1].snapshot == undertaking().snapshot
    assert run("journal", "show", url) == 0
    assert "not brought to its end" in capsys.readouterr().out
    assert run("journal", "export", url) == 0
    assert capsys.readouterr().out.startswith("id,job,user,allocation")


def test_only_one_dispatcher_writes(url: str) -> None:
    with Journal(url).exclusive(), pytest.raises(JournalError, match="another dispatcher"), Journal(url).exclusive():
        pass
    with Journal(url).exclusive():
        pass


def test_a_dispatcher_that_is_killed_is_brought_to_its_end(url: str, server: Server, tmp_path: Path) -> None:
    steps = one_epoch(contested(tmp_path), None)[1]
    for step in range(20, steps, 16):
        name = f"killed{step}"
        server.execute(f"CREATE DATABASE {name}")
        site = contested(tmp_path, server.url(name))
        assert one_epoch(site, step)[0]
        site.scheduler.now += 1
        site.epochs(2)
        site.check(JOBS)


def test_a_server_that_goes_away_costs_an_epoch(url: str, server: Server, tmp_path: Path) -> None:
    site = Site(tmp_path, journal=url)
    site.scheduler.submit("a1", "a")
    dispatcher = site.dispatcher()
    dispatcher.epoch()
    promised = site.memory()
    server.control("stop")
    try:
        with pytest.raises(JournalError, match="see that the database runs"):
            dispatcher.epoch()
        with pytest.raises(JournalError, match="see that the database runs"):
            Journal(url)
    finally:
        server.control("start")
    with suppress(JournalError):
        dispatcher.epoch()  # may have kept a connection of before
    site.scheduler.now += PROMISE // 2
    dispatcher.epoch()
    assert site.memory().jobs["a1"].held == promised.jobs["a1"].held
    site.check(["a1"])


def test_a_database_that_is_not_there(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("journal", "show", server.url("nowhere")) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert 'database "nowhere" does not exist' in said
    assert "see that the database runs" in said
