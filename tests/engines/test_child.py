"""The child process of the exact engines: it ends with its parent, and is quiet about what is no defect."""

from __future__ import annotations

import subprocess
import sys

import pytest

from allocator.models import worker
from allocator.models.protocol import Limits, Status

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
from allocator.models.worker import write_message
child = subprocess.Popen([sys.executable, "-c", {BUSY_CHILD!r}], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
write_message(child.stdin, pickle.dumps(("cp-sat", None, None, None)))
assert child.stderr.readline() == b"busy\\n"
os._exit(0)  # as if it were killed: closes nothing, tells nobody
"""


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
    result = worker._answer("cp-sat", None, Limits(1.0), None)  # type: ignore[arg-type]
    assert (result.status, result.note) == (Status.UNKNOWN, "OverflowError: lower the weights")
    assert capsys.readouterr().err == ""
