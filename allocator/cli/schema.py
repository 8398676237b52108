"""`allocator schema`: the JSON Schema of a document."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from allocator.cli.documents import write_json

app = typer.Typer(add_completion=False, rich_markup_mode=None)


class Document(StrEnum):
    """The documents that have a schema."""

    SNAPSHOT = "snapshot"
    DECISION = "decision"
    TRACE = "trace"


@app.command()
def schema(document: Annotated[Document, typer.Argument(metavar="DOCUMENT", help="snapshot, decision or trace.")]) -> None:
    """Print the JSON Schema of snapshots, decisions or traces."""
    from allocator.wire import decision_schema, snapshot_schema, trace_schema

    schemas = {Document.SNAPSHOT: snapshot_schema, Document.DECISION: decision_schema, Document.TRACE: trace_schema}
    write_json(schemas[document]())
