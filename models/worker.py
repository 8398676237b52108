"""The child process: reads problems from standard input, writes results to standard output, until the pipe closes."""

from __future__ import annotations

import os
import pickle
import struct
import sys
import threading
import time
import traceback
from typing import IO

from allocator.epoch.problem import EpochProblem
from allocator.epoch.solution import EpochSolution
from allocator.models.protocol import EngineResult, Limits, Status
from allocator.models.registry import EXACT_ENGINES, exact_engine

Request = tuple[str, EpochProblem, Limits, EpochSolution | None]

PARENT_SECONDS = 0.5
"""So often the child looks whether its parent is still there."""


def main() -> None:
    """Serve one request after another. What solvers print goes to standard error, never into the answer."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    requests = sys.stdin.buffer
    exact_engine(EXACT_ENGINES[0])  # the import is most of a cold start; the engines behind the first may never be asked
    while (request := read_message(requests)) is not None:
        write_message(answers, pickle.dumps(_answer(*pickle.loads(request))))


def _end_with(parent: int) -> None:
    """End this process soon after its parent, even in the middle of a search: a parent that is killed closes nothing."""
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)
    os._exit(1)


def _answer(name: str, problem: EpochProblem, limits: Limits, guess: EpochSolution | None) -> EngineResult:
    try:
        return exact_engine(name)(problem, limits, guess)
    except OverflowError as error:
        # What the policy asks for is beyond the engine: no defect, and the message says what to do.
        return EngineResult(name, Status.UNKNOWN, None, None, None, note=f"OverflowError: {error}")
    except Exception as error:
        # Reported, not hidden: the portfolio falls to the next rung and says why.
        traceback.print_exc()
        return EngineResult(name, Status.UNKNOWN, None, None, None, note=f"{type(error).__name__}: {error}")


def read_message(stream: IO[bytes]) -> bytes | None:
    """One message, or None at the end of the stream."""
    header = stream.read(8)
    if len(header) < 8:
        return None
    (size,) = struct.unpack("<Q", header)
    return stream.read(size)


def write_message(stream: IO[bytes], message: bytes) -> None:
    """A message behind its length."""
    stream.write(struct.pack("<Q", len(message)) + message)
    stream.flush()
