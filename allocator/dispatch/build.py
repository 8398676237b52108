"""The snapshot of an epoch from a view and what is remembered. A pure function.

It is built as the JSON document and read by the same reader as any other snapshot, so that every job is judged by the same
rules, and one that asks for nonsense is refused by name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from allocator.dispatch.config import Config, budgets_of
from allocator.dispatch.facts import JobFact, JobState, NodeCondition, NodeFact, View
from allocator.dispatch.memory import Held, JobMemory, Memory
from allocator.dispatch.observe import MOST_FAILED_RESUMES
from allocator.dispatch.scope import Requests, Scope
from allocator.domain import Snapshot
from allocator.wire import decode_snapshot
from allocator.wire.snapshot_doc import ReservationDoc, RunDoc, StopDoc, UsageDoc

LEAVING_SECONDS = 60
"""A job that is ending is expected to be gone within this time."""

_STATES = {NodeCondition.DRAIN: "drain", NodeCondition.DOWN: "down"}
"""A closed node on which something runs is a node of just these GPUs; one on which nothing does is as good as down."""


def budgets_for(view: View, config: Config) -> list[dict[str, Any]]:
    """The budget tree: from the file, from the scheduler's accounts, or equal shares for the accounts that have work."""
    if config.budgets is not None:
        return [msgspec.to_builtins(vertex) for vertex in config.budgets]
    if view.accounts:
        return budgets_of(view.accounts)
    accounts = sorted({job.account for job in view.jobs.values()})
    users = sorted({(job.account, job.user) for job in view.jobs.values()})
    tree: list[dict[str, Any]] = [{"id": account, "parent": None, "share": 1} for account in accounts if account]
    return tree + [
        {"id": f"{account}/{user}", "parent": account or None, "share": 1, "funds": False} for account, user in users
    ]


def leaves_of(budgets: Sequence[Mapping[str, Any]]) -> set[str]:
    """The ids that work can belong to."""
    return {row["id"] for row in budgets} - {row.get("parent") for row in budgets}


def build(view: View, memory: Memory, scope: Scope, requests: Requests, config: Config) -> Snapshot:
    """The snapshot at the instant of the view.

    Raises
    ------
    SnapshotError
        Where budgets or policy contradict themselves.
    """
    jobs = [scope.jobs[key] for key in sorted(scope.jobs)]
    workloads = [
        _workload(job, memory.jobs[job.id], requests[job.id], view.now) for job in jobs if _is_shown(job, memory, view.now)
    ]
    document = {
        "version": 1,
        "now": view.now,
        "cluster": {"levels": list(view.fabric.levels), "nodes": _nodes(view, scope, requests, config)},
        "budgets": budgets_for(view, config),
        "usage": msgspec.convert(memory.usage, list[UsageDoc], from_attributes=True),
        "workloads": workloads,
        "reservations": msgspec.convert(memory.reservations, list[ReservationDoc], from_attributes=True),
        "policy": config.policy,
    }
    return decode_snapshot(msgspec.json.encode(document))


def _is_shown(job: JobFact, memory: Memory, now: int) -> bool:
    """Whether a job can be decided on: what waits for another job or a begin time, or was refused of late, cannot."""
    retry_at = memory.jobs[job.id].retry_at
    return job.state is not JobState.WAITING or (job.eligible and (retry_at is None or retry_at <= now))


def is_leaving(job: JobFact) -> bool:
    """Whether a job holds its nodes but is on its way out."""
    return job.state is JobState.LEAVING


def _workload(job: JobFact, known: JobMemory, request: Mapping[str, Any], now: int) -> dict[str, Any]:
    document = {name: value for name, value in request.items() if name != "placement"}
    document["submit_time"] = min(known.submit_time, now)
    document["preempted"] = known.preempted
    if known.failed_resumes >= MOST_FAILED_RESUMES:
        document["resumable"] = False
    if known.stopped is not None:
        document["stopped"] = msgspec.convert(known.stopped, StopDoc, from_attributes=True)
    if known.entitled_since is not None and not _runs_on(known.held, now):
        document["entitled_since"] = known.entitled_since
    if is_leaving(job):
        document["run"] = _leaving_run(known.held, request["placement"], now)
    elif known.held is not None:
        document["run"] = _run(known.held, request["placement"])
    return document


def _runs_on(held: Held | None, now: int) -> bool:
    """Whether it has run for some time: the mark of a large gang has served then."""
    return held is not None and held.run.start_time is not None and held.run.start_time < now


def _run(held: Held, placement: Mapping[str, int]) -> RunDoc:
    run = msgspec.convert(held.run, RunDoc, from_attributes=True)
    run.placement = dict(placement)
    return run


def _leaving_run(held: Held | None, placement: Mapping[str, int], now: int) -> RunDoc:
    """What a job that is ending still holds; it is charged for if its run has not been closed yet."""
    unknown = RunDoc(placement=dict(placement), charged=False, start_time=now - 1)
    run = unknown if held is None else _run(held, placement)
    run.terminating_until = now + LEAVING_SECONDS
    return run


def _nodes(view: View, scope: Scope, requests: Requests, config: Config) -> list[dict[str, Any]]:
    """The nodes that were handed over, with what is left of them for the jobs that were."""
    modelled: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    actual: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for key, job in scope.jobs.items():
        request = requests[key]
        for name, tasks in request.get("placement", {}).items():
            for index, field in enumerate(("gpus_per_task", "cpus_per_task", "memory_gib_per_task")):
                modelled[name][index] += tasks * request[field]
            actual[name][0] += -(-job.cpus // len(job.nodes))
            actual[name][1] += -(-job.memory_mib // len(job.nodes))
    foreign = _foreign_gpus(view, scope)
    nodes = [view.nodes[name] for name in sorted(scope.pools)]
    return [
        _node(node, scope, modelled[node.name], actual[node.name], foreign.get(node.name, 0), view, config) for node in nodes
    ]


def _foreign_gpus(view: View, scope: Scope) -> dict[str, int]:
    """GPUs that jobs outside the scope hold, by node."""
    taken: dict[str, int] = defaultdict(int)
    for job in view.jobs.values():
        if job.id not in scope.jobs and job.state in (JobState.RUNNING, JobState.LEAVING) and job.gpus:
            for name in job.nodes:
                taken[name] += -(-job.gpus // len(job.nodes))
    return taken


def _node(
    node: NodeFact, scope: Scope, modelled: list[int], actual: list[int], foreign: int, view: View, config: Config
) -> dict[str, Any]:
    """One node. What others use is taken off; what runs there always fits, however the scheduler counts it."""
    gpus, cpus, memory = modelled
    depth = len(view.fabric.levels) - 1
    closed = node.condition is NodeCondition.CLOSED and gpus > 0
    document: dict[str, Any] = {
        "name": node.name,
        "pool": scope.pools[node.name],
        "gpus": max(gpus, 0 if closed else node.gpus - foreign),
        "cpus": max(cpus, node.cpus - max(0, node.cpus_used - actual[0])),
        "memory_gib": max(memory, (node.memory_mib - max(0, node.memory_used_mib - actual[1])) // 1024),
        "domains": list(view.fabric.domains.get(node.name, ("elsewhere",) * depth)),
        "labels": dict.fromkeys(sorted(node.features), "yes"),
        "state": _STATES.get(node.condition, "up"),
    }
    if node.condition is NodeCondition.CLOSED and not gpus:
        document["state"] = "down"
    if node.reason:
        document["reason"] = node.reason
    for window in config.maintenance:
        if node.name in window.nodes and view.now < window.end:
            document["drain_deadline"] = window.start
            document["reason"] = window.reason
            if window.start <= view.now and document["state"] == "up":
                document["state"] = "drain"
    return document
