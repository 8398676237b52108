"""What a record tells of single runs and nodes, on histories of a few looks."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from allocator.domain import (
    Cluster,
    Decision,
    Node,
    Preemption,
    Run,
    Snapshot,
    SolverReport,
    Start,
    StopReason,
    UsageRecord,
    Workload,
)
from allocator.generate.recorded_nodes import ABSENT, NodeHistory
from allocator.generate.recorded_runs import WorkHistory
from allocator.generate.recorded_work import jobs_of
from tests.builders import HOUR, LEVELS, NOW, job, node, stopped

SOLVER = SolverReport(rung="greedy", engine="greedy", status="", objective=0, bound=None, gap=None, terms={}, seed=0)


def runs(work: Workload, since: int | None, **fields: Any) -> Workload:
    """The workload running on n1."""
    start = None if since is None else NOW + since
    return replace(work, run=Run(placement={"n1": 1}, charged=fields.pop("charged", True), start_time=start, **fields))


def usage(key: str, start: int, end: int) -> UsageRecord:
    """The record of a run."""
    start, end = NOW + start, NOW + end
    return UsageRecord(id=f"{key}@{start}-{end}", allocation="a", pool="h100", gpus=8, start=start, end=end)


class Looks:
    """A history, told in seconds since NOW."""

    def __init__(self) -> None:
        self.history = WorkHistory(NOW)

    def look(self, at: int, *works: Workload, usage: tuple[UsageRecord, ...] = (), **rows: Any) -> None:
        cluster = Cluster(levels=LEVELS, nodes=(node("n1"),))
        snapshot = Snapshot(now=NOW + at, cluster=cluster, budgets=(), workloads=works, usage=usage)
        self.history.see(snapshot, Decision(now=NOW + at, snapshot="", solver=SOLVER, **rows))

    def spells(self, key: str, end: int) -> list[tuple[int, int, bool]]:
        return [(spell.begin - NOW, spell.end - NOW, spell.known) for spell in self.history.spells(key, NOW + end)]

    def work(self, end: int) -> dict[str, int]:
        jobs = jobs_of(self.history, NOW, NOW + end, {"a"}, Counter())
        return {one.workload.id: one.work for one in jobs}


W = job("w", restart_time=30, min_runtime=0)
OTHER = job("x", min_runtime=0)
START = Start(workload="w", placement={"n1": 1}, charged=True, protected_until=None)


def stop(lost: int = 0) -> Preemption:
    return Preemption(workload="w", reason=StopReason.SHARE, beneficiaries=(), lost_gpu_seconds=lost, stop_by=NOW)


def test_a_promoted_run_is_one_run() -> None:
    looks = Looks()
    looks.look(0, runs(W, 0, charged=False))
    looks.look(20, runs(W, 0, charged_since=NOW + 10), usage=(usage("w", 0, 10),))
    looks.look(30, usage=(usage("w", 0, 10), usage("w", 10, 25)))
    assert looks.spells("w", 100) == [(0, 25, True)]


def test_a_promotion_that_was_not_seen_is_passed_over() -> None:
    looks = Looks()
    looks.look(10, runs(W, 0, charged=False))
    looks.look(30, usage=(usage("w", 0, 10), usage("w", 10, 25)))
    assert looks.spells("w", 100) == [(0, 25, True)]


def test_a_run_that_begins_where_another_ended_is_another() -> None:
    looks = Looks()
    looks.look(10, runs(W, 0))
    looks.look(30, runs(W, 20), usage=(usage("w", 0, 20),))
    looks.look(40, usage=(usage("w", 0, 20), usage("w", 20, 36)))
    assert looks.spells("w", 100) == [(0, 20, True), (20, 36, True)]


def test_a_run_between_two_looks_is_known_by_its_usage_or_by_the_decision_that_starts_it() -> None:
    looks = Looks()
    looks.look(10, W, replace(W, id="v"), starts=(START, replace(START, workload="v")))
    looks.look(30, usage=(usage("w", 12, 25),))
    assert looks.spells("w", 100) == [(12, 25, True)]
    assert looks.spells("v", 100) == [(10, 30, False)]
    assert looks.work(100) == {"w": 13, "v": 20}


def test_what_was_started_and_then_seen_waiting_did_not_run() -> None:
    looks = Looks()
    looks.look(10, W, starts=(START,))
    looks.look(20, W)
    looks.look(30)
    assert looks.spells("w", 100) == []
    assert looks.work(100) == {}


def test_a_start_that_is_still_to_come_is_no_run() -> None:
    looks = Looks()
    looks.look(0, runs(W, 60))
    looks.look(10)
    assert looks.spells("w", 100) == []


def test_what_is_left_of_a_stopped_run_is_no_run() -> None:
    looks = Looks()
    looks.look(10, runs(W, 0), preemptions=(stop(),))
    leaving = runs(stopped(W, NOW + 10), 19, charged=False, terminating_until=NOW + 80)
    looks.look(20, leaving, usage=(usage("w", 0, 10),))
    looks.look(30, stopped(W, NOW + 10), usage=(usage("w", 0, 10),))
    assert looks.spells("w", 100) == [(0, 10, True)]


def test_a_run_without_a_start_is_dated_from_when_it_was_seen() -> None:
    looks = Looks()
    looks.look(10, runs(W, None))
    looks.look(20, runs(W, None))
    looks.look(30)
    assert looks.spells("w", 100) == [(10, 30, False)]


def test_a_stop_that_was_carried_out_is_an_end_and_what_it_lost_is_known() -> None:
    looks = Looks()
    looks.look(100, runs(W, 0), preemptions=(stop(lost=8 * 40),))
    looks.look(110, stopped(W, NOW + 100))
    looks.look(120, runs(stopped(W, NOW + 100), 115))
    looks.look(300)
    assert looks.spells("w", 400) == [(0, 100, True), (115, 300, False)]
    assert looks.work(400) == {"w": 100 - 40 + (300 - 115) - 30}


def test_a_stop_that_nobody_carried_out_changes_nothing() -> None:
    looks = Looks()  # a rehearsal beside the scheduler in charge
    looks.look(100, runs(W, 0), preemptions=(stop(lost=8 * 100),))
    looks.look(200, runs(W, 0))
    looks.look(210)
    assert looks.work(400) == {"w": 210}


@pytest.mark.parametrize(
    ("fields", "lost"),
    [
        ({"resumable": False}, 100),
        ({"resumable": True, "checkpoint_interval": 30}, 10),
        ({"resumable": True, "checkpoint_interval": None}, 100),
    ],
)
def test_what_a_run_loses_that_comes_back_by_itself_is_estimated_by_its_checkpoints(fields: dict[str, Any], lost: int) -> None:
    work = replace(W, **fields)
    looks = Looks()
    looks.look(90, runs(work, 0))
    looks.look(110, work, usage=(usage("w", 0, 100),))
    looks.look(200, runs(work, 150), usage=(usage("w", 0, 100),))
    looks.look(400, usage=(usage("w", 0, 100), usage("w", 150, 350)))
    assert looks.work(500) == {"w": 100 - lost + 200 - 30}


def test_the_time_before_the_span_is_not_played_again_even_if_it_was_lost() -> None:
    work = replace(W, resumable=False)
    looks = Looks()
    looks.look(10, runs(work, -1000), preemptions=(stop(lost=8 * 1010),))
    looks.look(20, stopped(work, NOW + 10))
    looks.look(30, runs(stopped(work, NOW + 10), 30))
    looks.look(3030)
    # it takes 3000 s less the restart, of which a run that nobody stops has done 1000 before
    assert looks.work(4000) == {"w": 3000 - 30 - 1000}


def test_what_has_not_ended_takes_as_long_again_or_as_the_others() -> None:
    others = [job(f"o{number}") for number in range(3)]
    limited = job("limited", min_runtime=0, max_runtime=50)
    patient = job("patient", min_runtime=9 * HOUR)
    looks = Looks()
    looks.look(0, *(runs(one, 0) for one in others))
    done = tuple(usage(f"o{number}", 0, 60 + number) for number in range(3))
    looks.look(100, runs(W, -60), OTHER, limited, patient, usage=done)
    assert looks.work(100)["w"] == 2 * 160 - 60
    assert {key: work for key, work in looks.work(100).items() if key not in ("w", "o0", "o1", "o2")} == {
        "x": 61,
        "limited": 50,
        "patient": 9 * HOUR,
    }


def test_where_nothing_has_ended_what_waits_takes_an_hour() -> None:
    looks = Looks()
    looks.look(0, OTHER)
    looks.look(10, OTHER)
    assert looks.work(10) == {"x": HOUR}


def test_a_limit_is_no_reason_to_do_less_than_was_done() -> None:
    looks = Looks()
    looks.look(0, runs(replace(W, max_runtime=50), 0))
    looks.look(80, runs(replace(W, max_runtime=50), 0))
    assert looks.work(80) == {"w": 81}


def test_work_of_an_allocation_that_is_nowhere_is_left_out() -> None:
    looks = Looks()
    looks.look(0, runs(replace(W, allocation="gone"), 0))
    looks.look(80)
    assert looks.work(80) == {}


def nodes_of(*looks: tuple[int, tuple[Node, ...]], end: int) -> NodeHistory:
    history = NodeHistory(NOW)
    for at, shown in looks:
        history.see(Cluster(levels=LEVELS, nodes=shown), NOW + at)
    history.close(NOW + end)
    return history


def spans(history: NodeHistory) -> list[tuple[str, int, int, str | None]]:
    return [(one.node, one.start - NOW, one.end - NOW, one.reason) for one in history.outages]


def wishes(history: NodeHistory) -> list[tuple[int, int | None, int, bool]]:
    return [
        (one.announced - NOW, None if one.deadline is None else one.deadline - NOW, one.end - NOW, one.drain)
        for one in history.maintenance
    ]


UP, DRAIN, DOWN = node("n1"), node("n1", state="drain"), node("n1", state="down", reason="dead")


def test_nodes_that_come_go_and_die() -> None:
    other = node("n2")
    history = nodes_of((0, (UP,)), (10, (other, DOWN)), (20, (other, UP)), (30, (UP,)), (40, (UP,)), end=40)
    assert spans(history) == [("n2", 0, 10, ABSENT), ("n1", 10, 20, "dead"), ("n2", 30, 41, ABSENT)]
    assert list(history.nodes) == ["n1", "n2"]


def test_a_node_that_is_down_from_the_start_is_up_as_such() -> None:
    history = nodes_of((0, (DOWN,)), (10, (UP,)), end=20)
    assert spans(history) == [("n1", 0, 10, "dead")]
    assert history.nodes == {"n1": UP}


def test_a_drain_ends_when_the_node_is_up_again() -> None:
    assert wishes(nodes_of((0, (UP,)), (10, (DRAIN,)), (20, (DOWN,)), (30, (UP,)), end=40)) == [(10, None, 30, True)]
    assert wishes(nodes_of((0, (UP,)), (10, (DRAIN,)), end=40)) == [(10, None, 41, True)]


def test_a_maintenance_is_one_whatever_state_its_node_goes_through() -> None:
    announced = node("n1", drain_deadline=NOW + 20)
    due = node("n1", state="drain", drain_deadline=NOW + 20)
    history = nodes_of((0, (UP,)), (10, (announced,)), (20, (due,)), (30, (UP,)), end=40)
    assert wishes(history) == [(10, 20, 30, False)]
    overdue = nodes_of((30, (due,)), (40, (UP,)), end=50)
    assert wishes(overdue) == [(30, 30, 40, True)]
    drained_before = nodes_of((0, (announced,)), (10, (due,)), (30, (UP,)), end=40)
    assert wishes(drained_before) == [(0, 20, 30, True)]


def test_a_deadline_that_never_came_is_none() -> None:
    announced = node("n1", drain_deadline=NOW + 500)
    drained = node("n1", state="drain", drain_deadline=NOW + 500)
    called_off = nodes_of((0, (announced,)), (30, (UP,)), end=40)
    assert (wishes(called_off), called_off.called_off) == ([], 1)
    assert wishes(nodes_of((0, (drained,)), (30, (UP,)), end=40)) == [(0, None, 30, True)]
    assert wishes(nodes_of((0, (drained,)), end=40)) == [(0, 500, 501, True)]


def test_of_a_node_that_changes_its_size_the_most_is_played() -> None:
    small, large = node("n1", gpus=4, cpus=64, memory_gib=100), node("n1", gpus=8, cpus=32)
    history = nodes_of((0, (small,)), (10, (large,)), end=20)
    assert history.nodes == {"n1": node("n1", gpus=8, cpus=64)}
    assert history.changed == {"n1"}
    assert nodes_of((0, (large,)), (10, (large,)), end=20).changed == set()
