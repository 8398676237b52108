"""The folder of a scenario: that it is one, that one run at a time writes to it, and which cells in it are damaged."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from allocator.whatif.cells import CELLS, TRACES, cell_folder, made_from
from allocator.whatif.errors import WhatIfError
from allocator.whatif.results import WHATIF

LOCK = "whatif.lock"
"""Locked while a run writes to the folder, and says which one; empty when none does. The lock ends with its process, so that
none is left behind by a run that was killed."""

_OWN = (WHATIF, LOCK, TRACES, CELLS)
"""A folder that has none of these is not of a scenario."""


def refuse_foreign(folder: Path) -> None:
    """Refuse a folder that holds something else than a scenario.

    Raises
    ------
    WhatIfError
        If it does, or is not one that this user may read.
    """
    try:
        found = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    except OSError as error:
        raise WhatIfError(f"{folder} cannot be read ({error.strerror}): give a folder of this user") from error
    if found and not set(found) & set(_OWN):
        named = ", ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")
        raise WhatIfError(f"{folder} is no folder of a what-if, for it holds {named}: give a new folder, or an empty one")


@contextmanager
def only_run(folder: Path) -> Iterator[None]:
    """Make the folder, and keep other runs out of it.

    Raises
    ------
    WhatIfError
        If another run is writing to it, or it cannot be written or locked.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / LOCK).open("a+", encoding="utf-8")
    except OSError as error:
        raise WhatIfError(f"{folder} cannot be written ({error.strerror}): give a folder of this user") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.seek(0)
            other = lock.read().strip() or "an unknown process"
            remedy = "wait until it ends, end that process, or give another folder"
            raise WhatIfError(f"{folder} is being written by another run ({other}): {remedy}") from error
        except OSError as error:
            remedy = "give a folder on a file system with locks, or mount it with them"
            raise WhatIfError(f"{folder} cannot be locked ({error.strerror}): {remedy}") from error
        lock.truncate(0)
        lock.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        lock.flush()
        try:
            yield
        finally:
            lock.truncate(0)


def tidy(folder: Path, keys: Sequence[str]) -> list[str]:
    """Make room for cells: clear away what a run that was killed has left, and name the cells that cannot be kept.

    Parameters
    ----------
    keys
        Of the cells that are going to be played.

    Returns
    -------
    A sentence for each cell whose digest cannot be read. It is played anew, over the damaged one.
    """
    (folder / CELLS).mkdir(exist_ok=True)
    for part in (folder / CELLS).glob(".*.part"):
        shutil.rmtree(part)
    damaged: list[str] = []
    for key in keys:
        try:
            made_from(cell_folder(folder, key))
        except WhatIfError as error:
            damaged.append(f"{error}; the cell is played anew")
    return damaged
