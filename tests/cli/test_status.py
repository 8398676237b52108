"""How commands end: exit status, one line per problem on standard error, and nothing but results on standard output."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from allocator.domain import InfeasibleError
from tests.cli.conftest import Invoke, write
from tests.wire.documents import document, job

COMMANDS = ("solve", "apply", "verify", "explain", "budgets")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_snapshot_that_contradicts_itself(
    invoke: Invoke, contradiction: Path, decision: Path, command: str, tmp_path: Path
) -> None:
    more = [decision] if command in ("apply", "verify", "explain") else []
    result = invoke(command, contradiction, *more)
    assert (result.status, result.out) == (2, b"")
    lines = result.err.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith(f"error: {contradiction}: $.workloads[1].id: ")
    assert lines[1].startswith(f"error: {contradiction}: $.workloads[2].run.placement.n9: ")


def test_problems_of_both_documents_are_told(invoke: Invoke, contradiction: Path, tmp_path: Path) -> None:
    bad = write(tmp_path / "bad.json", {"version": 1})
    result = invoke("verify", contradiction, bad)
    assert result.status == 2
    assert f"error: {contradiction}: $.workloads[1].id" in result.err
    assert f"error: {bad}: $.starts: the field is missing" in result.err


def test_no_json_on_standard_input(invoke: Invoke) -> None:
    result = invoke("solve", "-", stdin=b'{"version": NaN}')
    assert (result.status, result.out) == (2, b"")
    assert result.err == (
        "error: <stdin>: $: not JSON at line 1, column 13: NaN is no JSON number; give a finite number or leave the field out\n"
    )


def test_names_cannot_break_the_lines_of_messages(invoke: Invoke, tmp_path: Path) -> None:
    path = write(tmp_path / "s.json", document(job("a\nb\x1b[1m"), job("a\nb\x1b[1m")))
    result = invoke("solve", path)
    assert len(result.err.splitlines()) == 1
    assert "\x1b" not in result.err


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("sloev",),
        ("solve",),
        ("solve", "{snapshot}", "--time-limit", "0"),
        ("solve", "{snapshot}", "--time-limit", "nan"),
        ("solve", "{snapshot}", "--time-limit", "soon"),
        ("solve", "{snapshot}", "--gap", "-1"),
        ("solve", "{snapshot}", "--seed", "-1"),
        ("solve", "{snapshot}", "--seed", "1.5"),
        ("solve", "{snapshot}", "--engine", "magic"),
        ("solve", "{snapshot}", "--out", "/nowhere/d.json"),
        ("solve", "{snapshot}", "--out", "/"),
        ("solve", "{snapshot}", "extra"),
        ("solve", "nowhere.json"),
        ("solve", "/"),
        ("apply", "{snapshot}"),
        ("apply", "{snapshot}", "nowhere.json"),
        ("apply", "-", "-"),
        ("apply", "{snapshot}", "{decision}", "--advance", "-1"),
        ("explain", "{snapshot}", "{decision}", "w", "--allocation", "eval"),
        ("budgets", "{snapshot}", "--try", "nowhere.json"),
        ("budgets", "-", "--try", "-"),
        ("schema",),
        ("schema", "budget"),
        ("generate", "magic"),
    ],
    ids=" ".join,
)
def test_wrong_usage(invoke: Invoke, snapshot: Path, decision: Path, args: tuple[str, ...]) -> None:
    result = invoke(*(item.format(snapshot=snapshot, decision=decision) for item in args))
    assert (result.status, result.out) == (2, b"")
    assert result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize(
    "error", [KeyError("x"), InfeasibleError("not even keep"), RecursionError(), OSError(22, "Invalid argument")]
)
def test_an_internal_error(invoke: Invoke, snapshot: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("allocator.engine.allocate", fail)
    result = invoke("solve", snapshot)
    assert (result.status, result.out) == (3, b"")
    assert result.err.startswith(f"internal error: {type(error).__name__}: ")
    assert "please report it" in result.err
    assert result.err.count("\n") == 1
    for args in (("--debug", "solve", snapshot), ("solve", snapshot, "--debug")):
        assert "Traceback" in invoke(*args).err


@pytest.mark.parametrize(
    ("number", "remedy"),
    [(errno.ENOSPC, "make room"), (errno.EACCES, "let this user"), (errno.EMFILE, "limit"), (errno.ENOTDIR, "another place")],
)
def test_what_the_machine_refuses_is_no_bug(
    invoke: Invoke, snapshot: Path, monkeypatch: pytest.MonkeyPatch, number: int, remedy: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), "/some/place")

    monkeypatch.setattr("allocator.engine.allocate", fail)
    result = invoke("solve", snapshot)
    assert (result.status, result.out) == (2, b"")
    assert result.err.startswith("error: /some/place: ")
    assert remedy in result.err


def test_an_interrupt(invoke: Invoke, snapshot: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("allocator.engine.allocate", interrupt)
    result = invoke("solve", snapshot)
    assert (result.status, result.out) == (130, b"")


def test_an_output_file_stays_whole(invoke: Invoke, contradiction: Path, tmp_path: Path) -> None:
    out = tmp_path / "d.json"
    out.write_text("before")
    assert invoke("solve", contradiction, "--out", out).status == 2
    assert out.read_text() == "before"


@pytest.mark.skipif(sys.platform == "win32", reason="pipes of POSIX")
@pytest.mark.parametrize("args", [("schema", "snapshot"), ("--help",)], ids=" ".join)
def test_a_reader_that_goes_away(args: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "allocator", *args]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        err = process.stderr.read()
        assert process.wait(60) in (0, 1)
    assert err == b""


def test_start_up_imports_nothing_heavy() -> None:
    """Messages about a bad file come at once: no solver, no arrays, no tables are loaded for them."""
    code = (
        "import sys\n"
        "from allocator.cli.main import main\n"
        "try: main(['schema', 'snapshot'])\n"
        "finally: print(*sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout)["title"] == "Allocator snapshot, version 1"
    loaded = {name.split(".")[0] for name in done.stderr.split()}
    assert not loaded & {"numpy", "scipy", "ortools", "pulp", "highspy", "networkx"}


def test_the_package_exports_lazily() -> None:
    code = (
        "import sys, allocator\n"
        "assert not any(name.startswith('allocator.') for name in sys.modules)\n"
        "import allocator.verify\n"
        "assert callable(allocator.verify) and allocator.verify.Verdict\n"
        "assert all(hasattr(allocator, name) for name in allocator.__all__)\n"
        "assert set(allocator.__all__) <= set(dir(allocator))\n"
        "assert not hasattr(allocator, 'nothing')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
