"""The logs of the Helios clusters: a virtual cluster is a tenant, and the class follows from the size.

The run time is end minus start. What failed, was cancelled or ran out of time ends where it ended.
"""

from __future__ import annotations

from allocator.generate.sources.acme import DIED
from allocator.generate.sources.fields import Record, moment, run_time, text, whole_gpus
from allocator.generate.sources.form import TableForm
from allocator.generate.sources.rows import Source, SourceRow, class_by_size, split, usual


def _read(source: Source, record: Record) -> SourceRow:
    gpus = whole_gpus(record, "gpu_num")
    submit = moment(record, "submit_time")
    work = run_time(moment(record, "start_time"), moment(record, "end_time"))
    nodes = record["node_num"].strip()
    tasks, gpus_per_task = split(gpus, int(nodes) if nodes.isdigit() else None)
    return SourceRow(
        key=text(record, "job_id"),
        tenant=text(record, "vc"),
        user=text(record, "user"),
        submit=submit,
        work=work,
        tasks=tasks,
        gpus_per_task=gpus_per_task,
        declared=usual(class_by_size(gpus), len(source.rows), work, tasks=tasks),
        fails=text(record, "state") in DIED,
    )


HELIOS = TableForm(
    name="helios",
    title="Helios",
    columns=("job_id", "user", "vc", "gpu_num", "node_num", "state", "submit_time", "start_time", "end_time"),
    read=_read,
    gpus=1024,
)
