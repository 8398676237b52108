"""The output of `sacct -X -P -o jobid,account,user,partition,qos,submit,start,end,timelimit,state,alloctres`.

The account is the tenant. GPUs are those of `gres/gpu` in `alloctres`, nodes those of `node`. Times have no zone and are
taken as UTC. The class follows from the size, but where the partition or the quality of service is called debug,
interactive or eval. What failed, was cancelled or ran out of time ends where it ended. Steps (`123.batch`) are not jobs, and
of a job that was requeued (`sacct -D`) the first run counts.
"""

from __future__ import annotations

import re

from allocator.generate.classes import DEBUG, EVAL, JobClass
from allocator.generate.sources.acme import DIED
from allocator.generate.sources.fields import Record, moment, run_time, slurm_limit, text
from allocator.generate.sources.form import TableForm
from allocator.generate.sources.rows import Source, SourceRow, UnusableError, class_by_size, split, usual

_NAMED = (("debug", DEBUG), ("interactive", DEBUG), ("eval", EVAL))


def _read(source: Source, record: Record) -> SourceRow:
    key = text(record, "JobID")
    if "." in key:
        raise UnusableError("a step, not a job: use sacct -X")
    state = text(record, "State").split()[0]
    if state in ("RUNNING", "PENDING", "SUSPENDED", "REQUEUED"):
        raise UnusableError(f"the job is {state}: it has not ended")
    resources = record["AllocTRES"]
    gpus = _gpus(resources)
    if not gpus:
        raise UnusableError("the job has no GPU")
    nodes = re.search(r"(?:^|,)node=(\d+)", resources)
    tasks, gpus_per_task = split(gpus, int(nodes[1]) if nodes else None)
    work = run_time(moment(record, "Start"), moment(record, "End"))
    limit = slurm_limit(record["Timelimit"])
    return SourceRow(
        key=key,
        tenant=text(record, "Account"),
        user=text(record, "User"),
        submit=moment(record, "Submit"),
        work=work,
        tasks=tasks,
        gpus_per_task=gpus_per_task,
        declared=usual(_job_class(record, gpus), len(source.rows), work, tasks=tasks, limit=limit),
        fails=state in (*DIED, "OUT_OF_MEMORY"),
    )


def _gpus(resources: str) -> int:
    """GPUs of a TRES list: the total, or the sum over models where only models are counted."""
    total = re.search(r"(?:^|,)gres/gpu=(\d+)", resources)
    return int(total[1]) if total else sum(int(count) for count in re.findall(r"gres/gpu:[^=,]+=(\d+)", resources))


def _job_class(record: Record, gpus: int) -> JobClass:
    names = f"{record.get('Partition', record.get('partition', ''))} {record.get('QOS', record.get('qos', ''))}".lower()
    return next((job_class for name, job_class in _NAMED if name in names), None) or class_by_size(gpus)


SACCT = TableForm(
    name="sacct",
    title="Slurm accounting",
    columns=("JobID", "Account", "User", "Submit", "Start", "End", "Timelimit", "State", "AllocTRES"),
    read=_read,
    gpus=1024,
    delimiter="|",
)
