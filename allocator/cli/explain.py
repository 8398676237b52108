"""`allocator explain`: why a decision is as it is, and what would happen to a workload not yet submitted, for people."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from allocator.cli.documents import (
    STANDARD_INPUT,
    AsJson,
    DecisionFile,
    SnapshotFile,
    read_pair,
    read_request,
    write_view,
)
from allocator.cli.solve import Engine, check_engine, positive
from allocator.domain import Decision, Issue, Snapshot, SnapshotError

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def explain(
    snapshot: SnapshotFile,
    decision: DecisionFile,
    workload: Annotated[str | None, typer.Argument(metavar="[WORKLOAD]", help="Explain this workload.")] = None,
    allocation: Annotated[str | None, typer.Option(metavar="ID", help="Explain this allocation.")] = None,
    request: Annotated[
        str | None, typer.Option("--what-if", metavar="REQUEST", help="A workload not yet submitted, JSON: would it start now?")
    ] = None,
    engine: Annotated[Engine, typer.Option(help="Engines that answer --what-if.")] = Engine.GREEDY,
    time_limit: Annotated[
        float, typer.Option(metavar="S", callback=positive, help="Seconds for each decision that --what-if asks for.")
    ] = 10.0,
    as_json: AsJson = False,
) -> None:
    """Explain a decision to people.

    The whole epoch, one workload, or one allocation; with --what-if, what would happen to a workload that has not been
    submitted, whom it would displace, and what would make it start sooner.
    """
    if sum(choice is not None for choice in (workload, allocation, request)) > 1:
        raise typer.BadParameter("explain a workload, an allocation or a request, not several", param_hint="--allocation")
    if request == STANDARD_INPUT and STANDARD_INPUT in (snapshot, decision):
        raise typer.BadParameter("standard input holds one document: give files for the others", param_hint="--what-if")
    found, decided = read_pair(snapshot, decision)
    from allocator.wire import is_other_snapshot

    if other := is_other_snapshot(found, decided):
        raise SnapshotError([Issue(path=f"{decision}: $.snapshot", problem=other, remedy="give the snapshot it was made for")])
    if request is not None:
        view = _advise(found, decided, request, engine, time_limit)
    else:
        view = _explain(found, decided, workload, allocation)
    write_view(view, as_json=as_json)


def _explain(snapshot: Snapshot, decision: Decision, workload: str | None, allocation: str | None) -> dict[str, Any]:
    from allocator.entitlement import entitle
    from allocator.explain import allocation_view, epoch_view, workload_view

    entitlement = entitle(snapshot)
    if workload is not None:
        return workload_view(entitlement, decision, workload)
    if allocation is not None:
        return allocation_view(entitlement, decision, allocation)
    return epoch_view(entitlement, decision)


def _advise(snapshot: Snapshot, decision: Decision, request: str, engine: Engine, time_limit: float) -> dict[str, Any]:
    wanted = read_request(request, snapshot)
    check_engine(engine)
    from allocator.advise import what_if, what_if_view

    return what_if_view(what_if(snapshot, wanted, engine=engine.value, time_limit=time_limit), decision)
