"""Values as Slurm writes them: numbers in three forms, states in two, TRES and GRES, sizes, spans and times.

From 21.08 to 22.05 numbers are plain; later ones are `{"set": bool, "infinite": bool, "number": n}`. States are one word or a
list of them. GRES are `gres:gpu:h100:8` or `gres/gpu:h100:8`, with or without the type.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from allocator.generate.hostlist import expand_hosts

_GPU = re.compile(r"(?:gres[:/])?gpu(?::(?P<type>[A-Za-z][\w.-]*))?(?:[:=](?P<count>\d+))?(?:\(.*\))?")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)")
_UNITS = {"": 0, "K": -1, "M": 0, "G": 1, "T": 2, "P": 3}
_SPAN = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")
_NOTHING = frozenset({"", "(null)", "N/A", "None", "Unknown", "NONE", "UNLIMITED"})


def number(value: Any) -> int | None:
    """A number in any of its forms; None where it is not set or infinite."""
    if isinstance(value, Mapping):
        return int(value.get("number", 0)) if value.get("set") and not value.get("infinite") else None
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, str):
        return int(value) if value.lstrip("-").isdigit() else None
    return int(value)


def instant(value: Any) -> int | None:
    """Seconds since the Unix epoch, from a number or a local time; 0 means none."""
    if isinstance(value, str) and not value.isdigit():
        return None if value in _NOTHING else int(datetime.fromisoformat(value).timestamp())
    return number(value) or None


def minutes(value: Any) -> int | None:
    """Seconds of a span that is given in minutes, or as days-hours:minutes:seconds; None where there is none."""
    if isinstance(value, str) and not value.isdigit():
        return _clock(value)
    found = number(value)
    return found * 60 if found else None


def _clock(text: str) -> int | None:
    found = _SPAN.fullmatch(text)
    if text in _NOTHING or found is None:
        return None
    days, *parts = (None if part is None else int(part) for part in found.groups())
    given = [part for part in parts if part is not None]
    # days-hours[:minutes[:seconds]], or minutes, minutes:seconds, hours:minutes:seconds
    scale = (3600, 60, 1) if days is not None else {1: (60,), 2: (60, 1), 3: (3600, 60, 1)}[len(given)]
    return (days or 0) * 86_400 + sum(part * unit for part, unit in zip(given, scale, strict=False)) or None


def words(value: Any) -> frozenset[str]:
    """States and flags in upper case: one word, words joined by +, or a list."""
    if value is None:
        return frozenset()
    parts: Sequence[str] = value if isinstance(value, list) else str(value).replace("+", " ").replace(",", " ").split()
    return frozenset(part.rstrip("*~#%$@^!-").upper() for part in parts if part)


def text(value: Any) -> str:
    """A text; what stands for nothing is empty."""
    return "" if value is None or str(value) in _NOTHING else str(value)


def hosts(value: Any) -> tuple[str, ...]:
    """Sorted node names of a host list."""
    return tuple(sorted(set(expand_hosts(text(value)))))


def gpus(value: Any) -> tuple[int, str | None]:
    """GPUs in a list of GRES or TRES, and their type where one is named.

    A plain entry beside a typed one (`gres/gpu=8,gres/gpu:h100=8`) says the same thing twice.
    """
    typed, plain, kind = 0, 0, None
    for item in re.split(r",(?![^(]*\))", text(value)):
        found = _GPU.fullmatch(item.strip())
        if found is None:
            continue
        count = int(found["count"] or 1)
        if found["type"]:
            typed, kind = typed + count, kind or found["type"]
        else:
            plain += count
    return typed or plain, kind


def tres(value: Any, name: str) -> str | None:
    """One entry of a TRES list such as cpu=64,mem=64G,node=2."""
    for item in text(value).split(","):
        key, _, amount = item.partition("=")
        if key == name:
            return amount
    return None


def mebibytes(value: Any) -> int:
    """A size such as 62.50G in MiB, rounded up; a plain number is MiB."""
    found = _SIZE.fullmatch(str(value)) if value is not None else None
    if found is None:
        return 0
    scaled = float(found[1]) * 1024.0 ** _UNITS[found[2]]
    return -int(-scaled // 1)
