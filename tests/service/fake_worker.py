"""A worker that does what the engine of a call says: hang, crash, run out of memory, or answer.

It imports nothing of the allocator, so that it is up at once.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

import msgspec

BOOT = "import sys; sys.path[:] = {path!r}; from tests.service.fake_worker import main; main({memory}, {level}, {folder!r})"
"""Takes the place of the boot text of the pool."""


def main(memory: int, level: int, folder: str | None) -> None:
    """Like the main function of the true worker. If `folder` holds a file `broken`, the start fails, and the file goes."""
    broken = Path(folder or "/nowhere") / "broken"
    if broken.exists():
        broken.unlink()
        sys.exit(3)
    # as the solver: in the same process group, with pipes of its own
    child = subprocess.Popen(["sleep", "1000"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    _write(b"ready")
    while (call := _read(sys.stdin.buffer)) is not None:
        if call["engine"] in ("hang", "milp"):
            time.sleep(1000)
        if call["engine"] == "crash":
            sys.exit(7)
        facts = {"seconds": 0.0, "pid": os.getpid(), "child": child.pid, "left": call["seconds"]}
        last = call["engine"] == "memory"
        _write(msgspec.msgpack.encode({"status": 200, "body": b"{}", "headers": {}, "facts": facts, "last": last}))
        if last:
            return


def _read(stream: IO[bytes]) -> Any:
    header = stream.read(8)
    return msgspec.msgpack.decode(stream.read(*struct.unpack("<Q", header))) if header else None


def _write(message: bytes) -> None:
    sys.stdout.buffer.write(struct.pack("<Q", len(message)) + message)
    sys.stdout.buffer.flush()
