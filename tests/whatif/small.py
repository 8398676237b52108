"""A small trace over four days, and scenarios on it in few words."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from allocator.domain.trace import Job, Trace
from allocator.whatif import Scenario, Variant, read_scenario
from allocator.whatif.pieces import BASE
from allocator.wire import encode_trace
from tests.builders import HOUR, budget
from tests.replay.play import job, trace

DAY = 24 * HOUR


def small_trace(**fields: Any) -> Trace:
    """Four nodes in two racks; every day six jobs of two projects want more than there is for some hours; a chain of two."""
    usual: dict[str, Any] = {"num_nodes": 4, "per_rack": 2, "hours": 96, "budgets": (budget("a", 60), budget("b", 40))}
    return trace(*_jobs(), **(usual | fields))


def _jobs() -> list[Job]:
    chain = [
        job("c1", 2 * HOUR, work=3 * HOUR, gpus=16, job_class="chain"),
        job("c2", 2 * HOUR, work=3 * HOUR, gpus=16, job_class="chain", after="c1"),
    ]
    daily = [
        job(
            f"d{day}-{number}",
            day * DAY + (8 + number) * HOUR,
            work=(4 + (day + number) % 3) * HOUR,
            gpus=16 if number % 3 == 0 else 8,
            allocation="ab"[number % 2],
            min_runtime=HOUR,
            job_class="daily",
        )
        for day in range(4)
        for number in range(6)
    ]
    return [*chain, *daily]


def write_trace(folder: Path, **fields: Any) -> Path:
    """The small trace as a file."""
    path = folder / "small.json"
    path.write_bytes(encode_trace(small_trace(**fields)))
    return path


def scenario(folder: Path, *variants: Mapping[str, Any], **fields: Any) -> Scenario:
    """A scenario on the file `small.json`, decided once an hour, first come first served."""
    usual: dict[str, Any] = {
        "title": "small",
        "base": {"trace": "small.json"},
        "replay": {"tick": "1h", "policy": "fifo_backfill"},
        "run": {"jobs": 1},
    }
    return read_scenario(usual | ({"variants": list(variants)} if variants else {}) | fields, folder, "small")


def variant(folder: Path, **edits: Any) -> Variant:
    """One variant with these edits."""
    found = scenario(folder, {"name": "v", **edits})
    assert found.variants[0].name == BASE
    return found.variants[1]
