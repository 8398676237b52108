"""`allocator apply`: the snapshot after a decision."""

from __future__ import annotations

from typing import Annotated

import typer

from allocator.cli.documents import (
    DecisionFile,
    OutFile,
    SnapshotFile,
    check_writable,
    naming,
    read_pair,
    write_result,
)
from allocator.cli.status import tell
from allocator.wire.scalars import TEN_YEARS

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def apply(
    snapshot: SnapshotFile,
    decision: DecisionFile,
    advance: Annotated[int, typer.Option(metavar="S", min=0, max=TEN_YEARS, help="Seconds that pass afterwards.")] = 0,
    out: OutFile = None,
) -> None:
    """Print the snapshot after a decision.

    Usage is recorded, stops are requeued, promises and reservations carried over.
    """
    check_writable(out)
    before, decided = read_pair(snapshot, decision)
    from allocator import transition
    from allocator.wire import encode_successor, is_other_snapshot

    if other := is_other_snapshot(before, decided):
        tell("warning", other)  # no error: applying a decision twice is legal
    with naming(decision):
        after = encode_successor(transition.apply(before, decided, advance))
    write_result(after, out)
