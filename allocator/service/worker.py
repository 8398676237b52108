"""A worker process: reads calls from standard input, writes replies to standard output, until the pipe closes.

It leads a process group of its own, to which its solver belongs too, so that both end with one signal.
"""

from __future__ import annotations

import fcntl
import logging
import os
import resource
import sys
from functools import partial
from pathlib import Path

import msgspec

from allocator.models.process import shared_process
from allocator.models.worker import read_message, write_message
from allocator.record import Recorder
from allocator.service.calls import Call, Epoch, reply_to
from allocator.service.logs import log_as_json

logger = logging.getLogger(__name__)

HELLO = b"ready"

_CALLS = msgspec.msgpack.Decoder(Call)
_ENCODER = msgspec.msgpack.Encoder()


def main(memory: int, level: int, folder: str | None) -> None:
    """Answer one call after another. What solvers print goes to standard error, never into an answer.

    Parameters
    ----------
    memory
        Most bytes of data; 0 is no limit.
    level
        Least level of what is logged.
    folder
        Where epochs are recorded; None is nowhere.
    """
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    log_as_json(level)
    _confine(memory)
    import allocator.engine
    import allocator.explain
    import allocator.transition
    import allocator.verify  # noqa: F401  (a call is not to wait for imports)

    keep = None if folder is None else partial(_keep, Recorder(Path(folder)))
    shared_process().warm()
    write_message(answers, HELLO)
    while (message := read_message(sys.stdin.buffer)) is not None:
        reply = reply_to(_CALLS.decode(message), keep)
        write_message(answers, _ENCODER.encode(reply))
        if reply.last:
            return


def _keep(recorder: Recorder, epoch: Epoch) -> None:
    """Record an epoch; one worker at a time, because all of them share the folder and make room in it."""
    try:
        recorder.folder.mkdir(parents=True, exist_ok=True)
        with (recorder.folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            recorder.record_bytes(epoch.now, epoch.digest, epoch.snapshot, epoch.decision)
    except OSError as error:
        logger.error("the epoch of %d is not recorded: %s", epoch.now, error)


def _confine(memory: int) -> None:
    """Bound the memory and leave no core files. Holds for the solver too."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory:
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    logger.debug("a worker is confined to %d bytes", memory)
