"""What every job log is read into: rows with all that a trace needs, and a count of what could not be used and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from allocator.generate.classes import ABLATION, EXPERIMENT, FLAGSHIP, POST_TRAINING, JobClass, time_limit
from allocator.generate.demand import split_tasks
from allocator.generate.fleet import Architecture

GPUS_PER_NODE = 8

GOLDEN = 0.618_033_988_749_895
"""Multiples of it modulo 1 are spread evenly: a draw without a seed."""


class UnusableError(Exception):
    """A row that cannot be used. The text is the reason under which it is counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What a job declares to the allocator. Spans are seconds."""

    job_class: str
    min_runtime: int
    resumable: bool
    checkpoint_interval: int | None
    checkpoint_cost: int
    restart_time: int
    preferred: str | None
    priority: int = 0
    checkpoint_on_notice: bool = False
    pools: tuple[str, ...] = ()
    max_runtime: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRow:
    """One job of a log.

    Attributes
    ----------
    key
        Its id, unique in the log.
    tenant
        Path in the budget tree below the root; `user` may be one level more (see `Source.researchers`).
    submit
        Seconds since the epoch.
    work
        Seconds that it ran.
    fails
        It died by itself or was cancelled by its owner at the end of its work.
    after
        The job that has to end first.
    """

    key: str
    tenant: str
    submit: int
    work: int
    tasks: int
    gpus_per_task: int
    declared: Declared
    user: str | None = None
    fails: bool = False
    after: str | None = None

    @property
    def gpus(self) -> int:
        """GPUs of the whole gang."""
        return self.tasks * self.gpus_per_task


@dataclass(slots=True)
class Source:
    """A log that has been read: its usable rows by submission, and why others are not used.

    Attributes
    ----------
    origin
        Where day 0 of the log begins, seconds since the epoch.
    sizes
        The nodes that it is replayed on.
    shares
        Shares by path in the budget tree, where they are known; empty: by the tenants' part of the GPU time.
    researchers
        Users are leaves of the budget tree, below their tenant.
    unusable
        Reason -> how many rows, and the line of the first.
    """

    title: str
    sizes: Sequence[tuple[Architecture, int]]
    origin: int = 0
    shares: Mapping[str, Fraction] = field(default_factory=dict)
    researchers: bool = False
    rows: list[SourceRow] = field(default_factory=list)
    num_read: int = 0
    unusable: dict[str, tuple[int, int]] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)

    def take(self, row: SourceRow) -> None:
        """Add a row.

        Raises
        ------
        UnusableError
            If no cluster of this size can run it.
        """
        if row.key in self.keys:
            raise UnusableError("the job is given twice")
        if row.work < 1:
            raise UnusableError("the job has no run time")
        pools = {one.pool: num_nodes for one, num_nodes in self.sizes}
        accepted = [pools[pool] for pool in row.declared.pools or pools if pool in pools]
        if row.gpus > max(accepted, default=0) * GPUS_PER_NODE:
            raise UnusableError(f"the job asks for more than {self.largest(row.declared.pools)}")
        if not any(row.tasks <= num_nodes * (GPUS_PER_NODE // row.gpus_per_task) for num_nodes in accepted):
            raise UnusableError("the job's tasks do not pack on 8-GPU nodes")
        self.keys.add(row.key)
        self.rows.append(row)

    def skip(self, reason: str, line: int) -> None:
        """Count a row that cannot be used."""
        count, first = self.unusable.get(reason, (0, line))
        self.unusable[reason] = (count + 1, first)

    def largest(self, accepted: Sequence[str]) -> str:
        """The most GPUs that work may have, in words."""
        parts = {one.pool: num_nodes * GPUS_PER_NODE for one, num_nodes in self.sizes}
        if len(parts) == 1:
            return f"the cluster's {next(iter(parts.values()))} GPUs"
        return "its pool has: " + ", ".join(f"{pool} {parts.get(pool, 0)} GPUs" for pool in accepted or parts)

    def notes(self) -> list[str]:
        """What was read and what was not used, for people."""
        skipped = sum(count for count, _ in self.unusable.values())
        lines = [f"{self.title} trace: {self.num_read} rows, {skipped} of them cannot be used"]
        lines += [
            f"{count} rows not used: {reason} (first in line {first})" for reason, (count, first) in self.unusable.items()
        ]
        return lines


def class_by_size(gpus: int) -> JobClass:
    """The class whose declarations a job gets of which only the size is known."""
    for limit, job_class in ((8, EXPERIMENT), (64, POST_TRAINING), (255, ABLATION)):
        if gpus <= limit:
            return job_class
    return FLAGSHIP


def usual(job_class: JobClass, number: int, work: int, *, tasks: int, limit: int | None = None) -> Declared:
    """What work of a class usually declares. Everything has one priority: what logs call so orders whole clusters.

    Parameters
    ----------
    number
        Place among the usable rows of the log: decides, spread evenly, which of a class are resumable.
    work
        Recorded run time; the declared limit is twice that, rounded up to the menu, and none for what is longer than the
        menu.
    limit
        The limit that the log states, if it does.
    """
    resumable = number * GOLDEN % 1.0 < job_class.resumable
    if limit is None:
        limit = time_limit(work, 2.0)
    return Declared(
        job_class=job_class.name,
        min_runtime=job_class.min_runtime,
        resumable=resumable,
        checkpoint_interval=job_class.checkpoint_interval if resumable else None,
        checkpoint_cost=job_class.checkpoint_cost if resumable else 0,
        restart_time=job_class.restart_time,
        preferred=job_class.preferred if tasks > 1 else None,
        max_runtime=limit if work < limit else None,
    )


def split(gpus: int, num_nodes: int | None = None) -> tuple[int, int]:
    """Tasks and GPUs per task: over the stated nodes where that is even and fits, as few whole nodes as possible otherwise."""
    if num_nodes and gpus % num_nodes == 0 and gpus // num_nodes <= GPUS_PER_NODE:
        return num_nodes, gpus // num_nodes
    return split_tasks(gpus, GPUS_PER_NODE)
