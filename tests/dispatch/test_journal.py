"""The journal: what is written comes back, once, over restarts, releases and full disks."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from allocator import allocate
from allocator.dispatch import migrations
from allocator.dispatch.journal import KEPT_SECONDS, Journal
from allocator.dispatch.launcher import LauncherError
from allocator.dispatch.memory import Event, JobMemory, Memory, UsageRow
from allocator.dispatch.migrations import STEPS, JournalError, migrate, version_of
from allocator.dispatch.settle import Effects, Undertaking
from allocator.domain import LastStop, Reservation, UsageRecord
from tests.dispatch.site import Site
from tests.dispatch.test_build import snapshot_of
from tests.dispatch.test_observe import held
from tests.dispatch.test_requests import NOW, job, view

JOB = JobMemory(
    id="1",
    submit_time=5,
    preempted=2,
    failed_resumes=1,
    failed_starts=3,
    retry_at=9,
    entitled_since=7,
    stopped=LastStop(at=6, pool="h100", gpus=8, charged=True, placement={"n1": 1}),
    held=held(),
)
KEPT = Reservation(workload="2", pool="h100", domain=("east",), nodes=3, start=8, eligible_since=4, bound=99, waits_for=("1",))
USAGE = UsageRow(
    record=UsageRecord(id="1@1-9", allocation="nlp", pool="h100", gpus=8, start=1, end=NOW, charged=True), job="1", user="ana"
)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal(str(tmp_path / "journal.db"))
    yield journal
    journal.close()


def path_of(journal: Journal) -> str:
    path = journal._engine.url.database
    assert path is not None
    return path


def undertaking() -> Undertaking:
    snapshot = snapshot_of(view(job(gpu_type="h100")))
    return Undertaking(snapshot=snapshot, decision=allocate(snapshot, engine="greedy"), incarnations={"1": 4})


def test_memory_comes_back(journal: Journal) -> None:
    after = Memory(jobs={"1": JOB}, reservations=(KEPT,), seen=NOW)
    journal.observe(Memory(), after, [USAGE, USAGE], [Event(at=NOW, subject="1", kind="adopted", detail="d")])
    assert journal.load() == replace(after, usage=(USAGE.record,))
    assert journal.load(since=NOW + 1).usage == ()
    again = Journal(path_of(journal))
    assert again.load() == journal.load()
    assert [row["kind"] for row in again.rows("events")] == ["adopted"]
    changed = replace(after, jobs={"3": replace(JOB, id="3")}, reservations=())
    again.observe(after, changed, [USAGE], [])
    assert again.load() == replace(changed, usage=(USAGE.record,)), "records count once"


def test_a_commit_reaches_the_disk(journal: Journal) -> None:
    with journal._engine.connect() as connection:
        assert connection.execute(sa.text("PRAGMA synchronous")).scalar() == 2  # FULL
        assert connection.execute(sa.text("PRAGMA journal_mode")).scalar() == "wal"


def test_what_was_begun_is_known_until_its_end(journal: Journal) -> None:
    work = undertaking()
    assert journal.undertaking() is None
    number = journal.begin(work)
    left = journal.undertaking()
    assert left is not None
    assert left[0] == number
    assert left[1].snapshot == work.snapshot
    assert replace(left[1].decision, timing={}) == replace(work.decision, timing={})
    assert left[1].incarnations == {"1": 4}
    journal.end(number, work, Effects(), Memory(), Memory(seen=5), [])
    assert journal.undertaking() is None
    (row,) = journal.rows("epochs")
    assert (row["state"], row["failed"], row["started"]) == ("closed", "1", "")
    assert "undertaking" not in row


def test_old_rows_go(journal: Journal) -> None:
    journal.observe(Memory(), Memory(seen=NOW), [USAGE], [Event(at=NOW, subject="1", kind="k", detail="d")])
    journal.observe(Memory(), Memory(seen=NOW + KEPT_SECONDS), [], [])
    assert len(journal.rows("usage")) == 1
    journal.observe(Memory(), Memory(seen=NOW + KEPT_SECONDS + 1), [], [])
    assert journal.rows("usage") == []
    assert journal.rows("events") == []


def test_only_one_dispatcher_writes(journal: Journal) -> None:
    with journal.exclusive(), pytest.raises(JournalError, match="another dispatcher"), Journal(path_of(journal)).exclusive():
        pass
    with journal.exclusive():
        pass
    with Journal("sqlite://").exclusive():
        pass


def test_every_older_schema_is_brought_up_to_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for present in range(1, len(STEPS)):
        path = tmp_path / f"{present}.db"
        monkeypatch.setattr(migrations, "STEPS", STEPS[:present])
        old = Journal(str(path))
        old.observe(Memory(), Memory(jobs={"1": JOB}, seen=3), [USAGE], [])
        old.close()
        monkeypatch.setattr(migrations, "STEPS", STEPS)
        new = Journal(str(path))
        assert new.load().jobs == {"1": JOB}
        assert new.rows("usage")
        with new._engine.begin() as connection:
            assert version_of(connection) == len(STEPS)
            migrate(connection)
        fresh = Journal(str(tmp_path / f"fresh{present}.db"))
        assert _schema(new) == _schema(fresh)


def _schema(journal: Journal) -> dict[str, object]:
    inspector = sa.inspect(journal._engine)
    return {
        name: (
            [column["name"] for column in inspector.get_columns(name)],
            [index["name"] for index in inspector.get_indexes(name)],
        )
        for name in inspector.get_table_names()
    }


def test_a_later_release_is_respected(journal: Journal) -> None:
    with sqlite3.connect(path_of(journal)) as connection:
        connection.execute("UPDATE schema_version SET version = 99")
    with pytest.raises(JournalError, match="schema version 99"):
        Journal(path_of(journal))


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="is no folder"):
        Journal(str(tmp_path / "no" / "journal.db"))


def test_a_full_disk_stops_nothing_and_begins_nothing(tmp_path: Path) -> None:
    """A journal that cannot grow: no order is given that was not written down; once there is room, all goes on."""
    site = Site(tmp_path)
    site.epochs(1)
    site.scheduler.submit("a1", "a")
    dispatcher = site.dispatcher()
    with dispatcher._journal._engine.connect() as connection:
        pages = connection.execute(sa.text("PRAGMA page_count")).scalar_one()
    full = Journal(site.file)
    sa.event.listen(full._engine, "connect", lambda connection, _: connection.execute(f"PRAGMA max_page_count = {pages}"))
    full._engine.dispose()
    dispatcher._journal = full
    for number in range(200):
        site.scheduler.submit(f"b{number}", "b")
    with pytest.raises(JournalError, match="full: make room"):
        dispatcher.epoch()
    assert not site.scheduler.starts
    site.epochs(2)
    assert site.scheduler.starts
    site.check(["a1"])


def test_an_end_that_cannot_be_written_is_found_out_by_the_next_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(tmp_path)
    site.scheduler.submit("a1", "a")

    def fails(*_: object) -> None:
        raise JournalError("disk full")

    dispatcher = site.dispatcher()
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "end", fails)
        with pytest.raises(JournalError):
            dispatcher.epoch()
    assert len(site.scheduler.starts) == 1
    site.epochs(1)
    site.check(["a1"])


def test_a_scheduler_that_goes_away_in_the_middle_leaves_nothing_armed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(tmp_path)
    site.scheduler.submit("a1", "a")
    dispatcher = site.dispatcher()

    def away(_: object) -> None:
        raise LauncherError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(site.scheduler, "release", away)
        with pytest.raises(LauncherError):
            dispatcher.epoch()
    assert site.scheduler.jobs["a1"].wanted_nodes
    dispatcher.recover()
    assert not site.scheduler.jobs["a1"].wanted_nodes
    site.epochs(1)
    site.check(["a1"])
