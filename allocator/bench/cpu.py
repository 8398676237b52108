"""CPU time of this process and its children: what a call costs, whoever else uses the machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


def cpu_seconds() -> float:
    """CPU seconds of this process, of its live children, and of the children that have ended.

    Live children are seen on Linux only. Elsewhere the solver process counts once it has ended, so that on such a machine
    the CPU time of exact engines is too low.
    """
    own = os.times()
    return own.user + own.system + own.children_user + own.children_system + sum(map(_of_child, _children()))


def _children() -> Iterator[int]:
    """Process ids of the live children, whichever thread started them."""
    for listed in Path("/proc/self/task").glob("*/children"):
        try:
            yield from map(int, listed.read_text().split())
        except OSError:
            continue  # a thread that has just ended


def _of_child(pid: int) -> float:
    try:
        # The name of the command may hold spaces and brackets: fields are counted from behind it.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0  # a child that has just ended
    return sum(map(int, fields[11:15])) / _TICKS
