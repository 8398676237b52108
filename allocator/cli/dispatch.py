"""`allocator dispatch`: the allocator in charge of a scheduler."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from allocator.cli.documents import check_folder, write_json, write_lines
from allocator.cli.solve import Engine, positive
from allocator.cli.status import BAD_INPUT
from allocator.domain import AllocatorError, Decision, Snapshot, SnapshotError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from allocator.dispatch.config import Config
    from allocator.dispatch.dispatcher import Dispatcher, Epoch
    from allocator.dispatch.journal import Journal

app = typer.Typer(
    add_completion=False, rich_markup_mode=None, no_args_is_help=True, help="Put the allocator in charge of a scheduler."
)

IN_MEMORY = "sqlite://"


@app.callback()
def main() -> None:
    """Put the allocator in charge of a scheduler."""


@app.command()
def slurm(
    *,
    journal: Annotated[
        str, typer.Option(metavar="FILE|URL", help="Where promises and usage are kept; made if it does not exist.")
    ] = "allocator-journal.db",
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="TOML: pools, policy, QOS defaults, budgets.")] = None,
    pool: Annotated[list[str] | None, typer.Option(help="Pool that is handed over; may be repeated; absent: all.")] = None,
    once: Annotated[bool, typer.Option("--once", help="One epoch, then end.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be done; change nothing, remember nothing.")
    ] = False,
    shadow: Annotated[
        bool, typer.Option("--shadow", help="Decide beside the scheduler in charge; print the differences, do nothing.")
    ] = False,
    interval: Annotated[float, typer.Option(metavar="S", callback=positive, help="Seconds from epoch to epoch.")] = 10.0,
    time_limit: Annotated[float, typer.Option(metavar="S", callback=positive, help="Seconds for each decision.")] = 5.0,
    engine: Annotated[Engine, typer.Option(help="Engines that may answer.")] = Engine.PORTFOLIO,
    patience: Annotated[
        float, typer.Option(metavar="S", callback=positive, help="Seconds to wait for stops and starts to show.")
    ] = 10.0,
    record: Annotated[Path | None, typer.Option(metavar="DIR", help="Keep every epoch's snapshot and decision there.")] = None,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="A line per epoch on standard error.")] = False,
) -> None:
    """Drive the Slurm that the commands on this host speak to.

    Reads jobs, nodes, topology and accounts, decides, and starts, stops and drains. Run it once, as an administrator of
    that Slurm.
    """
    if dry_run and shadow:
        raise typer.BadParameter("give one of the two: --dry-run looks once, --shadow goes on beside the scheduler")
    check_folder(None if dry_run else record)
    logging.getLogger("allocator").setLevel(logging.INFO if verbose else logging.WARNING)
    with _told():
        from allocator.dispatch.config import Config, load_config
        from allocator.dispatch.dispatcher import Dispatcher
        from allocator.dispatch.execute import Executor, Patience
        from allocator.dispatch.journal import Journal
        from allocator.dispatch.slurm.commands import Commands
        from allocator.dispatch.slurm.launcher import SlurmLauncher
        from allocator.record import Recorder

        def configured() -> Config:
            from dataclasses import replace

            found = Config() if config is None else load_config(config)
            return replace(found, pools=frozenset(pool)) if pool else found

        first = configured()
        launcher = SlurmLauncher(Commands(), read_accounts=first.budgets is None)
        kept = Journal(IN_MEMORY if dry_run and "://" not in journal and not Path(journal).exists() else journal)
        dispatcher = Dispatcher(
            launcher,
            kept,
            _decider(time_limit, engine),
            Executor(launcher, Patience(stop=patience, start=patience)),
            configured,
            None if record is None else Recorder(record),
        )
        if dry_run:
            write_lines(dispatcher.rehearse().orders.lines)
            return
        with kept.exclusive():
            _serve(dispatcher, kept, once=once, shadow=shadow, interval=interval, verbose=verbose)


def _serve(dispatcher: Dispatcher, journal: Journal, *, once: bool, shadow: bool, interval: float, verbose: bool) -> None:
    """Epoch after epoch until somebody asks to end; the epoch that runs then is brought to its end."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    logging.getLogger(__name__).info("in charge of %s", "nothing: shadow mode" if shadow else "the scheduler")
    told: Callable[[Epoch], None] = _tell if verbose else lambda _: None
    if shadow:
        _shadow(dispatcher, stop, once=once, interval=interval, told=told)
    elif once:
        told(dispatcher.epoch())
    else:
        dispatcher.run(interval, stop, told)
    journal.close()


def _shadow(
    dispatcher: Dispatcher, stop: threading.Event, *, once: bool, interval: float, told: Callable[[Epoch], None]
) -> None:
    """One JSON object per epoch: how the scheduler in charge and the decision before differ."""
    import msgspec

    from allocator.dispatch.shadow import differences

    previous: Epoch | None = None
    while not stop.is_set():
        try:
            epoch = dispatcher.watch()
        except AllocatorError as error:
            if once:
                raise
            logging.getLogger(__name__).error("this epoch is given up: %s", error)
        else:
            told(epoch)
            if previous is not None:
                found = differences(previous.view, previous.decision, epoch.view)
                write_lines([msgspec.json.encode(found).decode()])
            elif once:
                write_json({"would": epoch.orders.lines})
            previous = epoch
        if once:
            return
        stop.wait(interval)


def _decider(time_limit: float, engine: Engine) -> Callable[[Snapshot], Decision]:
    from allocator.engine import allocate

    return lambda snapshot: allocate(snapshot, time_limit=time_limit, engine=engine.value)


def _tell(epoch: Epoch) -> None:
    """One line: what was decided, and what came of it."""
    decision, effects = epoch.decision, epoch.effects
    started, stopped = (len(effects.started), len(effects.stopped)) if effects is not None else (0, 0)
    seconds = sum(epoch.seconds.values())
    typer.echo(
        f"{decision.now} {decision.solver.rung}: {started} of {len(decision.starts)} started, {stopped} of "
        f"{len(decision.preemptions)} stopped, {len(decision.waiting)} wait; {seconds:.2f} s, decided in "
        f"{epoch.seconds.get('decide', 0.0):.2f} s",
        err=True,
    )


@contextmanager
def _told() -> Iterator[None]:
    """What the scheduler, the journal or a missing package has to say is a message, not an internal error."""
    try:
        yield
    except SnapshotError:
        raise
    except AllocatorError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(BAD_INPUT) from error
    except ModuleNotFoundError as error:
        if not _is_extra(error):
            raise
        typer.echo(f"error: {error.name} is missing: pip install 'gpu-epoch-allocator[dispatch]'", err=True)
        raise typer.Exit(BAD_INPUT) from error


def _is_extra(error: Any) -> bool:
    return str(error.name).partition(".")[0] in ("sqlalchemy", "alembic", "pyarrow")
