"""What commands read and write: snapshots, decisions, and one result on standard output."""

from __future__ import annotations

import gzip
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from allocator.domain import Decision, Issue, Snapshot, SnapshotError, Workload

if TYPE_CHECKING:
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


def read_changes(name: str) -> ChangeSet:
    """Read a change set of budgets; issues name the file."""
    from allocator.wire.changes import decode_changes

    return _read(name, decode_changes)


def read_request(name: str, snapshot: Snapshot) -> Workload:
    """Read a workload that has not been submitted, for this snapshot; issues name the file."""
    from allocator.wire import decode_request

    return _read(name, lambda data: decode_request(data, snapshot))


def check_writable(out: Path | None) -> None:
    """Refuse a file that cannot be written before anything is computed."""
    if out is not None and (out.is_dir() or not os.access(out.parent, os.W_OK)):
        raise typer.BadParameter(f"{out} cannot be written: give a file in a folder that exists", param_hint="--out")


def write_result(data: bytes, out: Path | None = None) -> None:
    """Write the result to a file, whole or not at all, or to standard output."""
    if out is None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    part = out.with_name(f"{out.name}.{os.getpid()}.part")
    try:
        # no time stamp in compressed files: the same result gives the same bytes
        part.write_bytes(gzip.compress(data, mtime=0) if out.suffix == ".gz" else data)
        part.replace(out)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise typer.BadParameter(f"{out} cannot be written ({error.strerror})", param_hint="--out") from error


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
    write_result("".join(f"{line}\n" for line in lines).encode())


def _try(name: str, decode: Callable[[bytes], Any], issues: list[Issue]) -> Any:
    try:
        return _read(name, decode)
    except SnapshotError as error:
        issues += error.issues
        return None


def _read(name: str, decode: Callable[[bytes], T]) -> T:
    """Decode a file or standard input; the paths of its issues begin with its name."""
    shown = "<stdin>" if name == STANDARD_INPUT else name
    try:
        data = sys.stdin.buffer.read() if name == STANDARD_INPUT else Path(name).read_bytes()
    except OSError as error:
        problem = f"cannot be read ({error.strerror or error})"
        raise SnapshotError(
            [Issue(path=shown, problem=problem, remedy="give a file that exists, or - for standard input")]
        ) from error
    try:
        return decode(data)
    except SnapshotError as error:
        raise SnapshotError(
            [Issue(path=f"{shown}: {issue.path}", problem=issue.problem, remedy=issue.remedy) for issue in error.issues]
        ) from error
