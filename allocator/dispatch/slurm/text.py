"""`scontrol -o show jobs` and `show nodes` as the records of the JSON forms, for builds of Slurm without JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_KEY = re.compile(r"(?:^|\s)([A-Z][\w/:.-]*)=")

_JOB_FIELDS = {
    "job_id": "JobId",
    "array_job_id": "ArrayJobId",
    "array_max_tasks": "ArrayTaskThrottle",
    "account": "Account",
    "qos": "QOS",
    "partition": "Partition",
    "job_state": "JobState",
    "state_reason": "Reason",
    "priority": "Priority",
    "nodes": "NodeList",
    "cpus": "NumCPUs",
    "tasks": "NumTasks",
    "time_limit": "TimeLimit",
    "time_minimum": "TimeMin",
    "submit_time": "SubmitTime",
    "start_time": "StartTime",
    "end_time": "EndTime",
    "eligible_time": "EligibleTime",
    "restart_cnt": "Restarts",
    "requeue": "Requeue",
    "required_nodes": "ReqNodeList",
    "excluded_nodes": "ExcNodeList",
    "dependency": "Dependency",
    "features": "Features",
    "comment": "Comment",
    "admin_comment": "AdminComment",
    "tres_per_job": "TresPerJob",
    "tres_per_node": "TresPerNode",
    "tres_per_task": "TresPerTask",
    "het_job_id": "HetJobId",
}
_NODE_FIELDS = {
    "name": "NodeName",
    "cpus": "CPUTot",
    "alloc_cpus": "CPUAlloc",
    "real_memory": "RealMemory",
    "alloc_memory": "AllocMem",
    "active_features": "ActiveFeatures",
    "gres": "Gres",
    "partitions": "Partitions",
    "reason": "Reason",
}
_MARKS = {"*": "NOT_RESPONDING"} | dict.fromkeys("~#!%$@^", "POWERING")
"""What the marks behind a node's state say; all of them keep work away."""


def job_records(text: str) -> list[dict[str, Any]]:
    """The jobs, one to a line."""
    return [_job(fields) for fields in map(_fields, text.splitlines()) if "JobId" in fields]


def node_records(text: str) -> list[dict[str, Any]]:
    """The nodes, one to a line."""
    return [_node(fields) for fields in map(_fields, text.splitlines()) if "NodeName" in fields]


def _fields(line: str) -> dict[str, str]:
    """The fields of a line; a value reaches to the next key and may hold blanks."""
    found = list(_KEY.finditer(line))
    ends = [match.start() for match in found[1:]] + [len(line)]
    return {match[1]: line[match.end() : end].strip() for match, end in zip(found, ends, strict=True)}


def _job(fields: Mapping[str, str]) -> dict[str, Any]:
    record: dict[str, Any] = {name: fields.get(key) for name, key in _JOB_FIELDS.items()}
    tasks = fields.get("ArrayTaskId", "")
    record["array_task_id" if tasks.isdigit() else "array_task_string"] = tasks
    record["user_name"] = fields.get("UserId", "").partition("(")[0]
    record["node_count"] = fields.get("NumNodes", "1").partition("-")[0]
    record["tres_req_str"] = fields.get("ReqTRES") or fields.get("TRES")
    record["tres_alloc_str"] = fields.get("AllocTRES")
    return record


def _node(fields: Mapping[str, str]) -> dict[str, Any]:
    record: dict[str, Any] = {name: fields.get(key) for name, key in _NODE_FIELDS.items()}
    state = fields.get("State", "")
    record["state"] = state
    record["state_flags"] = sorted({_MARKS[mark] for mark in state if mark in _MARKS})
    record["reason"] = re.sub(r"\s*\[[^\[\]]*@[^\[\]]*\]$", "", fields.get("Reason", ""))
    return record
