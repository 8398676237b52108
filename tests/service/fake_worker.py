"""A worker that does what the engine of a call says: hang, crash, run out of memory, or answer. Quick to start."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from allocator.models.worker import read_message, write_message
from allocator.service.calls import Call, Reply

BOOT = "import sys; sys.path[:] = {path!r}; from tests.service.fake_worker import main; main({memory}, {level}, {folder!r})"
"""Takes the place of the boot text of the pool."""


def main(memory: int, level: int, folder: str | None) -> None:
    """Like the main function of the true worker. If `folder` holds a file `broken`, the start fails, and the file goes."""
    broken = Path(folder or "/nowhere") / "broken"
    if broken.exists():
        broken.unlink()
        sys.exit(3)
    child = subprocess.Popen(
        ["sleep", "1000"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )  # as the solver: in the same process group
    answers = os.fdopen(os.dup(1), "wb")
    write_message(answers, b"ready")
    while (message := read_message(sys.stdin.buffer)) is not None:
        call = msgspec.msgpack.decode(message, type=Call)
        if call.engine == "hang":
            time.sleep(1000)
        if call.engine == "crash":
            sys.exit(7)
        facts = {"seconds": 0.0, "pid": os.getpid(), "child": child.pid, "left": call.seconds}
        reply = Reply(status=200, body=b"", headers={}, facts=facts, last=call.engine == "memory")
        write_message(answers, msgspec.msgpack.encode(reply))
        if reply.last:
            return
