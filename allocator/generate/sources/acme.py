"""The logs of two clusters for large language models (Acme: Seren and Kalos) in their original columns.

The type of a job is its tenant, because that is how those clusters held quota back: Pretrain counts as flagship from 256
GPUs on and as ablation below, SFT and MLLM as post-training, Eval as eval, Debug as debug, everything else by size. The run
time is end minus start: Kalos' `duration` counts from the submission. What failed, was cancelled or ran out of time ends
where it ended; work that a node failure ended counts as done.
"""

from __future__ import annotations

from allocator.generate.classes import ABLATION, DEBUG, EVAL, FLAGSHIP, POST_TRAINING, JobClass
from allocator.generate.sources.fields import Record, moment, run_time, text, whole_gpus
from allocator.generate.sources.form import TableForm
from allocator.generate.sources.rows import Source, SourceRow, UnusableError, class_by_size, split, usual

DIED = ("FAILED", "CANCELLED", "TIMEOUT")

_CLASSES = {"SFT": POST_TRAINING, "MLLM": POST_TRAINING, "Eval": EVAL, "Debug": DEBUG}


def _job_class(kind: str, gpus: int) -> JobClass:
    if kind == "Pretrain":
        return FLAGSHIP if gpus >= 256 else ABLATION
    return _CLASSES.get(kind) or class_by_size(gpus)


def _read(source: Source, record: Record) -> SourceRow:
    gpus = whole_gpus(record, "gpu_num")
    state = text(record, "state")
    if state in ("RUNNING", "PENDING"):
        raise UnusableError(f"the job is {state}: it has not ended")
    submit = moment(record, "submit_time")
    work = run_time(moment(record, "start_time"), moment(record, "end_time"))
    kind = text(record, "type")
    nodes = record["node_num"].strip()
    tasks, gpus_per_task = split(gpus, int(nodes) if nodes.isdigit() else None)
    return SourceRow(
        key=text(record, "job_id"),
        tenant=kind,
        user=text(record, "user"),
        submit=submit,
        work=work,
        tasks=tasks,
        gpus_per_task=gpus_per_task,
        declared=usual(_job_class(kind, gpus), len(source.rows), work, tasks=tasks),
        fails=state in DIED,
    )


ACME = TableForm(
    name="acme",
    title="Acme",
    columns=("job_id", "user", "node_num", "gpu_num", "type", "state", "submit_time", "start_time", "end_time"),
    read=_read,
    gpus=2416,
)
