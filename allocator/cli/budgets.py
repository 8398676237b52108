"""`allocator budgets`: the budget tree with shares, usage and entitlement, and what a change would do to it."""

from __future__ import annotations

from typing import Annotated

import typer

from allocator.cli.documents import STANDARD_INPUT, AsJson, SnapshotFile, naming, read_changes, read_snapshot, write_view

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def budgets(
    snapshot: SnapshotFile,
    attempt: Annotated[str | None, typer.Option("--try", metavar="CHANGES", help="Change set to try, JSON.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print the budget tree, or try a change of it.

    Shares, budgets, usage and entitlement by pool; with a change set, before and after.
    """
    if snapshot == attempt == STANDARD_INPUT:
        raise typer.BadParameter("standard input holds one document: give a file for one of them", param_hint="--try")
    found = read_snapshot(snapshot)
    changes = None if attempt is None else read_changes(attempt)
    from allocator.entitlement import entitle
    from allocator.explain import apply_changes, budgets_view, try_view

    entitlement = entitle(found)
    if changes is None:
        view = budgets_view(entitlement)
    else:
        assert attempt is not None
        with naming(attempt):
            after = apply_changes(found, changes)
        view = try_view(entitlement, entitle(after), changes)
    write_view(view, as_json=as_json)
