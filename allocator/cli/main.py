"""`allocator`: finds the command, and turns every way in which one can end into an exit status and a message."""

from __future__ import annotations

import errno
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
import typer.core

from allocator.cli.status import BAD_INPUT, DONE, INTERNAL_ERROR, INTERRUPTED, tell
from allocator.domain import SnapshotError

COMMANDS = (
    "solve", "apply", "verify", "explain", "budgets", "schema", "generate", "replay", "compare", "whatif", "report", "plan",
    "bench", "serve", "dispatch", "journal",
)  # fmt: skip
"""Each lives in the module of its name, imported when it is called, so that the command line starts quickly."""


_ROOM, _ACCESS, _FILES = "make room, and do it again", "let this user do that", "raise the limit of open files (ulimit -n)"
_PLACE = "give another place: something else is there"
_SURROUNDINGS = {
    errno.ENOSPC: _ROOM, errno.EDQUOT: _ROOM, errno.EFBIG: _ROOM,
    errno.EACCES: _ACCESS, errno.EPERM: _ACCESS, errno.EROFS: _ACCESS,
    errno.ENOTDIR: _PLACE, errno.EISDIR: _PLACE, errno.EEXIST: _PLACE,
    errno.EMFILE: _FILES, errno.ENFILE: _FILES,
}  # fmt: skip
"""What the machine may refuse at any time, which is no bug, and what to do about it."""


class Commands(typer.core.TyperGroup):
    """The group of all commands."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The commands in the order of the documentation."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import a command when it is asked for."""
        if cmd_name not in COMMANDS:
            return None
        command = typer.main.get_command(import_module(f"allocator.cli.{cmd_name}").app)
        command.name = cmd_name
        return command

    def invoke(self, ctx: Any) -> Any:
        """Run a command; nothing but a message and a status gets out."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            raise typer.Exit(_status_of(error, debug=bool(ctx.params.get("debug")))) from error


def _status_of(error: Exception, *, debug: bool) -> int:
    """The exit status of an error, after telling what has to be told. Wrong usage and plain exits are passed on."""
    if hasattr(error, "exit_code") or isinstance(error, typer.Abort):
        raise error
    if debug:
        traceback.print_exception(error)
    if isinstance(error, BrokenPipeError):
        _silence(sys.stdout)
        return DONE  # the reader has seen all it wanted
    if isinstance(error, SnapshotError):
        for issue in error.issues:
            tell("error", issue)
        return BAD_INPUT
    if isinstance(error, OSError) and error.errno in _SURROUNDINGS:
        place = f"{error.filename}: " if error.filename else ""
        tell("error", f"{place}{error.strerror}: {_SURROUNDINGS[error.errno]}")
        return BAD_INPUT
    what = " ".join(f"{type(error).__name__}: {error}".split())
    hint = "" if debug else "; --debug shows where"
    tell("internal error", f"{what} (please report it together with the input{hint})")
    return INTERNAL_ERROR


def _silence(stream: Any) -> None:
    """Send what is still buffered nowhere, so that closing the stream does not fail a second time."""
    with suppress(OSError, ValueError):  # not a real file, as in tests
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


app = typer.Typer(
    cls=Commands,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from allocator import __version__

        typer.echo(f"allocator {__version__}")
        raise typer.Exit(DONE)


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show logs and, if something breaks, the traceback.")] = False,
) -> None:
    """Decide who runs on a shared GPU cluster: snapshot in, decision out.

    SNAPSHOT and DECISION are JSON files, plain or gzip-compressed; - reads standard input. Exit status: 0 done,
    1 the answer is "no" (verify), 2 bad input or usage, 3 internal error.
    """
    logging.basicConfig(level=logging.DEBUG if debug else logging.WARNING, format="%(levelname)s %(name)s: %(message)s")


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and leave the process by `SystemExit`."""
    given = list(sys.argv[1:] if args is None else args)
    debug = "--debug" in given  # may stand anywhere
    if debug:
        given = ["--debug", *(item for item in given if item != "--debug")]
    status: Any = DONE
    try:
        app(args=given, prog_name="allocator")
    except SystemExit as error:
        status = error.code
    except KeyboardInterrupt:
        status = INTERRUPTED
    except Exception as error:  # outside a command: a command that cannot be imported
        status = _status_of(error, debug=debug)
    if sys.stdout is not None:
        try:
            sys.stdout.flush()
        except OSError:  # the reader is gone or the disk is full: whoever wrote has said so
            _silence(sys.stdout)
    raise SystemExit(status)
