"""Programs that tests need and PyPI does not have: installed from the distribution's packages where that can be done."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

LOCK = Path(tempfile.gettempdir()) / "gpu-epoch-allocator-packages.lock"


def install(packages: Sequence[str], programs: Sequence[str], what: str) -> str | None:
    """Install packages unless the programs are there; what to say where that fails. Several test processes take turns.

    `what` is what cannot be installed without root, in words.
    """
    if not missing(programs):
        return None
    if os.geteuid() != 0:
        return f"{what} needs root to be installed"
    if shutil.which("apt-get") is None:
        return f"no apt-get to install {' '.join(packages)}"
    with only_one(LOCK):
        problem = _apt_get(packages) if missing(programs) else None
    if problem:
        return problem
    return f"still missing: {', '.join(missing(programs))}" if missing(programs) else None


def missing(programs: Sequence[str]) -> list[str]:
    """Programs that are not installed."""
    return [name for name in programs if shutil.which(name) is None]


@contextlib.contextmanager
def only_one(lock: Path) -> Iterator[None]:
    """Only one process of this host at a time."""
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _apt_get(packages: Sequence[str]) -> str | None:
    """Update what is known of packages and install some; what to say where that fails."""
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "update", "-qq"],
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages],
    ):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)
        if done.returncode and command[1] == "install":
            return f"the packages {' '.join(packages)} cannot be had: {done.stderr.strip()[-300:]}"
    return None
