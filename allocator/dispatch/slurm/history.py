"""What Slurm's accounts know of runs before the dispatcher: `sacct -P` as usage records.

    SLURM_TIME_FORMAT=%s sacct -a -D -X -P -S now-14days -o jobid,account,user,qos,start,end,state,alloctres

With -D a job that was requeued has a row for each of its runs. Times may also be local ones, as sacct prints them by itself.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from allocator.dispatch.config import DEFAULT_QOS
from allocator.dispatch.memory import UsageRow
from allocator.dispatch.requests import allocation_of
from allocator.dispatch.scope import UNTYPED
from allocator.dispatch.slurm import values
from allocator.domain import Issue, SnapshotError, UsageRecord

COLUMNS = ("JobID", "Account", "User", "Start", "End", "State", "AllocTRES")
_ASK = "sacct -a -D -X -P -o jobid,account,user,qos,start,end,state,alloctres"
_TYPED = re.compile(r"gres/gpu:([^=,]+)=([^,]*)")

MOST_GPUS, LATEST, LONGEST = 1_000_000, 2**34, 10 * 366 * 86_400
"""No run has more GPUs, ends later or lasts longer; the log is damaged where one seems to."""


@dataclass(slots=True)
class History:
    """The runs of a log, and why other rows are none: how many, and the first line."""

    rows: list[UsageRow] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    first: dict[str, int] = field(default_factory=dict)

    def skip(self, reason: str, line: int) -> None:
        """One more row that is no run."""
        self.skipped[reason] += 1
        self.first.setdefault(reason, line)


class _NoRunError(Exception):
    """Why a row is no run with GPUs that has ended."""


def read_history(text: str, leaves: Collection[str], qos: Mapping[str, Mapping[str, Any]], pool: str = UNTYPED) -> History:
    """Read what `sacct -P` printed.

    Parameters
    ----------
    text
        With its header line.
    leaves
        Ids of budgets that work can belong to; empty: every user of an account is one.
    qos
        Defaults by QOS, as in the configuration: where `min_runtime` is 0, time is free of charge.
    pool
        The pool of GPUs whose type was not accounted for.

    Raises
    ------
    SnapshotError
        Where columns are missing.
    """
    lines = text.splitlines()
    header = [name.strip().lower() for name in lines[0].split("|")] if lines else []
    if missing := [name for name in COLUMNS if name.lower() not in header]:
        problem = f"the columns {', '.join(missing)} are missing"
        raise SnapshotError([Issue(path="line 1", problem=problem, remedy=f"give what this prints, with its header: {_ASK}")])
    found = History()
    for number, cells in enumerate(csv.reader(lines[1:], delimiter="|", quoting=csv.QUOTE_NONE), start=2):
        record = dict(zip(header, (cell.strip() for cell in cells), strict=False))
        try:
            found.rows += _rows(record, leaves, qos, pool)
        except KeyError:
            found.skip("the row has too few cells", number)
        except ValueError:
            found.skip("a time or a number cannot be read", number)
        except _NoRunError as reason:
            found.skip(str(reason), number)
    return found


def _rows(
    record: Mapping[str, str], leaves: Collection[str], qos: Mapping[str, Mapping[str, Any]], pool: str
) -> Iterator[UsageRow]:
    """One record for each type of GPU that a run had."""
    job = record["jobid"]
    gpus = _gpus(record["alloctres"], pool)
    if "." in job:
        raise _NoRunError("it is a step of a job")
    if not gpus:
        raise _NoRunError("it had no GPU")
    if not record["account"]:
        raise _NoRunError("it has no account")
    start, end = values.instant(record["start"]), values.instant(record["end"])
    if start is None or end is None:
        raise _NoRunError(f"it has not {'begun' if start is None else 'ended'}")
    if end <= start:
        raise _NoRunError("it took no time")
    if max(gpus.values()) > MOST_GPUS or end > LATEST or end - start > LONGEST:
        raise _NoRunError("its numbers are larger than any cluster's")
    wishes = {**qos.get(DEFAULT_QOS, {}), **qos.get(record.get("qos", ""), {})}
    user = record["user"]
    for kind, number in gpus.items():
        usage = UsageRecord(
            id=f"{job}@{start}-{end}" + (f"/{kind}" if len(gpus) > 1 else ""),
            allocation=allocation_of(record["account"], user, leaves or {f"{record['account']}/{user}"}),
            pool=kind,
            gpus=number,
            start=start,
            end=end,
            charged=wishes.get("min_runtime") != 0,
        )
        yield UsageRow(record=usage, job=job, user=user)


def _gpus(tres: str, pool: str) -> dict[str, int]:
    """GPUs by type; those of no type in the given pool. Raises `ValueError` for what is no number of GPUs."""
    typed = {kind: _number(count) for kind, count in _TYPED.findall(tres)}
    total = _number(str(values.tres(tres, "gres/gpu") or 0))
    return {kind: count for kind, count in typed.items() if count} or ({pool: total} if total else {})


def _number(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"{text!r} is no number of GPUs")
    return int(text)
