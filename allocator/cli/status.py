"""Exit statuses, and the lines that go to standard error."""

from __future__ import annotations

import typer

from allocator.domain import printable

DONE = 0
NO = 1
BAD_INPUT = 2
INTERNAL_ERROR = 3
INTERRUPTED = 130


def tell(kind: str, text: object) -> None:
    """One line on standard error, whatever stands in the names that it repeats."""
    typer.echo(f"{kind}: {printable(str(text))}", err=True)
