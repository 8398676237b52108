"""Two logs of Alibaba: the spot trace of 2026 (`job_info_df`) and the pods of 2023 (`openb`).

A part of a GPU counts as a whole one, since GPUs are handed out whole here. GPU models are not told apart: the log is
replayed on one pool.

spot
    `organization` is the tenant. A job has `worker_num` tasks of `gpu_request` GPUs. HP jobs declare what is usual for their
    size; Spot jobs declare no min runtime: they run on what is left, free of charge.
openb
    The quality of service is the tenant and the priority: LS above Guaranteed and Burstable above BE. BE pods declare no min
    runtime. A pod ran from `scheduled_time` to `deletion_time`, which for pods that still ran is the end of the log.
"""

from __future__ import annotations

import math
from dataclasses import replace

from allocator.generate.sources.fields import Record, number, run_time, text
from allocator.generate.sources.form import TableForm
from allocator.generate.sources.rows import GPUS_PER_NODE, Source, SourceRow, UnusableError, class_by_size, usual

SPOT_ORIGIN, OPENB_ORIGIN = 1_767_225_600, 1_672_531_200
"""Only the years are known: 2026-01-01 and 2023-01-01."""

PRIORITIES = {"LS": 2, "Guaranteed": 1, "Burstable": 1, "BE": 0}


def _tasks(source: Source, workers: int, gpus: float) -> tuple[int, int]:
    """Workers with whole GPUs each."""
    per_task = math.ceil(gpus)
    if workers < 1 or per_task < 1:
        raise UnusableError("the job asks for no GPU")
    if per_task > GPUS_PER_NODE:
        raise UnusableError(f"a task asks for more than the {GPUS_PER_NODE} GPUs of a node")
    return workers, per_task


def _read_spot(source: Source, record: Record) -> SourceRow:
    tasks, gpus_per_task = _tasks(source, int(number(record, "worker_num")), number(record, "gpu_request"))
    submit, duration = number(record, "submit_time"), number(record, "duration")
    kind = text(record, "job_type")
    if kind not in ("HP", "Spot"):
        raise UnusableError("job_type is neither HP nor Spot")
    work = round(duration)
    declared = usual(class_by_size(tasks * gpus_per_task), len(source.rows), work, tasks=tasks)
    return SourceRow(
        key=text(record, "job_name"),
        tenant=text(record, "organization"),
        submit=source.origin + int(submit),
        work=work,
        tasks=tasks,
        gpus_per_task=gpus_per_task,
        declared=declared if kind == "HP" else replace(declared, min_runtime=0),
    )


def _read_openb(source: Source, record: Record) -> SourceRow:
    share = number(record, "gpu_milli")
    tasks, gpus_per_task = _tasks(source, 1, number(record, "num_gpu") if share else 0)
    if not record["scheduled_time"].strip():
        raise UnusableError("the pod never ran")
    created, started = int(number(record, "creation_time")), int(number(record, "scheduled_time"))
    work = run_time(started, int(number(record, "deletion_time")))
    service = text(record, "qos")
    declared = usual(class_by_size(gpus_per_task), len(source.rows), work, tasks=tasks)
    declared = replace(declared, priority=PRIORITIES.get(service, 1))
    return SourceRow(
        key=text(record, "name"),
        tenant=service,
        submit=source.origin + created,
        work=work,
        tasks=tasks,
        gpus_per_task=gpus_per_task,
        declared=replace(declared, min_runtime=0) if service == "BE" else declared,
        fails=record["pod_phase"] == "Failed",
    )


ALIBABA_SPOT = TableForm(
    name="alibaba-spot",
    title="Alibaba spot",
    columns=("job_name", "organization", "gpu_request", "worker_num", "submit_time", "duration", "job_type"),
    read=_read_spot,
    origin=SPOT_ORIGIN,
    gpus=10_416,
)
OPENB = TableForm(
    name="openb",
    title="Alibaba openb",
    columns=(
        "name", "num_gpu", "gpu_milli", "qos", "pod_phase", "creation_time", "deletion_time", "scheduled_time",
    ),
    read=_read_openb,
    origin=OPENB_ORIGIN,
    gpus=64,
)  # fmt: skip
