"""`allocator explain`: why a decision is as it is, for people."""

from __future__ import annotations

from typing import Annotated

import typer

from allocator.cli.documents import AsJson, DecisionFile, SnapshotFile, is_other_snapshot, read_pair, write_view
from allocator.domain import Issue, SnapshotError

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def explain(
    snapshot: SnapshotFile,
    decision: DecisionFile,
    workload: Annotated[str | None, typer.Argument(metavar="[WORKLOAD]", help="Explain this workload.")] = None,
    allocation: Annotated[str | None, typer.Option(metavar="ID", help="Explain this allocation.")] = None,
    as_json: AsJson = False,
) -> None:
    """Explain a decision to people.

    The whole epoch, one workload, or one allocation.
    """
    if workload is not None and allocation is not None:
        raise typer.BadParameter("explain a workload or an allocation, not both", param_hint="--allocation")
    found, decided = read_pair(snapshot, decision)
    if other := is_other_snapshot(found, decided):
        raise SnapshotError([Issue(path=f"{decision}: $.snapshot", problem=other, remedy="give the snapshot it was made for")])
    from allocator.entitlement import entitle
    from allocator.explain import allocation_view, epoch_view, workload_view

    entitlement = entitle(found)
    if workload is not None:
        view = workload_view(entitlement, decided, workload)
    elif allocation is not None:
        view = allocation_view(entitlement, decided, allocation)
    else:
        view = epoch_view(entitlement, decided)
    write_view(view, as_json=as_json)
