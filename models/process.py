"""Runs exact engines where they can be killed: one child process, kept warm between epochs."""

from __future__ import annotations

import atexit
import logging
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

from allocator.epoch.problem import EpochProblem
from allocator.epoch.solution import EpochSolution
from allocator.models.protocol import EngineResult, Limits, Status
from allocator.models.worker import read_message, write_message

logger = logging.getLogger(__name__)

GRACE_SECONDS = 2.0
"""An idle child needs this long at most to notice that its input has ended."""

_BOOT = "import sys; sys.path[:] = {path!r}; from allocator.models.worker import main; main()"


class SolverProcess:
    """One child. An answer never takes longer than its deadline: a child that overruns is killed and started anew."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def warm(self) -> None:
        """Start the child if there is none, without waiting for it."""
        if self._child is None or self._child.poll() is not None:
            command = [sys.executable, "-c", _BOOT.format(path=sys.path)]
            self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    @contextmanager
    def solving(
        self, name: str, problem: EpochProblem, limits: Limits, guess: EpochSolution | None
    ) -> Iterator[Callable[[float], EngineResult]]:
        """Send a problem; the block gets a function that waits for the answer until a deadline (`time.monotonic`).

        The caller may do other work before it asks. One problem at a time: others wait for the end of the block.
        """
        with self._lock:
            self.warm()
            child = self._child
            if child is None or child.stdin is None or child.stdout is None:
                raise RuntimeError("a warm child has both pipes")
            answer: list[bytes | None] = []
            request = pickle.dumps((name, problem, limits, guess), protocol=pickle.HIGHEST_PROTOCOL)
            talk = threading.Thread(target=_converse, args=(child.stdin, child.stdout, request, answer), daemon=True)
            talk.start()
            try:
                yield lambda deadline: self._wait(name, child, talk, answer, deadline)
            finally:
                if talk.is_alive():
                    self.kill()

    def _wait(
        self, name: str, child: subprocess.Popen[bytes], talk: threading.Thread, answer: list[bytes | None], deadline: float
    ) -> EngineResult:
        talk.join(min(max(0.0, deadline - time.monotonic()), threading.TIMEOUT_MAX))
        if not talk.is_alive() and answer and answer[0]:
            result: EngineResult = pickle.loads(answer[0])
            return result
        note = self._diagnose(child, talk.is_alive())
        self.kill()
        logger.warning("%s: %s", name, note)
        return EngineResult(name, Status.UNKNOWN, None, None, None, note=note)

    def _diagnose(self, child: subprocess.Popen[bytes], still_running: bool) -> str:
        if still_running and child.poll() is None:
            return "killed at the deadline without an answer"
        child.wait()
        return f"the solver process ended with status {child.returncode}"

    def close(self) -> None:
        """Let the child end by itself, and kill it if it does not."""
        if self._child is None:
            return
        if self._child.stdin is not None:
            _close(self._child.stdin)
        try:
            self._child.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            logger.debug("the solver process does not end by itself")
        self.kill()

    def kill(self) -> None:
        """End the child at once. The next call starts a new one."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            for pipe in (self._child.stdin, self._child.stdout):
                if pipe is not None:
                    _close(pipe)
            self._child = None


def _converse(requests: IO[bytes], answers: IO[bytes], request: bytes, answer: list[bytes | None]) -> None:
    try:
        write_message(requests, request)
        answer.append(read_message(answers))
    except (OSError, ValueError):
        answer.append(None)  # the child is gone; the caller reports its exit status


def _close(pipe: IO[bytes]) -> None:
    try:
        pipe.close()
    except OSError:
        logger.debug("the pipe of a killed child was already broken")


_shared = SolverProcess()
atexit.register(_shared.close)


def shared_process() -> SolverProcess:
    """The child that all calls of this process share."""
    return _shared
