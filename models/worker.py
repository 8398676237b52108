"""The child process: reads problems from standard input and writes what it finds to standard output, until the pipe closes."""

from __future__ import annotations

import os
import pickle
import select
import struct
import sys
import threading
import time
import traceback
from dataclasses import replace
from typing import IO

from allocator.epoch.problem import EpochProblem
from allocator.epoch.solution import EpochSolution
from allocator.models.protocol import EngineResult, Limits, Report, Status
from allocator.models.registry import BOUND, EXACT_ENGINES, exact_engine

Request = tuple[str, EpochProblem, Limits, EpochSolution | None, float]
"""Engine, problem, limits, guess, and when it was sent, in seconds of `time.monotonic`, one clock for all processes."""

News = tuple[bool, EngineResult]
"""Whether this is the end of the engine, and what it knows."""

PARENT_SECONDS = 0.5
"""So often the child looks whether its parent is still there."""


def main() -> None:
    """Serve one request after another. What solvers print goes to standard error, never into the answer."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    requests = sys.stdin.buffer
    exact_engine(BOUND)
    # An exact engine is half of a cold start, which the step before it need not wait for. Those behind the first are often not
    # asked.
    if not select.select([requests], [], [], 0)[0]:
        exact_engine(EXACT_ENGINES[0])
    while (request := read_message(requests)) is not None:
        name, problem, limits, guess, sent = pickle.loads(request)
        talk = Talk(answers)
        talk.end(_answer(name, problem, _left(limits, sent), guess, talk.report))


class Talk:
    """What is told of one problem, in whole messages, whichever thread of a solver reports."""

    def __init__(self, answers: IO[bytes]) -> None:
        self._answers, self._lock = answers, threading.Lock()

    def report(self, result: EngineResult) -> None:
        """Something is known, and the search goes on."""
        self._tell(False, result)

    def end(self, result: EngineResult) -> None:
        """Nothing more will be known."""
        self._tell(True, result)

    def _tell(self, ended: bool, result: EngineResult) -> None:
        with self._lock:
            write_message(self._answers, pickle.dumps((ended, result), protocol=pickle.HIGHEST_PROTOCOL))


def _left(limits: Limits, sent: float) -> Limits:
    """The limits, less the time that the problem took to get here."""
    return replace(limits, seconds=max(0.0, limits.seconds - max(0.0, time.monotonic() - sent)))


def _end_with(parent: int) -> None:
    """End this process soon after its parent, even in the middle of a search: a parent that is killed closes nothing."""
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)
    os._exit(1)


def _answer(name: str, problem: EpochProblem, limits: Limits, guess: EpochSolution | None, report: Report) -> EngineResult:
    try:
        return exact_engine(name)(problem, limits, guess, report)
    except OverflowError as error:
        # What the policy asks for is beyond the engine: no defect, and the message says what to do.
        return EngineResult(name, Status.UNKNOWN, None, None, None, note=f"OverflowError: {error}")
    except Exception as error:
        # Reported, not hidden: the portfolio falls to the next rung and says why.
        traceback.print_exc()
        return EngineResult(name, Status.UNKNOWN, None, None, None, note=f"{type(error).__name__}: {error}")


def read_message(stream: IO[bytes]) -> bytes | None:
    """One message, or None at the end of the stream; what was cut off there is no message."""
    header = stream.read(8)
    if len(header) < 8:
        return None
    (size,) = struct.unpack("<Q", header)
    message = stream.read(size)
    return message if len(message) == size else None


def write_message(stream: IO[bytes], message: bytes) -> None:
    """A message behind its length."""
    stream.write(struct.pack("<Q", len(message)) + message)
    stream.flush()
