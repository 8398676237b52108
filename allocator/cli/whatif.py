"""`allocator whatif`: a scenario played in all its variants, and compared."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from allocator.cli.documents import AsJson, naming, write_json, write_lines

if TYPE_CHECKING:
    from allocator.whatif import Scenario
    from allocator.whatif.run import Told

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def whatif(
    scenario: Annotated[Path, typer.Argument(metavar="SCENARIO", help="What is played and what is changed, TOML.")],
    *,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for the cells and the comparison.")],
    jobs: Annotated[int | None, typer.Option(metavar="N", min=-1, help="Cells at a time; -1: one for each core.")] = None,
    backend: Annotated[str | None, typer.Option(help="local, dask or ray; absent: what the scenario says.")] = None,
    address: Annotated[
        str | None, typer.Option(help="Of a Dask scheduler or Ray cluster; absent: one is started here.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Play a trace with other nodes, budgets, rules or load, and compare.

    Writes a folder of results for each variant and seed, and the comparison as JSON and CSV; prints what differs. Cells that
    are there already are kept.
    """
    from allocator.whatif import load_scenario

    with naming(str(scenario)):
        found = load_scenario(scenario)
    given = {"jobs": jobs, "backend": backend, "address": address}
    run = msgspec.structs.replace(found.run, **{name: value for name, value in given.items() if value is not None})
    if run.backend not in ("local", "dask", "ray"):
        raise typer.BadParameter(f"there is no {run.backend!r}: give local, dask or ray", param_hint="--backend")
    played = play(replace(found, run=run), out, str(scenario))
    if as_json:
        write_json(played)
    else:
        write_lines(whatif_lines(played))


def play(scenario: Scenario, out: Path, name: str) -> dict[str, Any]:
    """Run a scenario; what is wrong with it is said in the name of its file."""
    from allocator.replay.errors import MissingExtraError, ReplayError
    from allocator.whatif import WhatIfError, run_scenario

    if out.exists() and not out.is_dir():
        raise typer.BadParameter(f"{out} is no folder", param_hint="--out")
    try:
        with naming(name), _progress() as told:
            return run_scenario(scenario, out, told)
    except (MissingExtraError, WhatIfError, ReplayError) as error:
        raise typer.BadParameter(str(error)) from error


def whatif_lines(played: dict[str, Any]) -> list[str]:
    """The variants, and what differs."""
    seeds = len(played["seeds"])
    lines = [
        f"{played['scenario']}: {len(played['variants'])} variants, {seeds} seed{'s' if seeds > 1 else ''}, "
        f"compared with {played['base']}",
        "",
    ]
    width = max(len(variant["name"]) for variant in played["variants"])
    lines += [f"{variant['name']:{width}}  {variant['title']}" for variant in played["variants"]]
    return [*lines, "", *played["sentences"]]


@contextmanager
def _progress() -> Iterator[Told]:
    """A bar with an estimate on standard error, where that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda done, total, kept: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("cells", total=None)
        yield lambda done, total, kept: bar.update(task, total=total, completed=done, description=f"cells, {kept} kept")
