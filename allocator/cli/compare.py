"""`allocator compare`: replays side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from allocator.cli.documents import AsJson, write_json, write_lines

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders that `replay --out` has written.")],
    as_json: AsJson = False,
) -> None:
    """Put replays side by side: every metric, and its difference to the first with an interval."""
    from allocator.replay import compare as compare_runs
    from allocator.replay import compare_lines, read_played
    from allocator.replay.errors import MissingExtraError, ReplayError

    if len(runs) < 2:
        raise typer.BadParameter("give at least two folders", param_hint="RUN...")
    try:
        found = compare_runs([read_played(folder) for folder in runs])
    except (ReplayError, MissingExtraError) as error:
        raise typer.BadParameter(str(error), param_hint="RUN...") from error
    if as_json:
        write_json(found)
    else:
        write_lines(compare_lines(found))
