"""The synthetic research organisation as a table: every declaration is a column, projects are paths in the budget tree.

Researchers are leaves below their project and hold no budget. Campaigns run one segment after the other, in file order.
What failed or was cancelled ends where it ended. Work that can resume saves itself when it is told to stop: the model assumes
a notice of one or two minutes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from allocator.generate.files import read_text, refuse
from allocator.generate.organisation import PLANS, PROGRAM_SHARES
from allocator.generate.params import TRACE_START
from allocator.generate.sources.fields import Record, number, text, whole_gpus
from allocator.generate.sources.form import TableForm
from allocator.generate.sources.rows import Declared, Source, SourceRow, UnusableError, split

PRIORITIES = {"low": 0, "normal": 1, "high": 2, "urgent": 3}
LEVELS = {"node": None, "leaf": "leaf", "su": "su", "fabric": None}
CLASS_NAMES = {"posttrain": "post-training"}
"""Classes that go by another name here."""

SHARES: Mapping[str, Fraction] = {
    **{program: Fraction(share) for program, share in PROGRAM_SHARES.items()},
    **{f"{plan.program}/{plan.name}": Fraction(plan.share) for plan in PLANS},
}


def _read(source: Source, record: Record) -> SourceRow:
    gpus = whole_gpus(record, "gpus")
    priority, topology = text(record, "priority"), text(record, "topology")
    if priority not in PRIORITIES or topology not in LEVELS:
        raise UnusableError("priority or topology is none of those known")
    pool, kind, job_id = text(record, "pool"), text(record, "class"), text(record, "job_id")
    tasks, gpus_per_task = split(gpus)
    campaign = record["campaign"].partition("/")[0].strip()
    resumable = bool(number(record, "resumable"))
    interval = int(number(record, "ckpt_interval_s"))
    pools = [one.pool for one, _ in source.sizes]
    declared = Declared(
        job_class=CLASS_NAMES.get(kind, kind),
        min_runtime=int(number(record, "min_runtime_s")),
        resumable=resumable,
        checkpoint_interval=interval if resumable and interval else None,
        checkpoint_cost=int(number(record, "ckpt_cost_s")),
        checkpoint_on_notice=resumable,
        restart_time=int(number(record, "restart_s")),
        priority=PRIORITIES[priority],
        preferred=LEVELS[topology] if tasks > 1 else None,
        pools=() if pool == "any" or len(pools) == 1 else (pool,),
        max_runtime=int(number(record, "time_limit_s")) or None,
    )
    return SourceRow(
        key=f"{campaign}-{job_id}" if campaign else job_id,
        tenant=text(record, "project").removeprefix("org/"),
        user=text(record, "user"),
        submit=source.origin + int(number(record, "submit_s")),
        work=round(number(record, "duration_s")),
        tasks=tasks,
        gpus_per_task=gpus_per_task,
        declared=declared,
        fails=record["outcome"] in ("FAILED", "CANCELLED", "TIMEOUT"),
        after=_before(source, campaign),
    )


def _before(source: Source, campaign: str) -> str | None:
    """The last segment of the same campaign."""
    if not campaign:
        return None
    segments = (row.key for row in reversed(source.rows) if row.key.startswith(f"{campaign}-"))
    return next(segments, None)


def read_shares(path: Path) -> dict[str, Fraction]:
    """Shares by path from a tree of `name`, `gpu_fraction` and `children`.

    Raises
    ------
    SnapshotError
        Where the file is no such tree.
    """
    try:
        root = json.loads(read_text(path))
        return dict(_walk(root["children"], ""))
    except (ValueError, KeyError, TypeError, ArithmeticError) as error:
        raise refuse(str(path), f"is no tree of budgets ({error})", "give name, gpu_fraction and children, nested") from error


def _walk(children: list[Any], above: str) -> Iterator[tuple[str, Fraction]]:
    for child in children:
        path = f"{above}{child['name']}"
        yield path, Fraction(str(child["gpu_fraction"]))
        yield from _walk(child.get("children", []), f"{path}/")


SYNTHETIC = TableForm(
    name="synthetic",
    title="Synthetic organisation",
    columns=(
        "job_id", "submit_s", "class", "project", "user", "gpus", "duration_s", "time_limit_s", "min_runtime_s", "resumable",
        "ckpt_interval_s", "ckpt_cost_s", "restart_s", "priority", "topology", "pool", "campaign", "outcome",
    ),
    read=_read,
    origin=TRACE_START,
    gpus=1_792,
    pools=3,
    shares=SHARES,
    researchers=True,
)  # fmt: skip
