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


@app.command()
def schema(document: Annotated[Document, typer.Argument(metavar="DOCUMENT", help="snapshot or decision.")]) -> None:
    """Print the JSON Schema of snapshots or decisions."""
    from allocator.wire import decision_schema, snapshot_schema

    write_json(snapshot_schema() if document is Document.SNAPSHOT else decision_schema())
