"""Traces that contradict themselves are refused with everything that is wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from allocator.domain import SnapshotError, UsageRecord
from allocator.domain.trace import Maintenance, Outage, Revision, Trace
from allocator.replay.check import check_trace
from tests.builders import budget, running
from tests.replay.play import START, job, trace


def issues(what: Trace) -> list[str]:
    with pytest.raises(SnapshotError) as caught:
        check_trace(what)
    return [str(issue) for issue in caught.value.issues]


def test_a_good_trace_passes() -> None:
    check_trace(trace(job("a"), job("b", after="a"), job("c", after="b")))


def test_every_problem_is_named() -> None:
    placed = job("placed")
    placed = replace(placed, workload=replace(placed.workload, run=running("x", "a", {"n1": 1}).run))
    record = UsageRecord(id="r", allocation="a", pool="h100", gpus=1, start=START - 5, end=START + 5)
    found = issues(
        trace(
            job("a", after="b"),
            job("b", after="a"),
            job("c", after="nobody"),
            job("d", work=0),
            job("e", idle=-1),
            job("f", checkpoint_interval=20, checkpoint_cost=20),
            job("g", allocation="p"),
            job("twice"),
            job("twice", 5),
            placed,
            budgets=(budget("p"), budget("a", parent="p")),
            outages=(Outage(node="n9", start=START, end=START + 1),),
            maintenance=(Maintenance(node="n1", announced=START, deadline=START + 9, end=START + 9),),
            revisions=(Revision(at=START - 1, budgets=(budget("a"),)),),
            usage=(record, record),
        )
    )
    for part in (
        "'a'].after: waits for its own end", "'b'].after: waits for its own end", "unknown job 'nobody'", "at least 1 s",
        "is negative", "20 s of every 20 s", "'p' is a leaf of no budget tree", "'twice'] stands" , "has not started",
        "'n9' is no node", "'n1' is no node, or not announced <= deadline < end", "is before the start", "more than once",
        "is after the start",
    ):  # fmt: skip
        assert any(part.replace("] stands", "]: stands") in issue for issue in found), part


def test_a_trace_that_ends_before_it_starts() -> None:
    assert "is not after the start" in issues(replace(trace(), end=START))[0]
