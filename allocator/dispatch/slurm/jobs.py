"""Jobs as `squeue --json` shows them, from 21.08 to the newest form, as facts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from allocator.dispatch.facts import JobFact, JobState
from allocator.dispatch.slurm import values
from allocator.generate.hostlist import expand_hosts

MAX_ARRAY_TASKS = 100
"""So many tasks of one array wait in the snapshot at a time; the rest follow as these start."""

_HOLDS_NODES = frozenset({"RUNNING", "SUSPENDED", "CONFIGURING", "RESIZING", "SIGNALING", "STOPPED"})
_ENDING = frozenset({"COMPLETING", "STAGE_OUT"})
_WILL_NOT_START = (
    "BadConstraints",
    "ReqNodeNotAvail",
    "Assoc",
    "QOS",
    "JobArrayTaskLimit",
    "Partition",
    "Reservation",
    "Invalid",
)
"""Reasons with which a released job waits for something else than its nodes."""

Record = Mapping[str, Any]


def read_jobs(records: Iterable[Record], now: int) -> dict[str, JobFact]:
    """All jobs by their stable id; the waiting tasks of an array are jobs of their own, no more of them than may run."""
    records = list(records)
    active = Counter(_parent(record) for record in records if _state(record) in (JobState.RUNNING, JobState.LEAVING))
    found: dict[str, JobFact] = {}
    room: dict[int, int] = {}
    for record in sorted(records, key=lambda record: bool(_waiting_tasks(record))):  # tasks of their own come first
        parent = _parent(record)
        if parent is None or _state(record) is not JobState.WAITING:
            fact = _fact(record, _id(record), now)
            found[fact.id] = fact
            continue
        left = room.setdefault(parent, _limit(record) - active[parent])
        shared = _shared(record, parent)
        for key in _task_ids(record, parent, left):
            fact = replace(_fact(record, key, now), record=shared)
            found[key] = fact if room[parent] > 0 else replace(fact, eligible=False)
            room[parent] -= fact.eligible
    return found


def _parent(record: Record) -> int | None:
    """The array that a record belongs to."""
    return values.number(record.get("array_job_id")) or (int(record["job_id"]) if _waiting_tasks(record) else None)


def _waiting_tasks(record: Record) -> str:
    """The tasks of an array that wait as one record, as in 0-3,7%2."""
    return values.text(record.get("array_task_string")) if _state(record) is JobState.WAITING else ""


def _shared(record: Record, parent: int) -> str:
    """What all tasks that wait as one record are called; empty where Slurm does not show all of their numbers."""
    tasks = _waiting_tasks(record).partition("%")[0]
    return f"{parent}_[{tasks}]" if tasks and "..." not in tasks else ""


def _limit(record: Record) -> int:
    """How many tasks of the array may run at a time."""
    limit = _waiting_tasks(record).partition("%")[2]
    return (int(limit) if limit.isdigit() else values.number(record.get("array_max_tasks"))) or MAX_ARRAY_TASKS


def _task_ids(record: Record, parent: int, room: int) -> list[str]:
    tasks = _waiting_tasks(record).partition("%")[0]
    if not tasks:
        return [_id(record)]
    numbers = expand_hosts(f"[{tasks.split(',...')[0]}]")
    return [f"{parent}_{task}" for task in numbers[: max(0, min(room, MAX_ARRAY_TASKS))]]


def _id(record: Record) -> str:
    """The id that a job keeps, and that Slurm's commands understand."""
    task = values.number(record.get("array_task_id"))
    parent = values.number(record.get("array_job_id"))
    return f"{parent}_{task}" if parent and task is not None else str(record["job_id"])


def _state(record: Record) -> JobState:
    states = values.words(record.get("job_state"))
    if states & _ENDING:
        return JobState.LEAVING
    if "PENDING" in states:
        return JobState.WAITING
    return JobState.RUNNING if states & _HOLDS_NODES else JobState.ENDED


def _fact(record: Record, key: str, now: int) -> JobFact:
    state = _state(record)
    num_nodes = max(1, values.number(record.get("node_count")) or 1)
    total, per_node, kind = _gpus(record, num_nodes)
    taken = values.text(record.get("tres_alloc_str")) or values.text(record.get("tres_req_str"))
    restarts = values.number(record.get("restart_cnt")) or 0
    return JobFact(
        id=key,
        state=state,
        held=state is JobState.WAITING and (values.number(record.get("priority")) == 0 or record.get("hold") is True),
        incarnation=restarts,
        nodes=values.hosts(record.get("nodes")) if state is not JobState.WAITING else (),
        wanted_nodes=values.hosts(record.get("required_nodes")),
        submit_time=values.instant(record.get("submit_time")) or now,
        start_time=values.instant(record.get("start_time")) if state is not JobState.WAITING else None,
        end_time=values.instant(record.get("end_time")) if state is JobState.ENDED else None,
        account=values.text(record.get("account")),
        user=values.text(record.get("user_name")),
        qos=values.text(record.get("qos")),
        partition=values.text(record.get("partition")),
        num_nodes=num_nodes,
        gpus=total,
        gpus_per_node=per_node,
        gpu_type=kind,
        cpus=int(values.tres(taken, "cpu") or values.number(record.get("cpus")) or 0),
        memory_mib=values.mebibytes(values.tres(taken, "mem")),
        time_limit=values.minutes(record.get("time_limit")),
        min_runtime=values.minutes(record.get("time_minimum")),
        resumable=record.get("requeue") in (True, 1, "1"),
        comment=values.text(record.get("comment")),
        said=values.text(record.get("admin_comment")).strip('"'),  # scontrol keeps the quotes of what it reads
        features=values.text(record.get("features")),
        exclude=values.hosts(record.get("excluded_nodes")),
        eligible=_is_eligible(record, restarts, now),
        reason=values.text(record.get("state_reason")),
        blocked=state is JobState.WAITING and values.text(record.get("state_reason")).startswith(_WILL_NOT_START),
        problem=_problem(record),
    )


def _gpus(record: Record, num_nodes: int) -> tuple[int, int, str | None]:
    """GPUs of the whole job, GPUs on each of its nodes (0: left open), and their type."""
    per_node, kind = values.gpus(record.get("tres_per_node"))
    if per_node:
        return per_node * num_nodes, per_node, kind
    per_task, kind = values.gpus(record.get("tres_per_task"))
    if per_task:
        total = per_task * max(1, values.number(record.get("tasks")) or num_nodes)
        return total, -(-total // num_nodes), kind
    total, kind = values.gpus(record.get("tres_per_job"))
    if total:
        return total, 0, kind
    total, kind = values.gpus(record.get("tres_req_str"))
    return total, -(-total // num_nodes), kind


def _is_eligible(record: Record, restarts: int, now: int) -> bool:
    """Whether nothing but the allocator holds it back. The begin time that Slurm itself sets at a requeue does not count."""
    if values.text(record.get("dependency")):
        return False
    begin = values.instant(record.get("eligible_time")) or 0
    return (
        restarts > 0
        or begin <= now
        or values.text(record.get("state_reason")) not in ("BeginTime", "JobHeldUser", "JobHeldAdmin")
    )


def _problem(record: Record) -> str | None:
    if values.number(record.get("het_job_id")):
        return "heterogeneous jobs cannot be placed as one gang; submit its components as jobs of their own"
    return None
