"""`allocator report`: results as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from allocator.cli.documents import check_writable, write_result

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Folders that `replay --out` has written, or one of `whatif --out`.")
    ],
    *,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The page, HTML.")],
    title: Annotated[str | None, typer.Option(help="Heading of the page; absent: what was replayed.")] = None,
) -> None:
    """Write a page with pictures: of one replay, of several side by side, or of a what-if study.

    The page is one file that works offline, on a phone and in print, light and dark.
    """
    from allocator.pages import build_report
    from allocator.replay.errors import MissingExtraError, ReplayError

    check_writable(out)
    try:
        page = build_report(runs, title)
    except (ReplayError, MissingExtraError) as error:
        raise typer.BadParameter(str(error), param_hint="RUN...") from error
    write_result(page.encode(), out)
