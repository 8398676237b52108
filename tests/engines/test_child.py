"""The child process of the exact engines: it ends with its parent, and is quiet about what is no defect."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from allocator.epoch import EpochSolution
from allocator.models import worker
from allocator.models.process import SolverProcess
from allocator.models.protocol import EngineResult, Limits, Status, added, completed, unheard

BUSY_CHILD = """
import sys, time
from allocator.models import worker
def search(*_):
    print("busy", file=sys.stderr, flush=True)
    time.sleep(600)
worker.exact_engine = lambda name: search
worker.main()
"""

PARENT = f"""
import os, pickle, subprocess, sys
from allocator.models.protocol import Limits
from allocator.models.worker import write_message
child = subprocess.Popen([sys.executable, "-c", {BUSY_CHILD!r}], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
write_message(child.stdin, pickle.dumps(("cp-sat", None, Limits(1.0), None, 0.0)))
assert child.stderr.readline() == b"busy\\n"
os._exit(0)  # as if it were killed: closes nothing, tells nobody
"""


def test_a_child_that_was_never_asked_is_not_waited_for() -> None:
    process = SolverProcess()
    process.warm()
    child = process._child
    assert child is not None
    process.close()
    assert child.returncode == -signal.SIGKILL


SERVES = """
import select, sys
from allocator.models.worker import main
if {idle}:
    select.select = lambda *_: ([], [], [])
main()
print("ortools" in sys.modules, file=sys.stderr)
"""


@pytest.mark.parametrize("idle", [False, True])
def test_what_is_asked_at_once_waits_for_no_engine_that_it_does_not_need(idle: bool) -> None:
    """The end of the requests is there at once; a child to which nothing has come by then gets ready for an exact engine."""
    ended = subprocess.run([sys.executable, "-c", SERVES.format(idle=idle)], input=b"", capture_output=True, check=True)
    assert ended.stderr.decode().split() == [str(idle)]


def test_a_search_ends_when_the_parent_is_killed() -> None:
    """The output that parent and child share is at its end only when both are gone; else this runs into the timeout."""
    ended = subprocess.run([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, timeout=120, check=False)
    assert ended.returncode == 0


def test_an_objective_that_is_too_large_is_noted_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def beyond(*_: object) -> None:
        raise OverflowError("lower the weights")

    monkeypatch.setattr(worker, "exact_engine", lambda _: beyond)
    result = worker._answer("cp-sat", None, Limits(1.0), None, unheard)  # type: ignore[arg-type]
    assert (result.status, result.note) == (Status.UNKNOWN, "OverflowError: lower the weights")
    assert capsys.readouterr().err == ""


def test_the_way_to_the_child_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    assert worker._left(Limits(5.0, gap=3), sent=98.0) == Limits(3.0, gap=3)
    assert worker._left(Limits(5.0), sent=90.0).seconds == 0.0
    assert worker._left(Limits(5.0), sent=200.0).seconds == 5.0, "a clock that is ahead gives no more time"


def test_what_is_cut_off_is_no_message() -> None:
    whole = io.BytesIO()
    worker.write_message(whole, b"news")
    data = whole.getvalue()
    assert worker.read_message(io.BytesIO(data)) == b"news"
    assert all(worker.read_message(io.BytesIO(data[:size])) is None for size in range(len(data)))


def test_the_better_answer_and_the_tightest_bound_are_known() -> None:
    first = EngineResult("cp-sat", Status.FEASIBLE, EpochSolution(), -5, -9)
    assert added(None, first) == first
    assert added(first, replace(first, value=-4, bound=-8)) == replace(first, bound=-8)
    assert added(first, replace(first, value=-6, bound=None)) == replace(first, value=-6)
    nothing = EngineResult("cp-sat", Status.UNKNOWN, None, None, None, note="killed")
    assert completed(nothing, first) == replace(first, note="killed")
    assert completed(replace(first, bound=-7), first).bound == -7
    assert completed(nothing, None) == nothing
