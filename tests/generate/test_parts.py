"""Logs taken apart and put together."""

from __future__ import annotations

from pathlib import Path

import pytest

from allocator.domain import SnapshotError
from allocator.domain.trace import Trace
from allocator.generate.any_trace import TraceRecipe, make_trace
from allocator.generate.classes import FLAGSHIP
from allocator.generate.params import DAY
from allocator.generate.sources import Source, SourceRow, lay_over
from allocator.generate.sources.rows import usual
from allocator.wire import encode_trace
from tests.generate.checks import shared_file

PHILLY_ORIGIN = 1_504_521_041
LOG = f"job_id,submit_s,duration_s,gpus,vc\n1,0,300,8,x\n2,60,100,8,y\n3,{DAY},100,16,y\n"
GANGS = f"job_id,submit_s,duration_s,gpus,job_type\n1,30,100,16,Pretrain\n2,{DAY + 5},60,8,Pretrain\n3,40,60,24,Pretrain\n"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.csv"
    path.write_text(LOG)
    return path


@pytest.fixture
def gangs(tmp_path: Path) -> Path:
    path = tmp_path / "gangs.csv"
    path.write_text(GANGS)
    return path


def ids(trace: Trace) -> list[str]:
    return [job.workload.id for job in trace.jobs]


def test_only_some_tenants(log: Path) -> None:
    trace = make_trace(TraceRecipe(log=log, gpus=16, tenants="y"))
    assert ids(trace) == ["y-2", "y-3"]
    assert [vertex.id for vertex in trace.budgets] == ["org", "org/y"]
    assert ids(make_trace(TraceRecipe(log=log, gpus=16, tenants="x,y"))) == ["x-1", "y-2", "y-3"]


def test_a_tenant_that_is_not_there_is_refused(log: Path) -> None:
    with pytest.raises(SnapshotError, match="z submitted nothing that can be used"):
        make_trace(TraceRecipe(log=log, gpus=16, tenants="x,z"))


def test_a_second_log_lies_on_the_same_days_and_nodes(log: Path, gangs: Path) -> None:
    trace = make_trace(TraceRecipe(log=log, gpus=16, on_top=gangs))
    assert ids(trace) == ["x-1", "kalos-Pretrain-1", "y-2", "y-3", "kalos-Pretrain-2"]
    assert [job.workload.submit_time - PHILLY_ORIGIN for job in trace.jobs] == [0, 30, 60, DAY, DAY + 5]
    assert sum(node.gpus for node in trace.cluster.nodes) == 16
    shares = {vertex.id: vertex.share for vertex in trace.budgets if vertex.parent}
    work = {"org/x": 2400, "org/y": 800 + 1600, "org/Pretrain": 1600 + 480}
    assert shares == {key: round(1000 * part / sum(work.values())) for key, part in work.items()}
    assert "1 rows not used: the job asks for more than the cluster's 16 GPUs (first in line 4)" in trace.notes
    assert trace.name == "Philly with Kalos"


def test_days_are_taken_of_both(log: Path, gangs: Path) -> None:
    assert ids(make_trace(TraceRecipe(log=log, gpus=16, on_top=gangs, days="1:2"))) == ["y-3", "kalos-Pretrain-2"]


def test_known_shares_cannot_be_put_beside_unknown_ones(log: Path) -> None:
    with pytest.raises(SnapshotError, match="shares are known of one log only"):
        make_trace(TraceRecipe(log=shared_file("sample_synthetic_small_7d.csv"), gpus=224, on_top=log))


def test_chains_of_the_second_log_stay_chains() -> None:
    def row(key: str, after: str | None) -> SourceRow:
        declared = usual(FLAGSHIP, 0, 60, tasks=1)
        return SourceRow(
            key=key, tenant="t", submit=5, work=60, tasks=1, gpus_per_task=8, declared=declared, after=after
        )  # fmt: skip

    first = Source(title="One", sizes=())
    lay_over(first, Source(title="The other", sizes=(), origin=2, rows=[row("a", None), row("b", "a")]))
    assert [(one.key, one.after, one.submit) for one in first.rows] == [
        ("the-other-a", None, 3),
        ("the-other-b", "the-other-a", 3),
    ]


def test_real_gangs_on_a_real_log() -> None:
    recipe = TraceRecipe(
        log=shared_file("sample_elasticflow_c04_2000.csv"),
        tenants="cluster04",
        on_top=shared_file("acme_kalos_completed_training.csv"),
        gpus=1024,
        days="0:7",
    )
    trace = make_trace(recipe)
    assert {job.workload.allocation for job in trace.jobs} == {"org/cluster04", "org/Pretrain", "org/SFT_or_Other"}
    assert encode_trace(make_trace(recipe)) == encode_trace(trace)


def test_tenants_and_second_logs_belong_to_logs(log: Path) -> None:
    for recipe in (TraceRecipe(gpus=64, tenants="x"), TraceRecipe(gpus=64, on_top=log)):
        with pytest.raises(SnapshotError, match="no effect"):
            make_trace(recipe)
