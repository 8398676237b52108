"""Which nodes and jobs the allocator is in charge of, and which pools a job can run in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from allocator.dispatch.facts import JobFact, JobState, View
from allocator.domain import Issue, SnapshotError

UNTYPED = "gpu"
"""The pool of GPUs whose type is not named."""


Requests = Mapping[str, Mapping[str, Any]]
"""By job, the fields of its workload that it asks for itself."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The part of a view that was handed over: pool by node, and the jobs that have not ended."""

    pools: Mapping[str, str]
    jobs: Mapping[str, JobFact]
    accepted: Mapping[str, tuple[str, ...]]


def scope_of(view: View, pools: frozenset[str]) -> Scope:
    """What of the view is in the given pools; none given: everything with GPUs.

    A running job belongs to the allocator if all its nodes do; a waiting one if it can only start in pools that were handed
    over. Pools are GPU types; separate fabrics are pools of their own.

    Raises
    ------
    SnapshotError
        Where none of the given pools has a node.
    """
    every = pools_of(view)
    if pools and pools.isdisjoint(every.values()):
        raise SnapshotError([_no_pool(pools, sorted(set(every.values())))])
    targets_of = cache(lambda partition, kind: _targets(view, every, partition, kind))  # jobs are many, their kinds are few
    mine = {name: pool for name, pool in every.items() if not pools or pool in pools}
    jobs: dict[str, JobFact] = {}
    accepted: dict[str, tuple[str, ...]] = {}
    for job in view.jobs.values():
        if job.state is JobState.ENDED or job.gpus <= 0 or job.problem is not None:
            continue
        targets = targets_of(job.partition, job.gpu_type)
        held = job.nodes if job.state is not JobState.WAITING else ()
        inside = all(name in mine for name in held) if held else targets <= set(mine.values())
        if inside:
            jobs[job.id] = job
            accepted[job.id] = tuple(sorted(targets))
    return Scope(mine, jobs, accepted)


def _no_pool(given: Iterable[str], known: Sequence[str]) -> Issue:
    remedy = f"give some of {', '.join(known)}" if known else "the scheduler shows no node with GPUs: see its configuration"
    return Issue(path="pools", problem=f"no node is in {', '.join(sorted(given))}", remedy=remedy)


def pools_of(view: View) -> dict[str, str]:
    """The pool of each node that has GPUs."""
    roots = {path[0] for path in view.fabric.domains.values() if path}
    found = {}
    for node in view.nodes.values():
        if node.gpus > 0:
            pool = node.gpu_type or UNTYPED
            path = view.fabric.domains.get(node.name)
            found[node.name] = f"{pool}-{path[0]}" if path and len(roots) > 1 else pool
    return found


def _targets(view: View, pools: Mapping[str, str], partition: str, kind: str | None) -> set[str]:
    """Pools with nodes of the partitions that have GPUs of the type; the type alone where there is none."""
    partitions = set(partition.split(","))
    found = {
        pool
        for name, pool in pools.items()
        if partitions & set(view.nodes[name].partitions) and kind in (None, view.nodes[name].gpu_type)
    }
    return found or {kind or UNTYPED}
