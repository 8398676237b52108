"""`allocator replay`: a trace played against a policy."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from allocator.cli.documents import AsJson, check_folder, check_writable, write_json, write_lines
from allocator.cli.status import tell

if TYPE_CHECKING:
    from allocator.domain.trace import Trace
    from allocator.replay.simulator import Simulator

Show = Callable[[int, int], None]
"""Shows how much of how much is done."""

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def replay(
    trace: Annotated[
        Path,
        typer.Argument(
            metavar="TRACE", help="Trace, JSON or JSON.gz; or a folder of --record, or one of its snapshots to begin at."
        ),
    ],
    *,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for the tables, the summary and the timing.")],
    policy: Annotated[str, typer.Option(help="Policy by name; a wrong one lists all.")] = "budgets_greedy",
    tick: Annotated[int, typer.Option(metavar="S", min=1, help="Decisions are made every so many seconds.")] = 15,
    drift: Annotated[int, typer.Option(metavar="S", help="While work waits, decide at least this often.")] = 300,
    until: Annotated[str | None, typer.Option(help="Stop so long after the start, as 12h or 3d6h; absent: at the end.")] = None,
    engine: Annotated[str | None, typer.Option(help="With --policy budgets: one engine instead of the portfolio.")] = None,
    time_limit: Annotated[float, typer.Option(metavar="S", help="For each decision of our own policies.")] = 10.0,
    gap: Annotated[float, typer.Option(min=0, help="Gap at which our own policies stop improving.")] = 0.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the solvers.")] = 0,
    checkpoint: Annotated[Path | None, typer.Option(help="Go on from this file if it exists, and keep it up to date.")] = None,
    every: Annotated[str, typer.Option(help="With --checkpoint: how much of the trace lies between two of them.")] = "1d",
    as_json: AsJson = False,
) -> None:
    """Play a trace, or what was recorded in production, against a policy, and measure.

    Writes jobs, runs, hours, epochs, allocations, reservations, placements, nodes and closures as Parquet and CSV, and
    summary.json, to a folder; prints the summary.
    """
    from allocator.generate.instant import parse_span
    from allocator.replay import ReplayOptions, import_pandas, make_policy
    from allocator.replay.errors import MissingExtraError, ReplayError

    try:
        import_pandas()
    except MissingExtraError as error:
        raise typer.BadParameter(str(error)) from error
    if drift < tick:
        raise typer.BadParameter(f"{drift} s is less than a tick of {tick} s", param_hint="--drift")
    if out.exists() and not out.is_dir():
        raise typer.BadParameter(f"{out} is no folder", param_hint="--out")
    check_writable(checkpoint, "--checkpoint")
    if not trace.exists():
        raise typer.BadParameter(f"{trace} is no file and no folder", param_hint="TRACE")
    span = None if until is None else parse_span(until)
    if span == 0:
        raise typer.BadParameter("nothing happens in no time: give a span such as 12h", param_hint="--until")
    try:
        made = make_policy(policy, drift=drift, engine=engine, time_limit=time_limit, gap=gap, seed=seed)
    except ReplayError as error:
        raise typer.BadParameter(str(error), param_hint="--policy") from error
    played = _read(trace)
    gc.freeze()  # what was read stays: the collector need not go through it again and again
    options = ReplayOptions(tick=tick, drift=drift, until=None if span is None else played.start + span)
    from allocator.replay import Simulator, summary_lines, write_results

    check_folder(out, "--out")
    simulator = _begin(checkpoint, lambda: Simulator(played, made, options), (played, made, options))
    with bar(made.name) as show:
        simulator.run(_on_tick(_progress(show, simulator), checkpoint, parse_span(every)))
    summary = write_results(simulator, out)
    if as_json:
        write_json(summary)
    else:
        write_lines(summary_lines(summary))


def _read(place: Path) -> Trace:
    """The trace of a file, or of recorded epochs; then with a word on each thing that is estimated."""
    from allocator.record import is_record
    from allocator.wire import load_trace

    if not is_record(place):
        return load_trace(place)
    from allocator.generate.recorded import trace_from_record

    with bar("reading") as show:
        found = trace_from_record(place, show)
    for note in found.notes:
        tell("note", note)
    return found


def _begin(checkpoint: Path | None, anew: Callable[[], Simulator], what: tuple[object, ...]) -> Simulator:
    """The simulator as its checkpoint has it, or a new one."""
    from allocator.replay import checkpoint as checkpoints
    from allocator.replay.errors import ReplayError

    if checkpoint is None or not checkpoint.exists():
        return anew()
    try:
        return checkpoints.load(checkpoint, *what)  # type: ignore[arg-type]
    except ReplayError as error:
        raise typer.BadParameter(str(error), param_hint="--checkpoint") from error


def _on_tick(advance: Callable[[Simulator], None], checkpoint: Path | None, every: int) -> Callable[[Simulator], None]:
    """What is done after each tick: show progress, and now and then write the checkpoint."""
    from allocator.replay import checkpoint as checkpoints

    written: dict[str, int] = {}

    def on_tick(simulator: Simulator) -> None:
        advance(simulator)
        last = written.setdefault("at", simulator.now)
        if checkpoint is not None and simulator.now - last >= every:
            try:
                checkpoints.save(simulator, checkpoint)
            except OSError as error:  # no reason to lose what was played
                tell("warning", f"{checkpoint} cannot be written ({error.strerror}): make room; the last one stays")
            written["at"] = simulator.now

    return on_tick


def _progress(show: Show, simulator: Simulator) -> Callable[[Simulator], None]:
    """Shows how far the clock of the trace has come."""
    start = simulator.trace.start
    return lambda now: show(now.now - start, simulator.end - start)


@contextmanager
def bar(name: str) -> Iterator[Show]:
    """A bar with an estimate on standard error, where that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(name, total=None)
        yield lambda done, total: progress.update(task, total=total, completed=done)
