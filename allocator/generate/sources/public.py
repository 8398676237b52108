"""ElasticFlow, Philly and Kalos' training jobs in the short form, and the same form without a tenant.

===============  =================================================  ==================================================
form             columns                                            tenant
===============  =================================================  ==================================================
elasticflow      cluster, job_id, submit_s, duration_s, gpus        the `cluster`, as a pseudo-tenant
philly           job_id, submit_s, duration_s, gpus, vc             the virtual cluster
kalos-training   job_id, submit_s, duration_s, gpus, job_type       the job type, as a pseudo-tenant
plain            job_id, submit_s, duration_s, gpus                 all jobs are one tenant's
===============  =================================================  ==================================================

Times are seconds since the start of the trace. Origins: 2021-03-04, 2017-09-04 10:30:41 and (only the month is known)
2023-05-01, taken as UTC.
"""

from __future__ import annotations

from allocator.generate.classes import ABLATION, FLAGSHIP, POST_TRAINING, JobClass
from allocator.generate.sources.fields import Record, number, text, whole_gpus
from allocator.generate.sources.form import ReadRow, TableForm
from allocator.generate.sources.rows import Source, SourceRow, UnusableError, class_by_size, split, usual

COMMON = ("job_id", "submit_s", "duration_s", "gpus")


def _reader(tenant_column: str | None) -> ReadRow:
    """How rows of the short form are read, the tenant being in that column."""

    def read(source: Source, record: Record) -> SourceRow:
        job_id = text(record, "job_id")
        tenant = text(record, tenant_column) if tenant_column else "all"
        submit, duration = number(record, "submit_s"), number(record, "duration_s")
        gpus = whole_gpus(record, "gpus")
        if submit < 0 or duration <= 0:
            raise UnusableError("the job has no run time, or was submitted before the trace")
        tasks, gpus_per_task = split(gpus)
        work = max(1, round(duration))
        return SourceRow(
            key=f"{tenant}-{job_id}" if tenant_column else job_id,
            tenant=tenant,
            submit=source.origin + int(submit),
            work=work,
            tasks=tasks,
            gpus_per_task=gpus_per_task,
            declared=usual(_job_class(tenant, gpus), len(source.rows), work, tasks=tasks),
        )

    return read


def _job_class(tenant: str, gpus: int) -> JobClass:
    """By size; Kalos' types say more."""
    if tenant == "Pretrain":
        return FLAGSHIP if gpus >= 256 else ABLATION
    return POST_TRAINING if tenant == "SFT_or_Other" else class_by_size(gpus)


ELASTICFLOW = TableForm(
    name="elasticflow",
    title="ElasticFlow",
    columns=("cluster", *COMMON),
    read=_reader("cluster"),
    origin=1_614_816_000,
    gpus=1024,
)
PHILLY = TableForm(name="philly", title="Philly", columns=(*COMMON, "vc"), read=_reader("vc"), origin=1_504_521_041, gpus=512)
KALOS_TRAINING = TableForm(
    name="kalos-training",
    title="Kalos",
    columns=(*COMMON, "job_type"),
    read=_reader("job_type"),
    origin=1_682_899_200,
    gpus=2416,
)
PLAIN = TableForm(name="plain", title="Plain", columns=COMMON, read=_reader(None), origin=1_504_521_041, gpus=512)
