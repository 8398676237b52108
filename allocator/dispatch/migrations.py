"""The tables of the journal, as the steps that made them. Steps are only ever added.

They are written with Alembic's operations, which know what SQLite cannot alter; the chain itself is this list, so that the
journal of any release is brought up to date when it is opened, without files beside the package.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic.migration import MigrationContext
from alembic.operations import Operations

from allocator.domain import AllocatorError

VERSION = "schema_version"


class JournalError(AllocatorError):
    """The journal cannot be used as it is."""


def _first(op: Operations) -> None:
    """Jobs, usage, epochs, reservations, events."""
    text, number = sa.Text, sa.BigInteger
    op.create_table(
        "jobs",
        sa.Column("id", text, primary_key=True),
        sa.Column("submit_time", number, nullable=False),
        sa.Column("preempted", number, nullable=False),
        sa.Column("failed_resumes", number, nullable=False),
        sa.Column("failed_starts", number, nullable=False),
        sa.Column("retry_at", number),
        sa.Column("entitled_since", number),
        sa.Column("stopped", text),
        sa.Column("held", text),
    )
    op.create_table(
        "usage",
        sa.Column("id", text, primary_key=True),
        sa.Column("job", text, nullable=False),
        sa.Column("user", text, nullable=False),
        sa.Column("allocation", text, nullable=False),
        sa.Column("pool", text, nullable=False),
        sa.Column("gpus", number, nullable=False),
        sa.Column("start", number, nullable=False),
        sa.Column("end", number, nullable=False),
        sa.Column("charged", sa.Boolean, nullable=False),
    )
    op.create_table(
        "epochs",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("now", number, nullable=False),
        sa.Column("snapshot", text, nullable=False),
        sa.Column("state", text, nullable=False),
        sa.Column("undertaking", sa.LargeBinary),
        sa.Column("rung", text, nullable=False),
        sa.Column("gap", sa.Float),
        sa.Column("started", text, nullable=False),
        sa.Column("stopped", text, nullable=False),
        sa.Column("failed", text, nullable=False),
    )
    op.create_table("reservations", sa.Column("workload", text, primary_key=True), sa.Column("data", text, nullable=False))
    op.create_table(
        "events",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("at", number, nullable=False),
        sa.Column("subject", text, nullable=False),
        sa.Column("kind", text, nullable=False),
        sa.Column("detail", text, nullable=False),
    )
    op.create_table("facts", sa.Column("name", text, primary_key=True), sa.Column("value", text, nullable=False))


def _second(op: Operations) -> None:
    """Usage is looked up by its end: the window of the policy."""
    op.create_index("usage_end", "usage", ["end"])
    op.create_index("epochs_state", "epochs", ["state"])


STEPS = (_first, _second)


def migrate(connection: sa.Connection) -> None:
    """Bring the tables up to date, inside the transaction of the connection.

    Raises
    ------
    JournalError
        Where a later release has written it.
    """
    present = version_of(connection)
    if present > len(STEPS):
        raise JournalError(
            f"the journal has schema version {present}, this release knows {len(STEPS)}: "
            "use the release that wrote it, or a later one"
        )
    if present == len(STEPS):
        return
    op = Operations(MigrationContext.configure(connection))
    if present == 0:
        op.create_table(VERSION, sa.Column("version", sa.Integer, nullable=False))
        connection.execute(sa.text(f"INSERT INTO {VERSION} (version) VALUES (0)"))
    for step in STEPS[present:]:
        step(op)
    connection.execute(sa.text(f"UPDATE {VERSION} SET version = :version"), {"version": len(STEPS)})


def version_of(connection: sa.Connection) -> int:
    """The schema version; 0 where there are no tables yet."""
    if not sa.inspect(connection).has_table(VERSION):
        return 0
    return int(connection.execute(sa.text(f"SELECT version FROM {VERSION}")).scalar_one())
