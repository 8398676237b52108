"""`allocator journal`: what the dispatcher remembers, for people and for accounting."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from allocator.cli.dispatch import _told
from allocator.cli.documents import AsJson, OutFile, check_writable, read_text, write_json, write_lines, write_result

app = typer.Typer(
    add_completion=False, rich_markup_mode=None, no_args_is_help=True, help="Show and export what the dispatcher remembers."
)

JournalFile = Annotated[str, typer.Argument(metavar="JOURNAL", help="The file or URL that the dispatcher was given.")]


class Table(StrEnum):
    """What can be exported."""

    USAGE = "usage"
    EPOCHS = "epochs"
    JOBS = "jobs"
    EVENTS = "events"
    RESERVATIONS = "reservations"


@app.callback()
def main() -> None:
    """Show and export what the dispatcher remembers."""


@app.command()
def show(
    journal: JournalFile,
    last: Annotated[int, typer.Option(metavar="N", min=1, help="So many epochs and events.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Show promises, reservations, the last epochs and events."""
    with _told():
        found = _open(journal)
        shown: dict[str, Any] = {
            "jobs": [row for row in found.rows(Table.JOBS) if row["held"]],
            "reservations": found.rows(Table.RESERVATIONS),
            "epochs": found.rows(Table.EPOCHS, last),
            "events": found.rows(Table.EVENTS, last),
        }
    if as_json:
        write_json(shown)
    else:
        write_lines(_lines(shown))


@app.command()
def export(
    journal: JournalFile,
    table: Annotated[Table, typer.Option(help="What to export.")] = Table.USAGE,
    out: OutFile = None,
    since: Annotated[datetime | None, typer.Option(help="Usage that ended at this time or later (UTC).")] = None,
    until: Annotated[datetime | None, typer.Option(help="Usage that ended before this time (UTC).")] = None,
) -> None:
    """Export a table: Parquet where the file ends in .parquet, else CSV.

    Each usage record is one run, or the part of one before or after a promotion: `gpus` from `start` to `end`.
    """
    check_writable(out)
    with _told():
        rows = _open(journal).rows(table)
        if table is Table.USAGE:
            rows = [row for row in rows if _seconds(since, 0) <= row["end"] < _seconds(until, 1 << 62)]
        as_parquet = out is not None and out.suffix == ".parquet"
        write_result(_parquet(rows) if as_parquet else _csv(rows), out)


@app.command("import")
def import_(
    journal: Annotated[str, typer.Argument(metavar="JOURNAL", help="File or URL for the dispatcher; made if it is not there.")],
    log: Annotated[str, typer.Argument(metavar="FILE", help="What `sacct -P` printed; - is standard input.")],
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The dispatcher's TOML: whose budgets, and which QOS is free of charge.")
    ] = None,
    pool: Annotated[str, typer.Option(help="Pool of GPUs whose type is not accounted for.")] = "gpu",
) -> None:
    """Import the scheduler's own accounts as usage, so that budgets have a history on the first day.

    Print them with: SLURM_TIME_FORMAT=%s sacct -a -D -X -P -S now-14days -o jobid,account,user,qos,start,end,state,alloctres.
    Runs that are known are left out, so it may be done again, also beside a dispatcher that runs.
    """
    with _told():
        from allocator.dispatch.build import leaves_of
        from allocator.dispatch.config import Config, load_config
        from allocator.dispatch.journal import Journal
        from allocator.dispatch.slurm.history import read_history

        found = Config() if config is None else load_config(config)
        leaves = leaves_of([{"id": item.id, "parent": item.parent} for item in found.budgets or ()])
        history = read_text(log, lambda text: read_history(text, leaves, found.qos, pool))
        fresh = Journal(journal).add_usage(history.rows)
    hours = sum(row.record.gpus * (row.record.end - row.record.start) for row in fresh) / 3600
    whose = len({row.record.allocation for row in fresh})
    known = len(history.rows) - len(fresh)
    lines = [f"{len(fresh):,} runs of {whose:,} allocations, {hours:,.1f} GPU-hours; {known:,} were known already"]
    lines += [f"left out: {count:,} rows: {why} (line {history.first[why]})" for why, count in history.skipped.most_common()]
    write_lines(lines)


def _open(journal: str) -> Any:
    from allocator.dispatch.journal import Journal
    from allocator.dispatch.migrations import JournalError

    if "://" not in journal and not Path(journal).is_file():
        raise JournalError(f"{journal} is no journal: give the file that the dispatcher was given with --journal")
    return Journal(journal)


def _seconds(at: datetime | None, default: int) -> int:
    return default if at is None else int(at.replace(tzinfo=UTC).timestamp())


def _csv(rows: Sequence[Mapping[str, Any]]) -> bytes:
    text = io.StringIO()
    if rows:
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return text.getvalue().encode()


def _parquet(rows: Sequence[Mapping[str, Any]]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    data = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), data)
    return data.getvalue()


def _lines(shown: Mapping[str, Any]) -> list[str]:
    """The journal in lines for people."""
    import msgspec

    lines = []
    for row in shown["jobs"]:
        held = msgspec.json.decode(row["held"])
        until = held["run"]["protected_until"]
        promise = f"promised until {_instant(until)}" if until else "no promise"
        where = ",".join(sorted(held["run"]["placement"]))
        lines.append(f"run          {row['id']}: {held['gpus']} GPUs of {held['allocation']} on {where}, {promise}")
    for row in shown["reservations"]:
        kept = msgspec.json.decode(row["data"])
        lines.append(f"reservation  {row['workload']}: {kept['nodes']} nodes from {_instant(kept['start'])}")
    for row in shown["epochs"]:
        state = "" if row["state"] == "closed" else " (not brought to its end)"
        parts = [f"{name} {row[name]}" for name in ("started", "stopped", "failed") if row[name]]
        lines.append(f"epoch {row['number']:6} {_instant(row['now'])} {row['rung']}{state}: {'; '.join(parts) or 'nothing'}")
    lines += [f"event        {_instant(row['at'])} {row['subject']}: {row['kind']}: {row['detail']}" for row in shown["events"]]
    return lines


def _instant(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
