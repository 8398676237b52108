"""The database below the journal: opened so that a commit has reached the disk, kept to one writer, and plain in its errors."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from allocator.dispatch.migrations import JournalError

_REMEDIES = (
    ("is full", "make room; what was not written down is not done, and goes on from here"),
    ("disk I/O error", "see that there is room, and that the disk is well; what was not written down is not done"),
    ("unable to open", "give a file in a folder that the dispatcher may write"),
    ("readonly", "let this user write the file and its folder"),
    ("not a database", "give the file that the dispatcher was given with --journal, or the path of a new one"),
    ("malformed", "put a backup in its place"),
    ("locked", "end what else uses it"),
)
"""What to do about an error of the driver, by words of its message."""

_ELSE = "see that the database runs, and that this user may use it"
_LOCK = "SELECT pg_try_advisory_lock(hashtext('gpu-epoch-allocator journal'))"


def open_engine(place: str) -> sa.Engine:
    """An engine for a path or a database URL. SQLite: WAL, and a commit that has reached the disk when it returns.

    Raises
    ------
    JournalError
        Where there can be no database, or its driver is missing.
    """
    if "://" not in place:
        _check(Path(place))
    try:
        engine = sa.create_engine(place if "://" in place else f"sqlite:///{place}")
    except ModuleNotFoundError as error:
        raise JournalError(f"{place.partition(':')[0]}: its driver {error.name} is not installed: pip install it") from error
    except SQLAlchemyError as error:
        raise JournalError(f"no database can be opened as given ({error}): give a file, or DIALECT://HOST/NAME") from error
    if engine.dialect.name == "sqlite":
        sa.event.listen(engine, "connect", _prepare_sqlite)
        sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


@contextmanager
def speaking_plainly(engine: sa.Engine) -> Iterator[None]:
    """Whatever the database refuses is told with its place and what to do about it.

    Raises
    ------
    JournalError
        Instead of every error of the driver.
    """
    try:
        yield
    except SQLAlchemyError as error:
        cause = str(error.orig if isinstance(error, DBAPIError) else error).strip().splitlines()
        said = cause[0] if cause else type(error).__name__
        remedy = next((remedy for words, remedy in _REMEDIES if words in said), _ELSE)
        place = engine.url.database if engine.dialect.name == "sqlite" else engine.url.render_as_string()
        raise JournalError(f"the journal {place}: {said}: {remedy}") from error


@contextmanager
def one_writer(engine: sa.Engine) -> Iterator[None]:
    """Keep a second dispatcher away while this one lives, however it ends. A database in memory is nobody else's.

    Raises
    ------
    JournalError
        Where there is one already.
    """
    if engine.dialect.name == "postgresql":
        with ExitStack() as stack:
            with speaking_plainly(engine):
                connection = stack.enter_context(engine.connect())
                connection.detach()  # the lock is that of the connection, which no pool may keep
                free = connection.execute(sa.text(_LOCK)).scalar_one()
                connection.commit()
            if not free:
                raise _taken(engine.url.render_as_string())
            yield
    elif engine.dialect.name == "sqlite" and engine.url.database not in (None, "", ":memory:"):
        with _lock(Path(engine.url.database)):
            yield
    else:
        yield  # run one dispatcher, under a service manager


def _check(path: Path) -> None:
    """What the driver would only call a file that cannot be opened."""
    if path.is_dir():
        raise JournalError(f"{path} is a folder: give the path of a file in it")
    if not path.parent.is_dir():
        raise JournalError(f"{path.parent} is no folder: make it, and let the dispatcher write there")


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    """Transactions are begun by `_begin_sqlite`, not by the driver."""
    connection.isolation_level = None
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "busy_timeout = 10000"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: sa.Connection) -> None:
    connection.exec_driver_sql("BEGIN")


def _lock(journal: Path) -> IO[str]:
    """The file beside the journal that is locked until it is closed."""
    path = journal.with_name(journal.name + ".lock")
    try:
        handle = path.open("w")
    except OSError as error:
        raise JournalError(f"{path} cannot be written ({error.strerror}): let this user write there") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        handle.close()
        raise _taken(str(journal)) from error
    return handle


def _taken(place: str) -> JournalError:
    return JournalError(f"another dispatcher writes {place}: end it first, or give this one a journal of its own")
