"""`allocator solve`: the decision of one epoch."""

from __future__ import annotations

import math
import time
from enum import StrEnum
from typing import Annotated

import typer

from allocator.cli.documents import OutFile, SnapshotFile, check_writable, read_snapshot, write_result
from allocator.cli.status import tell
from allocator.domain import Decision, Snapshot, printable

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_LEAST_PART = 0.1
"""Of the time limit, this part at least is left for the engines, however long reading took."""


class Engine(StrEnum):
    """Which engines may answer."""

    PORTFOLIO = "portfolio"
    CP_SAT = "cp-sat"
    MILP = "milp"
    GREEDY = "greedy"


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number")
    return value


def positive(value: float) -> float:
    """A number of seconds that a limit may have."""
    if not _finite(value) > 0:
        raise typer.BadParameter(f"{value} is not above 0: give seconds, for example 10")
    return value


@app.command()
def solve(
    snapshot: SnapshotFile,
    time_limit: Annotated[float, typer.Option(metavar="S", callback=positive, help="Seconds until the answer.")] = 10.0,
    engine: Annotated[Engine, typer.Option(help="Engines that may answer.")] = Engine.PORTFOLIO,
    seed: Annotated[int, typer.Option(metavar="N", min=0, max=2**31 - 1, help="Seed of the engines.")] = 0,
    gap: Annotated[float, typer.Option(metavar="G", min=0.0, callback=_finite, help="Gap at which to stop.")] = 0.0,
    out: OutFile = None,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Human summary on standard error.")] = False,
) -> None:
    """Decide who starts, who stops and what is reserved."""
    started = time.monotonic()
    check_writable(out)
    found = read_snapshot(snapshot)
    check_engine(engine)
    from allocator.engine import allocate

    left = max(time_limit - (time.monotonic() - started), _LEAST_PART * time_limit)
    decision = allocate(found, time_limit=left, engine=engine.value, seed=seed, gap=gap)
    _report(found, decision, verbose=verbose)
    from allocator.wire import encode_decision

    write_result(encode_decision(decision), out)


def check_engine(engine: Engine) -> None:
    """Refuse an engine that is not installed."""
    from allocator.engine import ENGINES

    if engine.value not in ENGINES:
        raise typer.BadParameter(f"{engine.value} is not installed: choose one of {', '.join(ENGINES)}", param_hint="--engine")


def _report(snapshot: Snapshot, decision: Decision, *, verbose: bool) -> None:
    """Warnings always, the summary where it is wanted; both on standard error."""
    from allocator.cli.summary import rejection_lines, summary_lines

    for warning in [*rejection_lines(snapshot), *decision.warnings]:
        tell("warning", warning)
    if verbose:
        for line in summary_lines(decision):
            typer.echo(printable(line), err=True)
