"""`allocator generate trace`: what a replay plays, from a seed, from a scenario, from a job log, or from recorded epochs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from allocator.cli.documents import OutFile, check_writable, write_result
from allocator.cli.status import tell


def trace(
    *,
    from_log: Annotated[
        Path | None,
        typer.Option(
            "--from", help="Job log: CSV, SWF or `sacct -P`, plain, gzip or zip of one file; or a folder of --record."
        ),
    ] = None,
    form: Annotated[
        str | None, typer.Option("--format", help="With --from: name of the form; absent: found by its columns.")
    ] = None,
    scenario: Annotated[
        str | None, typer.Option(help="Name of a shipped scenario, or a recipe file; `list` names them.")
    ] = None,
    gpus: Annotated[int | None, typer.Option(help="Installed GPUs; absent: 1792, or what the log is known to fill.")] = None,
    pools: Annotated[int | None, typer.Option(help="1 (h100) or 3 (h100, b200, b300); absent: 3.")] = None,
    days: Annotated[str | None, typer.Option(help="Number of days; with --from first day and day after last: 7:14.")] = None,
    load: Annotated[float | None, typer.Option(help="Offered load: GPU time asked for over that of the cluster.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of all that is drawn; with --from it also moves jobs.")] = None,
    jitter: Annotated[str | None, typer.Option(help="With --seed: most that jobs move; absent: 10m.")] = None,
    budgets: Annotated[Path | None, typer.Option(help="With --from: a tree of shares instead of the log's own.")] = None,
    failures: Annotated[float | None, typer.Option(help="Node failures per GPU and day; absent: 5e-4, for logs 0.")] = None,
    squatters: Annotated[float | None, typer.Option(help="Part of the users who keep idle sessions; absent: 0.25.")] = None,
    deadline: Annotated[int | None, typer.Option(help="Day of a conference deadline: more work before, less after.")] = None,
    tenants: Annotated[str | None, typer.Option(help="With --from: only these tenants, as x,y; absent: all.")] = None,
    on_top: Annotated[Path | None, typer.Option(help="With --from: a second log, laid over it day by day.")] = None,
    out: OutFile = None,
) -> None:
    """Write one trace."""
    from allocator.generate.any_trace import TraceRecipe, make_trace
    from allocator.wire import encode_trace

    check_writable(out)
    if scenario == "list" and from_log is None:
        _list_scenarios()
        return
    made = make_trace(
        TraceRecipe(
            log=from_log,
            format=form,
            scenario=scenario,
            gpus=gpus,
            pools=pools,
            days=days,
            load=load,
            seed=seed,
            jitter=jitter,
            budgets=budgets,
            failures=failures,
            squatters=squatters,
            deadline=deadline,
            tenants=tenants,
            on_top=on_top,
        )
    )
    for note in made.notes:
        tell("note", note)
    write_result(encode_trace(made), out)


def _list_scenarios() -> None:
    from allocator.cli.documents import write_lines
    from allocator.generate.scenario import scenarios

    write_lines([f"{name:20} {title}" for name, title in scenarios().items()])
