"""The journal: what is remembered over restarts, and what is being carried out, written down before it is.

SQLite, unless the URL is that of another database. Every change of an epoch is one transaction: the journal never holds half
of one.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import msgspec
import sqlalchemy as sa

from allocator.dispatch.database import one_writer, open_engine, speaking_plainly
from allocator.dispatch.memory import Event, Held, JobMemory, Memory, UsageRow
from allocator.dispatch.migrations import migrate
from allocator.dispatch.settle import Effects, Undertaking
from allocator.domain import Decision, LastStop, Reservation, UsageRecord
from allocator.wire import decode_decision, decode_snapshot, encode_decision, encode_snapshot

OPEN, CLOSED = "open", "closed"
FOREVER = 1 << 62
KEPT_SECONDS = 400 * 86_400
"""How long usage, epochs and events are kept: a year of accounts, and a month to draw them up."""


class Journal:
    """A journal that is open. Only one dispatcher may write it: `exclusive` sees to that.

    Parameters
    ----------
    url
        A path, or a database URL such as `postgresql+psycopg://host/name`. The tables are made or brought up to date.

    Raises
    ------
    JournalError
        Where a later release has written it, or it cannot be opened.
    """

    def __init__(self, url: str) -> None:
        self._engine = open_engine(url)
        self._tables = sa.MetaData()
        with self._writing() as connection:
            migrate(connection)
            self._tables.reflect(connection)

    def close(self) -> None:
        """Let go of the file."""
        self._engine.dispose()

    def exclusive(self) -> AbstractContextManager[None]:
        """Keep a second dispatcher away while this one lives, however it ends.

        Raises
        ------
        JournalError
            Where there is one already.
        """
        return one_writer(self._engine)

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        with speaking_plainly(self._engine), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        """One transaction."""
        with speaking_plainly(self._engine), self._engine.begin() as connection:
            yield connection

    # reading

    def load(self, since: int = 0) -> Memory:
        """Everything that is remembered, with the usage that ended at `since` or later."""
        jobs, usage, held = self._table("jobs"), self._table("usage"), self._table("reservations")
        with self._reading() as connection:
            rows = connection.execute(sa.select(jobs)).mappings()
            records = connection.execute(sa.select(usage).where(usage.c.end >= since).order_by(usage.c.id)).mappings()
            kept = connection.execute(sa.select(held.c.data).order_by(held.c.workload)).scalars()
            return Memory(
                jobs={row["id"]: _job(row) for row in rows},
                reservations=tuple(msgspec.json.decode(data, type=Reservation) for data in kept),
                usage=tuple(_record(row) for row in records),
                seen=int(self._fact(connection, "seen") or 0),
            )

    def undertaking(self) -> tuple[int, Undertaking] | None:
        """What was being carried out when the dispatcher last ended, if it was not brought to its end."""
        epochs = self._table("epochs")
        query = sa.select(epochs.c.number, epochs.c.undertaking).where(epochs.c.state == OPEN).order_by(epochs.c.number.desc())
        with self._reading() as connection:
            row = connection.execute(query).first()
        return None if row is None else (row[0], _unpack(row[1]))

    def rows(self, table: str, limit: int | None = None) -> list[dict[str, Any]]:
        """The rows of a table, the newest first where they are numbered; binary columns are left out."""
        source = self._table(table)
        columns = [column for column in source.c if not isinstance(column.type, sa.LargeBinary)]
        key = next(iter(source.primary_key.columns))
        order = key.desc() if key.name == "number" else key
        with self._reading() as connection:
            return [dict(row) for row in connection.execute(sa.select(*columns).order_by(order).limit(limit)).mappings()]

    # writing

    def observe(self, before: Memory, after: Memory, usage: Iterable[UsageRow], events: Iterable[Event]) -> None:
        """What has been seen, in one transaction."""
        with self._writing() as connection:
            self._write(connection, before, after, usage, events)
            self._prune(connection, after.seen)

    def add_usage(self, rows: Iterable[UsageRow]) -> list[UsageRow]:
        """Runs from elsewhere, such as the scheduler's own accounts; gives those that are new.

        A run whose time is known already, in whole or in part, is left out: from an earlier call, or from the dispatcher, be it
        over or going on.
        """
        usage, jobs = self._table("usage"), self._table("jobs")
        with self._writing() as connection:
            known: dict[str, list[tuple[int, int]]] = defaultdict(list)
            for job, start, end in connection.execute(sa.select(usage.c.job, usage.c.start, usage.c.end)):
                known[job].append((start, end))
            for job, held in connection.execute(sa.select(jobs.c.id, jobs.c.held).where(jobs.c.held.is_not(None))):
                known[job].append((msgspec.json.decode(held, type=Held).run.start_time or 0, FOREVER))
            given = {row.record.id: row for row in rows}.values()
            fresh = [row for row in given if not _overlaps(row.record, known[row.job])]
            self._write_usage(connection, fresh)
        return fresh

    def begin(self, work: Undertaking) -> int:
        """Write down what is about to be carried out; it has reached the disk when this returns."""
        with self._writing() as connection:
            return self._insert_epoch(connection, work, OPEN, _pack(work), Effects())

    def end(
        self, number: int, work: Undertaking, effects: Effects, before: Memory, after: Memory, usage: Iterable[UsageRow]
    ) -> None:
        """What became of it, and the memory after that, in one transaction."""
        epochs = self._table("epochs")
        with self._writing() as connection:
            values = {"state": CLOSED, "undertaking": None, **_outcome(work, effects)}
            connection.execute(epochs.update().where(epochs.c.number == number).values(**values))
            self._write(connection, before, after, usage, ())

    def note(self, work: Undertaking, before: Memory, after: Memory, usage: Iterable[UsageRow]) -> None:
        """An epoch in which nothing had to be carried out: its promotions, marks and reservations."""
        with self._writing() as connection:
            self._insert_epoch(connection, work, CLOSED, None, Effects())
            self._write(connection, before, after, usage, ())

    def _write(
        self, connection: sa.Connection, before: Memory, after: Memory, usage: Iterable[UsageRow], events: Iterable[Event]
    ) -> None:
        """The difference between two memories, and new rows."""
        jobs = self._table("jobs")
        gone = [{"key": key} for key in before.jobs.keys() - after.jobs.keys()]
        changed = [_job_row(job) for key, job in after.jobs.items() if before.jobs.get(key) != job]
        stale = gone + [{"key": row["id"]} for row in changed if row["id"] in before.jobs]
        _execute(connection, jobs.delete().where(jobs.c.id == sa.bindparam("key")), stale)
        _execute(connection, jobs.insert(), changed)
        if before.reservations != after.reservations:
            held = self._table("reservations")
            connection.execute(held.delete())
            rows = [{"workload": item.workload, "data": _text(item)} for item in after.reservations]
            _execute(connection, held.insert(), rows)
        self._write_usage(connection, usage)
        _execute(connection, self._table("events").insert(), [msgspec.to_builtins(event) for event in events])
        self._set_fact(connection, "seen", str(after.seen))

    def _write_usage(self, connection: sa.Connection, usage: Iterable[UsageRow]) -> None:
        """Records count once, however often they are written."""
        table, rows = self._table("usage"), {row.record.id: _usage_row(row) for row in usage}
        _execute(connection, table.delete().where(table.c.id == sa.bindparam("key")), [{"key": key} for key in rows])
        _execute(connection, table.insert(), list(rows.values()))

    def _insert_epoch(
        self, connection: sa.Connection, work: Undertaking, state: str, packed: bytes | None, effects: Effects
    ) -> int:
        decision = work.decision
        values = {"now": decision.now, "snapshot": decision.snapshot, "state": state, "undertaking": packed}
        values |= {"rung": decision.solver.rung, "gap": decision.solver.gap, **_outcome(work, effects)}
        done = connection.execute(self._table("epochs").insert().values(**values))
        return int(done.inserted_primary_key[0])  # type: ignore[index]

    def _prune(self, connection: sa.Connection, now: int) -> None:
        for name, column in (("usage", "end"), ("epochs", "now"), ("events", "at")):
            table = self._table(name)
            connection.execute(table.delete().where(table.c[column] < now - KEPT_SECONDS))

    def _fact(self, connection: sa.Connection, name: str) -> str | None:
        facts = self._table("facts")
        return connection.execute(sa.select(facts.c.value).where(facts.c.name == name)).scalar()

    def _set_fact(self, connection: sa.Connection, name: str, value: str) -> None:
        facts = self._table("facts")
        connection.execute(facts.delete().where(facts.c.name == name))
        connection.execute(facts.insert().values(name=name, value=value))

    def _table(self, name: str) -> sa.Table:
        return self._tables.tables[name]


def _execute(connection: sa.Connection, statement: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        connection.execute(statement, rows)


def _overlaps(record: UsageRecord, known: Iterable[tuple[int, int]]) -> bool:
    return any(start < record.end and record.start < end for start, end in known)


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _job_row(job: JobMemory) -> dict[str, Any]:
    return {
        "id": job.id,
        "submit_time": job.submit_time,
        "preempted": job.preempted,
        "failed_resumes": job.failed_resumes,
        "failed_starts": job.failed_starts,
        "retry_at": job.retry_at,
        "entitled_since": job.entitled_since,
        "stopped": None if job.stopped is None else _text(job.stopped),
        "held": None if job.held is None else _text(job.held),
    }


def _job(row: Any) -> JobMemory:
    return JobMemory(
        id=row["id"],
        submit_time=row["submit_time"],
        preempted=row["preempted"],
        failed_resumes=row["failed_resumes"],
        failed_starts=row["failed_starts"],
        retry_at=row["retry_at"],
        entitled_since=row["entitled_since"],
        stopped=None if row["stopped"] is None else msgspec.json.decode(row["stopped"], type=LastStop),
        held=None if row["held"] is None else msgspec.json.decode(row["held"], type=Held),
    )


def _usage_row(row: UsageRow) -> dict[str, Any]:
    return {**msgspec.to_builtins(row.record), "job": row.job, "user": row.user}


def _record(row: Any) -> UsageRecord:
    names = ("id", "allocation", "pool", "gpus", "start", "end", "charged")
    return UsageRecord(**{name: row[name] for name in names})


def _outcome(work: Undertaking, effects: Effects) -> dict[str, str]:
    """What took effect and what did not, for people."""
    starts = {row.workload for row in work.decision.starts}
    stops = {row.workload for row in work.decision.preemptions}
    failed = (starts - effects.started) | (stops - effects.stopped)
    found = {"started": effects.started, "stopped": effects.stopped, "failed": failed}
    return {name: " ".join(sorted(jobs)) for name, jobs in found.items()}


def _pack(work: Undertaking) -> bytes:
    parts = {
        "snapshot": encode_snapshot(work.snapshot).decode(),
        "decision": encode_decision(work.decision).decode(),
        "incarnations": dict(work.incarnations),
    }
    return zlib.compress(msgspec.json.encode(parts), 1)


def _unpack(data: bytes) -> Undertaking:
    parts = msgspec.json.decode(zlib.decompress(data))
    decision: Decision = decode_decision(parts["decision"].encode())
    return Undertaking(
        snapshot=decode_snapshot(parts["snapshot"].encode()), decision=decision, incarnations=parts["incarnations"]
    )
