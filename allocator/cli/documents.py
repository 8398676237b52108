"""What commands read and write: snapshots, decisions, and one result on standard output."""

from __future__ import annotations

import gzip
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from allocator.domain import Decision, Issue, Snapshot, SnapshotError, Workload, printable

if TYPE_CHECKING:
    from allocator.domain.trace import Trace
    from allocator.wire.budget_file import BudgetFile
    from allocator.wire.changes import ChangeSet

T = TypeVar("T")

SnapshotFile = Annotated[str, typer.Argument(metavar="SNAPSHOT", help="Snapshot, JSON or JSON.gz; - is standard input.")]
DecisionFile = Annotated[str, typer.Argument(metavar="DECISION", help="Decision, JSON or JSON.gz; - is standard input.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
OutFile = Annotated[Path | None, typer.Option("--out", help="File to write (.gz: compressed); absent: standard output.")]

STANDARD_INPUT = "-"


def read_snapshot(name: str) -> Snapshot:
    """Read and check a snapshot; issues name the file."""
    from allocator.wire import decode_snapshot

    return _read(name, decode_snapshot)


def read_pair(snapshot: str, decision: str) -> tuple[Snapshot, Decision]:
    """Read a snapshot and a decision, and report the issues of both."""
    from allocator.wire import decode_decision, decode_snapshot

    if snapshot == decision == STANDARD_INPUT:
        raise typer.BadParameter("standard input holds one document: give a file for the snapshot or for the decision")
    issues: list[Issue] = []
    found = [_try(snapshot, decode_snapshot, issues), _try(decision, decode_decision, issues)]
    if issues:
        raise SnapshotError(issues)
    return found[0], found[1]


def read_snapshot_or_trace(name: str) -> Snapshot | Trace:
    """Read a snapshot or a trace, whichever it is; issues name the file."""
    from allocator.wire import decode_snapshot, decode_trace
    from allocator.wire.traces import is_trace

    return _read(name, lambda data: decode_trace(data) if is_trace(data) else decode_snapshot(data))


def read_budget_change(name: str) -> ChangeSet | BudgetFile:
    """Read a change set of budgets or a budget file; issues name the file."""
    from allocator.wire.budget_file import decode_budget_change

    return _read(name, decode_budget_change)


def read_request(name: str, snapshot: Snapshot) -> Workload:
    """Read a workload that has not been submitted, for this snapshot; issues name the file."""
    from allocator.wire import decode_request

    return _read(name, lambda data: decode_request(data, snapshot))


def read_text(name: str, read: Callable[[str], T]) -> T:
    """Read a text; issues name the file."""
    return _read(name, lambda data: read(data.decode("utf-8", "replace")))


def check_writable(out: Path | None, option: str = "--out") -> None:
    """Refuse a file that cannot be written before anything is computed."""
    if out is not None and not (_is_writable_stream(out) or (not out.is_dir() and os.access(out.resolve().parent, os.W_OK))):
        raise typer.BadParameter(f"{out} cannot be written: give a file in a folder that exists", param_hint=option)


def check_folder(folder: Path | None, option: str = "--record") -> None:
    """Make a folder before anything is done that would be lost without it."""
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise typer.BadParameter(f"{folder} cannot be made ({error.strerror}): give a folder", param_hint=option) from error
    if not os.access(folder, os.W_OK):
        raise typer.BadParameter(f"{folder} cannot be written: give a folder of this user", param_hint=option)


def write_result(data: bytes, out: Path | None = None) -> None:
    """Write the result to a file, whole or not at all, or to standard output."""
    if out is None:
        _write_standard_output(data)
        return
    # no time stamp in compressed files: the same result gives the same bytes
    packed = gzip.compress(data, mtime=0) if out.suffix == ".gz" else data
    try:
        if _is_writable_stream(out):
            out.write_bytes(packed)
        else:
            _replace(out.resolve(), packed)
    except OSError as error:
        raise typer.BadParameter(f"{out} cannot be written ({error.strerror})", param_hint="--out") from error


def _is_writable_stream(out: Path) -> bool:
    """True for pipes and devices, such as /dev/null: they are written to, never replaced by a file."""
    return out.exists() and not out.is_file() and not out.is_dir() and os.access(out, os.W_OK)


def _replace(out: Path, data: bytes) -> None:
    """Write beside the file and take its place, so that nobody sees half of it."""
    part = out.with_name(f"{out.name}.{os.getpid()}.part")
    try:
        part.write_bytes(data)
        part.replace(out)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def _write_standard_output(data: bytes) -> None:
    if sys.stdout is None:
        raise typer.BadParameter("standard output is closed: open it, or write to a file", param_hint="standard output")
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise  # the reader has seen all it wanted
    except OSError as error:
        message = f"cannot be written ({error.strerror}): make room, or write to another place"
        raise typer.BadParameter(message, param_hint="standard output") from error


def write_json(value: Any) -> None:
    """Print a value as indented JSON."""
    import msgspec

    write_result(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")


def write_view(view: Mapping[str, Any], *, as_json: bool) -> None:
    """Print what is to be explained: as JSON, as plain text, or as the terminal can show it."""
    if as_json:
        write_json(view)
        return
    from allocator.explain.render import as_text, render

    if sys.stdout.isatty():
        from rich.console import Console

        Console().print(render(view))
    else:
        write_result(as_text(view).encode())


def write_lines(lines: Sequence[str]) -> None:
    """Print lines of text."""
    write_result("".join(f"{printable(line)}\n" for line in lines).encode())


def _try(name: str, decode: Callable[[bytes], Any], issues: list[Issue]) -> Any:
    try:
        return _read(name, decode)
    except SnapshotError as error:
        issues += error.issues
        return None


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Begin the paths of all issues with the name of the document they are in."""
    try:
        yield
    except SnapshotError as error:
        raise SnapshotError([replace(issue, path=f"{_shown(name)}: {issue.path}") for issue in error.issues]) from error


def _shown(name: str) -> str:
    return "<stdin>" if name == STANDARD_INPUT else name


def _read_standard_input() -> bytes:
    if sys.stdin is None:
        raise OSError("it is closed")
    return sys.stdin.buffer.read()


def _read(name: str, decode: Callable[[bytes], T]) -> T:
    """Decode a file or standard input; the paths of its issues begin with its name."""
    try:
        data = _read_standard_input() if name == STANDARD_INPUT else Path(name).read_bytes()
    except OSError as error:
        problem = f"cannot be read ({error.strerror or error})"
        raise SnapshotError(
            [Issue(path=_shown(name), problem=problem, remedy="give a file that exists, or - for standard input")]
        ) from error
    with naming(name):
        return decode(data)
