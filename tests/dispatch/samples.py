"""What Slurm 22.05 printed for one situation in all its forms, and the same in the form of newer versions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "samples"
NOW = 1_795_992_575
"""When the samples were taken."""

_TIMES = ("submit_time", "start_time", "end_time", "eligible_time")
_NUMBERS = ("priority", "node_count", "cpus", "tasks", "time_limit", "time_minimum", "array_job_id", "array_task_id")


def text(name: str) -> str:
    """One sample as text."""
    return (FOLDER / name).read_text()


def jobs() -> list[dict[str, Any]]:
    """The records of `squeue --json`."""
    found: list[dict[str, Any]] = json.loads(text("squeue_2205.json"))["jobs"]
    return found


def nodes() -> list[dict[str, Any]]:
    """The records of `sinfo --json`."""
    found: list[dict[str, Any]] = json.loads(text("sinfo_2205.json"))["nodes"]
    return found


def modern_job(record: dict[str, Any]) -> dict[str, Any]:
    """A record as 24.05 writes it: numbers that say whether they are set, states as lists, GRES with a slash."""
    found = dict(record)
    for name in (*_TIMES, *_NUMBERS):
        value = record.get(name)
        found[name] = {"set": value is not None, "infinite": False, "number": value or 0}
    found["job_state"] = [record["job_state"]]
    for name in ("tres_per_node", "tres_per_job", "tres_per_task"):
        found[name] = record[name].replace("gres:gpu", "gres/gpu")
    return found


def modern_node(record: dict[str, Any]) -> dict[str, Any]:
    """A node as 24.05 writes it: state and flags in one list, features as a list."""
    found = {name: value for name, value in record.items() if name != "state_flags"}
    found["state"] = [record["state"].upper(), *record["state_flags"]]
    found["active_features"] = found["features"] = record["active_features"].split(",")
    return found
