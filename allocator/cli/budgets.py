"""`allocator budgets`: the budget tree with shares, usage and entitlement, and what a change would do to it."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from allocator.cli.documents import (
    STANDARD_INPUT,
    AsJson,
    naming,
    read_budget_change,
    read_snapshot_or_trace,
    write_json,
    write_lines,
    write_view,
)
from allocator.domain import Snapshot

if TYPE_CHECKING:
    from allocator.wire.budget_file import BudgetFile
    from allocator.wire.changes import ChangeSet

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def budgets(
    source: Annotated[
        str, typer.Argument(metavar="SNAPSHOT", help="Snapshot, JSON or JSON.gz; - is standard input. With --try also a trace.")
    ],
    attempt: Annotated[
        str | None, typer.Option("--try", metavar="CHANGES", help="Change set or budget file to try, JSON.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="With a trace: folder to keep both replays in.")] = None,
    tick: Annotated[
        int | None, typer.Option(metavar="S", min=1, help="With a trace: decide every so many seconds; absent: 15.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the budget tree, or try a change of it.

    Shares, budgets, usage and entitlement by pool; with a change set, before and after. On a trace the change is tried on the
    whole span: both are replayed, and it is said who gains and who loses.
    """
    if source == attempt == STANDARD_INPUT:
        raise typer.BadParameter("standard input holds one document: give a file for one of them", param_hint="--try")
    found = read_snapshot_or_trace(source)
    changes = None if attempt is None else read_budget_change(attempt)
    if isinstance(found, Snapshot):
        _refuse_replay(out, tick)
        _show(found, changes, attempt or "", as_json=as_json)
    elif changes is None or attempt is None or source == STANDARD_INPUT:
        raise typer.BadParameter("a trace is a file, and takes a change to try", param_hint="--try")
    else:
        _replay(Path(source), changes, attempt, out, tick, as_json=as_json)


def _refuse_replay(out: Path | None, tick: int | None) -> None:
    """On a snapshot nothing is replayed: refuse options of a replay, all at once."""
    given = [option for option, value in (("--out", out), ("--tick", tick)) if value is not None]
    if given:
        options = " and ".join(given)
        raise typer.BadParameter(f"a snapshot is one instant, nothing is replayed: leave {options} out, or give a trace")


def _show(snapshot: Snapshot, changes: ChangeSet | BudgetFile | None, name: str, *, as_json: bool) -> None:
    """The tree, or the tree before and after."""
    from allocator.entitlement import entitle
    from allocator.explain import budgets_view, try_view

    entitlement = entitle(snapshot)
    if changes is None:
        view = budgets_view(entitlement)
    else:
        with naming(name):
            after, told = _tried(snapshot, changes, name)
        view = try_view(entitlement, entitle(after), told)
    write_view(view, as_json=as_json)


def _tried(snapshot: Snapshot, changes: ChangeSet | BudgetFile, name: str) -> tuple[Snapshot, ChangeSet]:
    """The snapshot under the change, or under the tree that a budget file has now; and whose word it is."""
    from dataclasses import replace

    from allocator.explain import apply_changes
    from allocator.explain.budgets import budgets_at, pools_of
    from allocator.wire.changes import ChangeSet

    if isinstance(changes, ChangeSet):
        return apply_changes(snapshot, changes), changes
    last, tree = budgets_at(changes, snapshot.now, pools_of(snapshot.cluster))
    first = ChangeSet(author=Path(name).name, reason="the tree of the first day", effective=None, changes=())
    return replace(snapshot, budgets=tree).canonical(), last or first


def _replay(
    trace: Path, changes: ChangeSet | BudgetFile, name: str, out: Path | None, tick: int | None, *, as_json: bool
) -> None:
    """Before and after on a trace, side by side."""
    from allocator.cli.whatif import play
    from allocator.whatif import Base, BudgetEdit, ReplayDoc, Scenario, Variant
    from allocator.whatif.gains import gains_lines
    from allocator.wire.changes import ChangeSet

    title = f"{changes.author}: {changes.reason}" if isinstance(changes, ChangeSet) else f"The budgets of {name}"
    after = Variant(
        name="after", title=title, raw={"budgets": [{"file": name}]}, budgets=(BudgetEdit(what=changes, at=None, place="$"),)
    )
    scenario = Scenario(
        name=trace.name,
        title=title,
        base=Base(trace=trace),
        variants=(Variant(name="before", title="The budgets of the trace"), after),
        baseline="before",
        replay=ReplayDoc(tick=tick),
    )
    with TemporaryDirectory() as temporary:
        played = play(scenario, out or Path(temporary), name)
    if as_json:
        write_json(played)
    else:
        write_lines([title, "", *gains_lines(played["projects"], "after", "before"), "", *played["sentences"]])
