"""Job logs of every form: what a row becomes, and what is said of rows that cannot be used."""

from __future__ import annotations

import gzip
import zipfile
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

import pytest

from allocator.domain import SnapshotError
from allocator.domain.trace import Job, Trace
from allocator.generate.sources import FORMS, read_source
from allocator.generate.trace_from import LogOptions, parse_days, trace_from_log
from allocator.wire import decode_trace, encode_trace
from allocator.wire.traces import canonical_trace
from tests.generate.checks import shared_file

HOUR, DAY = 3_600, 86_400

SEREN = "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time\n"
KALOS = (
    "job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,start_time,end_time,"
    "fail_time,stop_time,duration,queue,gpu_time\n"
)
HELIOS = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
SPOT = "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,job_type\n"
OPENB = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
SYNTHETIC = (
    "job_id,submit_s,class,project,user,gpus,duration_s,time_limit_s,min_runtime_s,resumable,ckpt_interval_s,ckpt_cost_s,"
    "restart_s,priority,topology,pool,campaign,outcome\n"
)
SACCT = "JobID|Account|User|Partition|QOS|Submit|Eligible|Start|End|Timelimit|State|AllocTRES|NodeList\n"


def utc(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def made(tmp_path: Path, content: str, **options: object) -> Trace:
    path = tmp_path / "log"
    path.write_text(content)
    trace = trace_from_log(path, LogOptions(**options))  # type: ignore[arg-type]
    assert decode_trace(encode_trace(trace)) == canonical_trace(trace)
    return trace


def job(trace: Trace, key: str) -> Job:
    return next(job for job in trace.jobs if job.workload.id == key)


def test_seren(tmp_path: Path) -> None:
    """+08:00 times; 16 GPUs on two nodes; the failed eval dies when it ended; CPU and running jobs are left out."""
    rows = (
        "a,u1,2,16,64,Pretrain,COMPLETED,2023-05-01 08:00:00+08:00,2023-05-01 08:10:00+08:00,2023-05-01 09:10:00+08:00,1,1,1\n"
        "b,u2,1,1,8,Eval,FAILED,2023-05-01 08:00:05+08:00,2023-05-01 08:00:06+08:00,2023-05-01 08:01:06+08:00,1,1,1\n"
        "c,u2,1,0,8,Other,COMPLETED,2023-05-01 08:00:05+08:00,2023-05-01 08:00:06+08:00,2023-05-01 08:01:06+08:00,1,1,1\n"
        "d,u2,1,8,8,Other,RUNNING,2023-05-01 08:00:05+08:00,2023-05-01 08:00:06+08:00,,1,1,1\n"
    )
    trace = made(tmp_path, SEREN + rows)
    assert (trace.start, trace.end) == (utc("2023-05-01"), utc("2023-05-02"))
    first, second = job(trace, "a"), job(trace, "b")
    assert (first.work, first.fails_after, first.workload.submit_time) == (HOUR, None, utc("2023-05-01"))
    assert (first.workload.tasks, first.workload.gpus_per_task, first.workload.job_class) == (2, 8, "ablation")
    assert (first.workload.allocation, first.workload.user) == ("org/Pretrain", "u1")
    assert (second.work, second.fails_after, second.workload.min_runtime) == (60, 60, 0)
    assert trace.notes[:3] == (
        "Acme trace: 4 rows, 2 of them cannot be used",
        "1 rows not used: the job asks for no GPU (first in line 4)",
        "1 rows not used: the job is RUNNING: it has not ended (first in line 5)",
    )


def test_kalos_run_time_is_not_its_duration(tmp_path: Path) -> None:
    """`duration` counts from the submission: 700 s queued, 300 s run."""
    row = (
        "a,u1,128,1024,1,1,1,Pretrain,CANCELLED,2023-05-02 00:00:00+00:00,2023-05-02 00:11:40+00:00,2023-05-02 00:16:40+00:00,"
        ",,1000,700,1\n"
    )
    found = job(made(tmp_path, KALOS + row), "a")
    assert (found.work, found.fails_after, found.workload.job_class, found.workload.gpus) == (300, 300, "flagship", 1024)


def test_helios(tmp_path: Path) -> None:
    rows = (
        "1,u,vcA,8,32,1,COMPLETED,2020-04-01 00:00:00,2020-04-01 00:01:00,2020-04-01 02:01:00,7200,60\n"
        "2,u,vcB,8,32,1,TIMEOUT,2020-04-01 00:00:00,2020-04-01 00:01:00,2020-04-01 04:01:00,14400,60\n"
        "3,u,vcB,8,32,1,COMPLETED,2020-04-01 00:00:00,None,2020-04-01 04:01:00,14400,60\n"
    )
    trace = made(tmp_path, HELIOS + rows)
    assert {vertex.id: vertex.share for vertex in trace.budgets if vertex.parent} == {"org/vcA": 333, "org/vcB": 667}
    assert (job(trace, "1").fails_after, job(trace, "2").fails_after) == (None, 4 * HOUR)
    assert "1 rows not used: start_time is no date and time (first in line 4)" in trace.notes


def test_alibaba_spot(tmp_path: Path) -> None:
    """Four workers of two GPUs; a part of a GPU counts as one; Spot work is free of charge."""
    rows = "a,orgA,A10,8,2,4,100,3600,HP\nb,orgB,A10,8,0.5,1,200,60,Spot\nc,orgB,A10,8,16,1,200,60,Spot\nd,x,A10,8,1,1,0,9,LP\n"
    trace = made(tmp_path, SPOT + rows, gpus=64)
    first, second = job(trace, "a").workload, job(trace, "b").workload
    assert (first.tasks, first.gpus_per_task, first.min_runtime, first.allocation) == (4, 2, HOUR, "org/orgA")
    assert (second.tasks, second.gpus_per_task, second.min_runtime) == (1, 1, 0)
    assert first.submit_time == trace.start + 100
    assert "8 GPUs of a node (first in line 4)" in "\n".join(trace.notes)
    assert "neither HP nor Spot (first in line 5)" in "\n".join(trace.notes)


def test_openb(tmp_path: Path) -> None:
    rows = (
        "a,12000,16384,1,460,,LS,Running,100,5000,200.0\n"
        "b,12000,16384,2,1000,V100,BE,Failed,100,260,200.0\n"
        "c,12000,16384,1,1000,,BE,Pending,100,260,\n"
        "d,12000,16384,0,0,,BE,Succeeded,100,260,200.0\n"
    )
    trace = made(tmp_path, OPENB + rows)
    first, second = job(trace, "a"), job(trace, "b")
    assert (first.work, first.workload.priority, first.workload.gpus, first.fails_after) == (4_800, 2, 1, None)
    assert (second.work, second.workload.min_runtime, second.workload.gpus, second.fails_after) == (60, 0, 2, 60)
    assert trace.notes[0] == "Alibaba openb trace: 4 rows, 2 of them cannot be used"


def synthetic_row(
    key: str, submit: int, campaign: str = "", pool: str = "any", gpus: int = 8, outcome: str = "COMPLETED"
) -> str:
    declared = "7200,14400,28800,1,1800,60,900,urgent,su"
    return f"{key},{submit},flagship,org/base/pretrain,u001,{gpus},{declared},{pool},{campaign},{outcome}\n"


def test_synthetic_declarations_are_taken_as_they_stand(tmp_path: Path) -> None:
    rows = synthetic_row("1", 50, pool="h100", gpus=128, outcome="FAILED")
    trace = made(tmp_path, SYNTHETIC + rows)
    found = job(trace, "1")
    work = found.workload
    assert (work.min_runtime, work.restart_time, work.checkpoint_interval, found.checkpoint_cost) == (28_800, 900, 1_800, 60)
    assert (work.priority, work.pools, work.topology.preferred, work.max_runtime) == (3, ("h100",), "su", 14_400)
    assert (work.allocation, found.fails_after) == ("org/base/pretrain/u001", 7_200)
    shares = {vertex.id: (vertex.share, vertex.funds) for vertex in trace.budgets}
    assert shares["org/base"] == (Fraction(45), True)
    assert shares["org/base/data-ablations"] == (Fraction(35), True)
    assert shares["org/base/pretrain/u001"] == (Fraction(1), False)
    assert {node.pool for node in trace.cluster.nodes} == {"h100", "b200", "b300"}
    assert sum(node.gpus for node in trace.cluster.nodes) == 1_792


def test_segments_of_a_campaign_run_one_after_the_other(tmp_path: Path) -> None:
    """Days 1 on: the segment of day 0 is cut off, and the chain begins with the next."""
    rows = "".join(synthetic_row(str(day), day * DAY + 5, f"flag/seg{day}") for day in range(3)) + synthetic_row("9", DAY)
    trace = made(tmp_path, SYNTHETIC + rows)
    assert [(one.workload.id, one.after) for one in trace.jobs] == [
        ("flag-0", None), ("9", None), ("flag-1", "flag-0"), ("flag-2", "flag-1")
    ]  # fmt: skip
    later = made(tmp_path, SYNTHETIC + rows, days=(1, None))
    assert [(one.workload.id, one.after) for one in later.jobs] == [("9", None), ("flag-1", None), ("flag-2", "flag-1")]


def test_a_tree_of_shares_may_be_given(tmp_path: Path) -> None:
    tree = tmp_path / "tree.json"
    tree.write_text(
        '{"name": "org", "children": [{"name": "base", "gpu_fraction": 0.3, "children":'
        ' [{"name": "pretrain", "gpu_fraction": 0.25}]}]}'
    )
    trace = made(tmp_path, SYNTHETIC + synthetic_row("1", 5), budgets=tree)
    shares = {vertex.id: vertex.share for vertex in trace.budgets}
    assert shares["org/base"] == Fraction(3, 10)
    assert shares["org/base/pretrain"] == Fraction(1, 4)
    assert set(shares) == {"org", "org/base", "org/base/pretrain", "org/base/pretrain/u001"}
    tree.write_text('{"name": "org"}')
    with pytest.raises(SnapshotError, match="no tree of budgets"):
        made(tmp_path, SYNTHETIC + synthetic_row("1", 5), budgets=tree)


def test_swf(tmp_path: Path) -> None:
    """Allocated processors, or requested where unknown; the requested time is the limit; status 0 and 5 die."""
    content = (
        "; Version: 2.2\n; UnixStartTime: 1000000\n"
        "1 10 -1 100 8 -1 -1 8 3600 -1 1 7 3 -1 -1 -1 -1 -1\n"
        "2 20 -1 100 -1 -1 -1 16 -1 -1 5 7 3 -1 -1 -1 -1 -1\n"
        "3 30 -1 -1 8 -1 -1 8 -1 -1 0 7 3 -1 -1 -1 -1 -1\n"
        "4 40 -1 100 8\n"
    )
    trace = made(tmp_path, content)
    first, second = job(trace, "1"), job(trace, "2")
    assert (first.workload.submit_time, first.work, first.workload.max_runtime) == (1_000_010, 100, 3_600)
    assert (first.workload.allocation, first.workload.user, first.fails_after) == ("org/group3", "user7", None)
    assert (second.workload.gpus, second.fails_after) == (16, 100)
    assert trace.notes[0] == "SWF trace: 4 rows, 2 of them cannot be used"
    assert "too few cells (first in line 6)" in "\n".join(trace.notes)


def test_sacct(tmp_path: Path) -> None:
    """Two nodes of four GPUs; models counted where there is no total; steps, running and CPU jobs left out."""
    times = "2026-11-01T10:00:00|2026-11-01T10:00:00|2026-11-01T11:00:00|2026-11-01T13:00:00"
    rows = (
        f"1|nlp|ann|gpu|normal|{times}|1-00:00:00|COMPLETED|cpu=64,gres/gpu:h100=8,gres/gpu=8,node=2|n[1-2]\n"
        f"1.batch|nlp|ann|gpu|normal|{times}|1-00:00:00|COMPLETED|cpu=64|n1\n"
        f"2|nlp|bob|debug|normal|{times}|UNLIMITED|CANCELLED by 1000|cpu=64,gres/gpu:h100=1,gres/gpu:b200=1,node=1|n1\n"
        f"3|nlp|bob|gpu|normal|{times}|30:00|COMPLETED|cpu=64,node=1|n1\n"
        f"4|nlp|bob|gpu|normal|{times}|30:00|RUNNING|gres/gpu=8|n1\n"
        f"1|nlp|ann|gpu|normal|{times}|1-00:00:00|COMPLETED|gres/gpu=8,node=2|n[1-2]\n"
    )
    trace = made(tmp_path, SACCT + rows, gpus=64)
    first, second = job(trace, "1"), job(trace, "2")
    assert (first.workload.tasks, first.workload.gpus_per_task, first.work) == (2, 4, 2 * HOUR)
    assert (first.workload.max_runtime, first.fails_after) == (DAY, None)
    assert (second.workload.gpus, second.workload.job_class, second.fails_after) == (2, "debug", 2 * HOUR)
    assert trace.start == utc("2026-11-01")
    text = "\n".join(trace.notes)
    for words in ("a step, not a job: use sacct -X (first in line 3)", "no GPU (first in line 5)", "RUNNING", "twice"):
        assert words in text


def test_plain(tmp_path: Path) -> None:
    trace = made(tmp_path, "job_id,submit_s,duration_s,gpus\n1,0,60,8\n2,5,60\n")
    assert [vertex.id for vertex in trace.budgets] == ["org", "org/all"]
    assert "too few cells (first in line 3)" in "\n".join(trace.notes)


def test_packed_files(tmp_path: Path) -> None:
    content = "job_id,submit_s,duration_s,gpus\n1,0,60,8\n"
    (tmp_path / "log.gz").write_bytes(gzip.compress(content.encode()))
    with zipfile.ZipFile(tmp_path / "log.zip", "w") as archive:
        archive.writestr("log.csv", content)
    with zipfile.ZipFile(tmp_path / "two.zip", "w") as archive:
        archive.writestr("a", content)
        archive.writestr("b", content)
    assert read_source(tmp_path / "log.gz").rows == read_source(tmp_path / "log.zip").rows
    with pytest.raises(SnapshotError, match="holds 2 files"):
        read_source(tmp_path / "two.zip")
    (tmp_path / "bad.zip").write_bytes(b"PK\x03\x04abc")
    with pytest.raises(SnapshotError, match="damaged zip"):
        read_source(tmp_path / "bad.zip")


def test_the_form_may_be_named_and_has_to_fit(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("job_id,submit_s,duration_s,gpus,vc\n1,0,60,8,x\n")
    assert read_source(path).title == "Philly"
    assert read_source(path, "plain").rows[0].tenant == "all"
    with pytest.raises(SnapshotError, match="cluster are missing"):
        read_source(path, "elasticflow")
    with pytest.raises(SnapshotError, match="no form is called 'sge'"):
        read_source(path, "sge")
    assert len({form.name for form in FORMS}) == len(FORMS)


@pytest.mark.parametrize(("text", "days"), [("7:14", (7, 14)), ("3:", (3, None)), (":2", (0, 2))])
def test_spans_of_days(text: str, days: tuple[int, int | None]) -> None:
    assert parse_days(text) == days


@pytest.mark.parametrize("text", ["7", "a:b", ":", "3:3", "4:2"])
def test_spans_that_are_none(text: str) -> None:
    with pytest.raises(SnapshotError, match="days"):
        parse_days(text)


def test_days_without_work_are_refused(tmp_path: Path) -> None:
    content = f"job_id,submit_s,duration_s,gpus\n1,0,60,8\n2,{5 * DAY},60,8\n"
    assert len(made(tmp_path, content, days=(5, 6)).jobs) == 1
    with pytest.raises(SnapshotError, match="days 0 to 5"):
        made(tmp_path, content, days=(2, 3))
    with pytest.raises(SnapshotError, match="it has 6 days"):
        made(tmp_path, content, days=(9, None))


@pytest.mark.parametrize(
    ("name", "jobs", "options"),
    [
        ("sample_elasticflow_c04_2000.csv", 2_000, {}),
        ("sample_philly_2000.csv", 2_000, {"failures": 5e-4}),
        ("acme_kalos_completed_training.csv", 319, {}),
        ("sample_openb_2000.csv", 1_400, {}),
        ("sample_synthetic_small_7d.csv", 1_913, {"gpus": 224, "load": 1.3, "seed": 3, "jitter": 600}),
        ("swf/NASA-iPSC-1993-3.1-cln.swf.zip", 18_066, {}),
    ],
)
def test_real_logs(name: str, jobs: int, options: dict[str, object]) -> None:
    trace = trace_from_log(shared_file(name), LogOptions(**options))  # type: ignore[arg-type]
    data = encode_trace(trace)
    assert decode_trace(data) == canonical_trace(trace)
    assert len(trace.jobs) >= jobs
    assert encode_trace(trace_from_log(shared_file(name), LogOptions(**options))) == data  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_whole_organisation() -> None:
    trace = trace_from_log(shared_file("synthetic_research_org_28d.csv.gz"), LogOptions())
    assert trace.notes == (
        "Synthetic organisation trace: 75004 rows, 0 of them cannot be used",
        "75004 jobs in 28 days, offered load 1.062",
    )
    assert decode_trace(encode_trace(trace)) == canonical_trace(trace)
