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
from allocator.models.protocol import EngineResult, Limits, Status, added, completed
from allocator.models.worker import read_message, write_message

logger = logging.getLogger(__name__)

GRACE_SECONDS = 2.0
"""An idle child needs this long at most to notice that its input has ended."""

_BOOT = "import sys; sys.path[:] = {path!r}; from allocator.models.worker import main; main()"


class SolverProcess:
    """One child. An answer never takes longer than its deadline: a child that overruns is killed and started anew."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._asked = False
        self._lock = threading.Lock()

    def warm(self) -> None:
        """Start the child if there is none, without waiting for it."""
        if self._child is None or self._child.poll() is not None:
            command = [sys.executable, "-c", _BOOT.format(path=sys.path)]
            self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self._asked = False

    @contextmanager
    def solving(
        self, name: str, problem: EpochProblem, limits: Limits, guess: EpochSolution | None
    ) -> Iterator[Callable[[float], EngineResult]]:
        """Send a problem; the block gets a function that waits for the answer until a deadline (`time.monotonic`).

        The caller may do other work before it asks. One problem at a time: others wait for the end of the block.
        """
        with self._lock:
            self.warm()
            child, self._asked = self._child, True
            if child is None or child.stdin is None or child.stdout is None:
                raise RuntimeError("a warm child has both pipes")
            request = pickle.dumps((name, problem, limits, guess, time.monotonic()), protocol=pickle.HIGHEST_PROTOCOL)
            talk = _Conversation(child.stdin, child.stdout, request)
            talk.start()
            try:
                yield lambda deadline: self._wait(name, child, talk, deadline)
            finally:
                if talk.end is None:
                    self.kill()

    def _wait(self, name: str, child: subprocess.Popen[bytes], talk: _Conversation, deadline: float) -> EngineResult:
        talk.join(min(max(0.0, deadline - time.monotonic()), threading.TIMEOUT_MAX))
        known = talk.known  # what arrives from here on comes too late
        if talk.end is not None:
            talk.join()
            return completed(talk.end, known)
        note = talk.fault or self._diagnose(child, talk.is_alive())
        if known is not None:
            note = note.removesuffix(" without an answer") + "; what it had told by then counts"
        self.kill()
        logger.warning("%s: %s", name, note)
        return completed(EngineResult(name, Status.UNKNOWN, None, None, None, note=note), known)

    def _diagnose(self, child: subprocess.Popen[bytes], still_running: bool) -> str:
        if still_running and child.poll() is None:
            return "killed at the deadline without an answer"
        child.wait()
        return f"the solver process ended with status {child.returncode}"

    def close(self) -> None:
        """Let the child end by itself, and kill it if it does not, or if it was never asked."""
        if self._child is None:
            return
        if not self._asked:
            self.kill()
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


class _Conversation(threading.Thread):
    """Sends a request and hears what the child has to say, to the end or to the first word that cannot be understood.

    Attributes
    ----------
    known
        The answer and the bound that were told last.
    end
        The result, once there is one.
    fault
        Why nobody listens any more.
    """

    def __init__(self, requests: IO[bytes], answers: IO[bytes], request: bytes) -> None:
        super().__init__(daemon=True)
        self._requests, self._answers, self._request = requests, answers, request
        self.known: EngineResult | None = None
        self.end: EngineResult | None = None
        self.fault = ""

    def run(self) -> None:
        """Until the end, or until the child is gone; the caller reports its exit status."""
        try:
            write_message(self._requests, self._request)
            while self.end is None and not self.fault and (message := read_message(self._answers)) is not None:
                self._hear(message)
        except (OSError, ValueError) as error:
            logger.debug("the solver process is gone: %s", error)

    def _hear(self, message: bytes) -> None:
        try:
            ended, result = pickle.loads(message)
            if not isinstance(result, EngineResult):
                raise TypeError(f"it is a {type(result).__name__}")
        except Exception as error:  # whatever nonsense raises that is read as an object
            self.fault = f"its answer cannot be read ({type(error).__name__}: {error})"
            return
        if ended:
            self.end = result
        else:
            self.known = added(self.known, result)


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
