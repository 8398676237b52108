"""The dispatcher's TOML file: pools, policy, defaults per QOS, budgets, maintenance.

    pools = ["h100"]                 # handed over to the allocator; absent: all
    budgets = "budgets.json"         # the list `budgets` of a snapshot; absent: Slurm's association tree

    [policy]                         # as in a snapshot
    protection_cap = 28800

    [qos.default]                    # for every job
    min_runtime = "1h"               # where the job gives no --time-min
    [qos.scavenger]
    min_runtime = 0

    [feedback]                       # absent: owners are told nothing
    interval = 60                    # seconds between two messages at one job

    [[maintenance]]
    nodes = "n[05-08]"
    start = 2026-12-01T06:00:00Z     # promises on these nodes end by then, and they are drained
    end = 2026-12-01T10:00:00Z       # what the dispatcher drained is taken back into service
    reason = "firmware"

Every field may be left out.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Struct

from allocator.domain import Allocation, Issue, SnapshotError
from allocator.generate.hostlist import expand_hosts
from allocator.generate.instant import parse_span
from allocator.wire.snapshot_doc import AllocationDoc, PolicyDoc, TopologyDoc

DEFAULT_QOS = "default"


class Wishes(Struct, forbid_unknown_fields=True, omit_defaults=True, rename={"job_class": "class"}):
    """What a job asks for beyond what its scheduler knows: from its comment, over its QOS, over the default QOS.

    Every field is the one of that name in a snapshot. Spans may be written as in "2h".
    """

    min_runtime: int | str | None = None
    checkpoint_interval: int | str | None = None
    checkpoint_on_notice: bool | None = None
    restart_time: int | str | None = None
    unfunded: str | None = None
    renew: bool | None = None
    job_class: str | None = None
    topology: TopologyDoc | None = None


class QosDefaults(Wishes):
    """Defaults of a QOS; an operator may also set the order inside an allocation."""

    priority: int | None = None


SPANS = ("min_runtime", "checkpoint_interval", "restart_time")


class _MaintenanceDoc(Struct, forbid_unknown_fields=True):
    nodes: str
    start: datetime
    end: datetime
    reason: str = "maintenance"


class Feedback(Struct, frozen=True, forbid_unknown_fields=True):
    """How much the owners of jobs are told: seconds between two messages at one job, and most messages of an epoch."""

    interval: Annotated[int, msgspec.Meta(ge=1)] = 60
    most: Annotated[int, msgspec.Meta(ge=1)] = 100


class _ConfigDoc(Struct, forbid_unknown_fields=True):
    pools: list[str] = []
    budgets: str | None = None
    policy: PolicyDoc = msgspec.field(default_factory=PolicyDoc)
    qos: dict[str, QosDefaults] = {}
    feedback: Feedback | None = None
    maintenance: list[_MaintenanceDoc] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintenance:
    """Nodes that have to be empty from `start` to `end`, in seconds since the epoch."""

    nodes: tuple[str, ...]
    start: int
    end: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What an operator has set. `pools` empty: all. `budgets` None: the scheduler's own accounts. `feedback` None: none."""

    pools: frozenset[str] = frozenset()
    budgets: tuple[AllocationDoc, ...] | None = None
    policy: PolicyDoc = field(default_factory=PolicyDoc)
    qos: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    maintenance: tuple[Maintenance, ...] = ()
    feedback: Feedback | None = None


def load_config(path: Path) -> Config:
    """Read a file; the budgets it names are looked for beside it.

    Raises
    ------
    SnapshotError
        Where a file cannot be read, or says something that has no meaning.
    """
    with _reading(path, "docs/howto/slurm.md shows every field"):
        doc = msgspec.convert(tomllib.loads(path.read_text()), _ConfigDoc)
        return Config(
            pools=frozenset(doc.pools),
            budgets=None if doc.budgets is None else _load_budgets(path.parent / doc.budgets),
            policy=doc.policy,
            qos={name: plain_wishes(defaults) for name, defaults in doc.qos.items()},
            maintenance=tuple(_maintenance(item) for item in doc.maintenance),
            feedback=doc.feedback,
        )


def plain_wishes(wishes: Wishes) -> dict[str, Any]:
    """The fields that are given, with spans in seconds, named as in a snapshot."""
    found: dict[str, Any] = msgspec.to_builtins(wishes)
    for name in SPANS:
        if isinstance(found.get(name), str):
            found[name] = parse_span(found[name])
    return {name: value for name, value in found.items() if value is not None}


def budgets_of(allocations: tuple[Allocation, ...]) -> list[dict[str, Any]]:
    """Vertices as the snapshot's `budgets`."""
    return [
        {
            "id": vertex.id,
            "parent": vertex.parent,
            "share": float(vertex.share),
            "funds": vertex.funds,
            "gpu_limit": vertex.gpu_limit,
        }
        for vertex in allocations
    ]


def _load_budgets(path: Path) -> tuple[AllocationDoc, ...]:
    with _reading(path, "give the list `budgets` of a snapshot"):
        return tuple(msgspec.json.decode(path.read_bytes(), type=list[AllocationDoc]))


def _maintenance(doc: _MaintenanceDoc) -> Maintenance:
    start, end = (int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()) for at in (doc.start, doc.end))
    if end <= start:
        raise ValueError(f"maintenance of {doc.nodes} ends before it starts")
    return Maintenance(nodes=tuple(expand_hosts(doc.nodes)), start=start, end=end, reason=doc.reason)


@contextmanager
def _reading(path: Path, form: str) -> Iterator[None]:
    """What is wrong with a file is said of that file."""
    try:
        yield
    except SnapshotError as error:
        raise SnapshotError([replace(issue, path=f"{path}: {issue.path}") for issue in error.issues]) from error
    except OSError as error:
        problem, remedy = f"cannot be read ({error.strerror})", "give a file that exists and may be read"
        raise SnapshotError([Issue(path=str(path), problem=problem, remedy=remedy)]) from error
    except ValueError as error:  # also what msgspec and tomllib raise
        raise SnapshotError([Issue(path=str(path), problem=str(error), remedy=f"correct it; {form}")]) from error
