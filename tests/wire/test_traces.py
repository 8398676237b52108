"""Traces: what is read is what was written, and a broken one names all that is wrong with it."""

from __future__ import annotations

import gzip
import json
import random
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from allocator.domain import Allocation, Cluster, Node, SnapshotError, TopologyWish, UsageRecord, Workload
from allocator.domain.trace import Job, Maintenance, Outage, Revision, Trace
from allocator.wire import decode_trace, encode_trace, load_trace, trace_schema

Json = dict[str, Any]
START = 1_764_547_200


def workload(key: str, submit: int = 0, **fields: Any) -> Workload:
    asked = {"allocation": "eval", "tasks": 2, "gpus_per_task": 8, "min_runtime": 3600, "resumable": True}
    return Workload(**{"id": key, "submit_time": START + submit, **asked, **fields})


def tree(share: Fraction = Fraction(1)) -> tuple[Allocation, ...]:
    return (
        Allocation(id="eval", parent="org", share=share),
        Allocation(id="org", parent=None, share=Fraction(1)),
        Allocation(id="train", parent="org", share=Fraction(1, 10)),
    )


def trace(*jobs: Job, **fields: Any) -> Trace:
    nodes = tuple(Node(name=f"n{number}", pool="h100", gpus=8, domains=("east",)) for number in range(1, 4))
    whole = {
        "name": "two days",
        "start": START,
        "end": START + 172_800,
        "cluster": Cluster(levels=("cluster", "node"), nodes=nodes, slowdown={"cluster": Fraction(1, 100)}),
        "budgets": tree(),
        "jobs": jobs,
        "usage": (UsageRecord(allocation="eval", pool="h100", gpus=8, start=START - 90, end=START, id="r1"),),
        "outages": (Outage(node="n1", start=START + 5, end=START + 50, reason="fan"),),
        "maintenance": (Maintenance(node="n2", announced=START, deadline=START + 60, end=START + 90, drain=False),),
        "revisions": (Revision(at=START + 86_400, budgets=tree(Fraction(3)), author="council"),),
        "notes": ("made by hand",),
    }
    return Trace(**{**whole, **fields})


WHOLE = trace(
    Job(workload=workload("a", topology=TopologyWish(preferred="cluster")), work=600, fails_after=60, checkpoint_cost=20),
    Job(workload=workload("b", 10, allocation="train"), work=900, after="a", failing_resumes=1, idle=3_600),
)


def document(change: Any = None) -> Json:
    value: Json = json.loads(encode_trace(WHOLE))
    if change is not None:
        change(value)
    return value


def issues(value: Json) -> list[str]:
    with pytest.raises(SnapshotError) as caught:
        decode_trace(json.dumps(value).encode())
    return [str(issue) for issue in caught.value.issues]


def test_what_is_written_is_read() -> None:
    data = encode_trace(WHOLE)
    assert decode_trace(data) == WHOLE
    assert load_trace(gzip.compress(data)) == WHOLE
    assert Draft202012Validator(trace_schema()).is_valid(json.loads(data))


def test_the_order_of_the_lists_does_not_matter() -> None:
    """Nodes, budgets, jobs of one second: whatever order they come in, the bytes are the same."""
    ties = tuple(Job(workload=workload(f"w{number:02}"), work=number + 1) for number in range(20))
    whole = trace(*ties)
    shuffled = list(ties)
    random.Random(7).shuffle(shuffled)
    other = replace(
        whole,
        jobs=tuple(shuffled),
        budgets=whole.budgets[::-1],
        cluster=replace(whole.cluster, nodes=whole.cluster.nodes[::-1]),
    )
    assert encode_trace(other) == encode_trace(whole)
    assert [job.work for job in decode_trace(encode_trace(other)).jobs] == list(range(1, 21))


spans = st.integers(min_value=1, max_value=10**6)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 10**5), spans, st.integers(0, 9), st.one_of(st.none(), st.integers(1, 100)), st.integers(0, 10**4)
        ),
        max_size=12,
    )
)
def test_round_trip(rows: list[tuple[int, int, int, int | None, int]]) -> None:
    jobs = [
        Job(
            workload=workload(f"j{number}", submit),
            work=work,
            failing_resumes=resumes,
            fails_after=None if fails is None else min(fails, work),
            idle=idle,
            after=f"j{number - 1}" if number % 3 == 2 else None,
        )
        for number, (submit, work, resumes, fails, idle) in enumerate(rows)
    ]
    jobs.sort(key=lambda job: (job.workload.submit_time, job.workload.id))
    whole = trace(*jobs)
    data = encode_trace(whole)
    assert decode_trace(data) == whole
    assert encode_trace(decode_trace(data)) == data


@pytest.mark.parametrize(
    ("change", "path", "word"),
    [
        (lambda doc: doc.update(end=START), "$.end", "after the start"),
        (lambda doc: doc["usage"][0].update(end=START + 1), "$.usage[0].end", "history"),
        (lambda doc: doc["jobs"][1]["workload"].update(id="a"), "$.jobs[1].workload.id", "given before"),
        (lambda doc: doc["jobs"][0]["workload"].update(tasks=9), "$.jobs[?@.workload.id=='a'].workload.tasks", "72 GPUs"),
        (lambda doc: doc["jobs"][0]["workload"].update(allocation="evil"), "].workload.allocation", '"eval"'),
        (lambda doc: doc["jobs"][0]["workload"].update(allocation="org"), "].workload.allocation", "leaf"),
        (
            lambda doc: doc["jobs"][0]["workload"].update(run={"placement": {"n1": 2}, "charged": True}),
            "$.jobs[0].workload.run",
            "leave the run out",
        ),
        (lambda doc: doc["jobs"][0].update(fails_after=601), "$.jobs[0].fails_after", "601 s of 600 s"),
        (lambda doc: doc["jobs"][0].update(work=0), "$.jobs[0].work", "from 1"),
        (lambda doc: doc["jobs"][0].update(worc=1), "$.jobs[0].worc", "work"),
        (lambda doc: doc["jobs"][1].update(after="zz"), "$.jobs[1].after", "unknown job"),
        (lambda doc: doc["jobs"][0].update(after="b"), "$.jobs[0].after", '"a" -> "b" -> "a"'),
        (lambda doc: doc["jobs"][1].update(after="b"), "$.jobs[1].after", '"b" -> "b"'),
        (lambda doc: doc["outages"][0].update(node="m1"), "$.outages[0].node", '"n1"'),
        (lambda doc: doc["outages"][0].update(end=START + 5), "$.outages[0].end", "not after"),
        (lambda doc: doc["maintenance"][0].update(deadline=START - 1), "$.maintenance[0].deadline", "before `announced`"),
        (lambda doc: doc["maintenance"][0].update(end=START + 60), "$.maintenance[0].end", "not after"),
        (lambda doc: doc["maintenance"][0].pop("deadline"), "$.maintenance[0].deadline", "without a deadline and a drain"),
        (
            lambda doc: doc["maintenance"][0].update(deadline=None, drain=True, end=START),
            "$.maintenance[0].end",
            "is not after `announced`",
        ),
        (lambda doc: doc["revisions"].append(doc["revisions"][0]), "$.revisions[1].at", "one tree"),
        (lambda doc: doc["revisions"][0]["budgets"][0].update(parent="x"), "$.revisions[0].budgets[0].parent", "unknown"),
        (lambda doc: doc["budgets"][2].update(id="eval"), "$.budgets[2].id", "given before"),
        (lambda doc: doc["cluster"]["nodes"][0].update(domains=[]), "$.cluster.nodes[0].domains", "0 domains"),
        (lambda doc: doc.update(version=2), "$.version", "1"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(change: Any, path: str, word: str) -> None:
    found = issues(document(change))
    assert any(path in issue.split(": ")[0] and word in issue for issue in found), found


def test_all_that_is_wrong_is_named_at_once() -> None:
    def change(doc: Json) -> None:
        doc.update(end=START)
        doc["outages"][0].update(node="m1")
        doc["jobs"][0]["workload"].update(pools=["tpu"])

    assert [issue.split(": ")[0] for issue in issues(document(change))] == [
        "$.jobs[?@.workload.id=='a'].workload.pools",
        "$.end",
        "$.outages[0].node",
    ]


def test_a_leaf_may_come_with_a_revision() -> None:
    later = Revision(at=START + 9, budgets=(*tree(), Allocation(id="new", parent="org", share=Fraction(1))))
    job = Job(workload=workload("a", 10, allocation="new"), work=60)
    whole = trace(job, revisions=(later,))
    assert decode_trace(encode_trace(whole)).jobs == (job,)
    assert "$.jobs[?@.workload.id=='a'].workload.allocation" in issues(json.loads(encode_trace(trace(job))))[0]


@pytest.mark.parametrize("data", [b"", b"[]", b'{"version": 1,', b"[" * 100_000])
def test_what_is_no_document_is_refused(data: bytes) -> None:
    with pytest.raises(SnapshotError, match=r"\$"):
        decode_trace(data)


def test_a_value_that_the_format_forbids_is_not_written() -> None:
    with pytest.raises(SnapshotError, match=r"\$\.jobs"):
        encode_trace(trace(Job(workload=workload("a"), work=-1)))
