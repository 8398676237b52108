"""The command line, many times, without starting Python as often.

A server imports everything once and runs each call in a child of its own: half a second less for each of the documentation's
commands. Lines are not counted in it.
"""

from __future__ import annotations

import gc
import json
import os
import pkgutil
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import allocator
from allocator.cli.main import COMMANDS, main
from tests.uncounted import uncounted

_SHELL = set("|;&<*?$`(){}~#!")
"""What only a shell understands."""

_PATIENCE = 120
"""Seconds after which a call is killed."""


@dataclass(frozen=True)
class Call:
    """`allocator ARGUMENTS > out 2> err`; what is not redirected goes to one file."""

    arguments: tuple[str, ...]
    out: str | None = None
    err: str | None = None


def call_of(command: str) -> Call | None:
    """What a line of a shell calls; None if it is anything but one plain call of `allocator`."""
    line = command.replace("\\\n", " ")
    words = [] if _SHELL & set(line) else shlex.split(line)
    if words[:1] != ["allocator"]:
        return None
    arguments, targets = list[str](), dict[str, str]()
    rest = iter(words[1:])
    for word in rest:
        if word in (">", "2>"):
            targets[word] = next(rest)
        else:
            arguments.append(word)
    return Call(tuple(arguments), targets.get(">"), targets.get("2>"))


def run_call(call: Call, folder: Path, env: Mapping[str, str], printed: Path) -> subprocess.CompletedProcess[str]:
    """Run it in a folder; `printed` is a file for what is not redirected, and is gone afterwards."""
    for target in (call.out, call.err):
        if target is not None:
            (folder / target).write_bytes(b"")
    out, err = (str(printed) if target is None else target for target in (call.out, call.err))
    status = _ask({"arguments": call.arguments, "folder": str(folder), "env": dict(env), "out": out, "err": err})
    text = printed.read_text(encoding="utf-8") if printed.exists() else ""
    printed.unlink(missing_ok=True)
    return subprocess.CompletedProcess(call.arguments, status, text)


def _ask(request: Mapping[str, object]) -> int:
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    print(json.dumps(request), file=server.stdin, flush=True)
    return int(server.stdout.readline())


@cache
def _server() -> subprocess.Popen[str]:
    """Ends when this process does, which closes its input."""
    command = [sys.executable, "-c", "from tests.forked import serve; serve()"]
    root = Path(__file__).resolve().parents[1]
    return subprocess.Popen(command, cwd=root, env=uncounted(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def serve() -> None:
    """Answer each request, a line of JSON, by the exit status of the call."""
    parts = [part.name for part in pkgutil.iter_modules(allocator.__path__) if part.ispkg]
    for name in [*parts, *(f"cli.{name}" for name in COMMANDS)]:
        import_module(f"allocator.{name}")
    gc.freeze()  # what is imported is not looked through again at the end of each child
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _run(**json.loads(line))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        sys.stdout.write(f"{status}\n")
        sys.stdout.flush()


def _run(arguments: list[str], folder: str, env: dict[str, str], out: str, err: str) -> NoReturn:
    """What a process of its own would do."""
    signal.alarm(_PATIENCE)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for stream, target in ((1, out), (2, err)):
        os.dup2(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), stream)
    main(arguments)
