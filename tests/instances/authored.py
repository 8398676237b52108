"""What an authored instance is, and the words that all of them are written in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from allocator.bench.documents import ExpectDoc, ReservedDoc
from allocator.domain import Decision, Node, Run, Snapshot, UsageRecord, Workload
from tests.builders import HOUR, NOW, job, node

MINUTE = 60
DAY = 24 * HOUR
FLAT = ("cluster", "node")
"""Levels of a cluster without racks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Authored:
    """A folder below `instances/`: a snapshot, what is said of it, and for rules the twins.

    `optimum` is the value in GPU-seconds that was derived by hand, None where it is left to the engines. `refused` breaks the
    rule `rule` and no other but those in `also_broken`.
    """

    name: str
    title: str
    special: str
    snapshot: Snapshot
    expect: ExpectDoc | None = None
    optimum: float | None = None
    rule: str | None = None
    accepted: Decision | None = None
    refused: Decision | None = None
    instead: str | None = None
    also_broken: Sequence[str] = field(default_factory=tuple)


def flat(count: int, **fields: Any) -> list[Node]:
    """Nodes n1, n2, ... without racks."""
    return [node(f"n{number}", domains=("c",), **fields) for number in range(1, count + 1)]


def racks(names: str, each: int, **fields: Any) -> list[Node]:
    """Nodes a1, a2, ... in a rack for each letter."""
    return [node(f"{rack}{number}", rack, **fields) for rack in names for number in range(1, each + 1)]


def ran(
    work: Workload, placement: str | dict[str, int], *, hours: float = 10, left: float = 0, charged: bool = True
) -> Workload:
    """The workload, running for some hours, with a promise of some hours more (0: its promise has been kept)."""
    since = NOW - round(hours * HOUR)
    until = NOW + round(left * HOUR) if left else min(NOW, since + work.min_runtime)
    run = Run(
        placement={placement: work.tasks} if isinstance(placement, str) else placement,
        charged=charged,
        start_time=since,
        charged_since=since if charged else None,
        granted_at=since if charged else None,
        protected_until=until if charged else None,
    )
    return replace(work, run=run, submit_time=min(work.submit_time, since))


def ones(letter: str, allocation: str, count: int, **fields: Any) -> list[Workload]:
    """One-GPU jobs, submitted ten seconds apart."""
    return [
        job(f"{letter}-{number:02d}", allocation, 1, submit_time=NOW - 1000 + 10 * number, **fields) for number in range(count)
    ]


def record(name: str | None, allocation: str, gpus: int, start: int, end: int, *, charged: bool = True) -> UsageRecord:
    """GPU time from `start` to `end` seconds ago (negative: to come)."""
    return UsageRecord(
        id=name, allocation=allocation, pool="h100", gpus=gpus, start=NOW - start, end=NOW - end, charged=charged
    )


def expect(
    starts: Iterable[str] | None = None,
    stops: Iterable[str] | None = None,
    promotions: Iterable[str] | None = None,
    *,
    renewals: Iterable[str] | None = None,
    placed: Mapping[str, str] | None = None,
    **waits: str,
) -> ExpectDoc:
    """What every right answer does; `placed` names the nodes of a start, with blanks between; `waits` by workload, _ for -."""
    return ExpectDoc(
        starts=None if starts is None else sorted(starts),
        stops=None if stops is None else sorted(stops),
        promotions=None if promotions is None else sorted(promotions),
        renewals=None if renewals is None else sorted(renewals),
        placed={name: sorted(where.split()) for name, where in (placed or {}).items()},
        waits={name.replace("_", "-"): reason for name, reason in waits.items()},
    )


def quiet(**waits: str) -> ExpectDoc:
    """Nothing moves."""
    return expect((), (), (), renewals=None, placed=None, **waits)


def held(workload: str, count: int, seconds: int, *domain: str, expected: ExpectDoc | None = None) -> ExpectDoc:
    """So many nodes of a domain are reserved for a workload from so many seconds on; nothing else is asked unless given."""
    found = expected or expect()
    found.reserved = {workload: ReservedDoc(domain=list(domain), nodes=count, start=NOW + seconds)}
    return found
