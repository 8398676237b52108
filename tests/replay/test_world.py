"""What happens in a replay, event by event, on traces small enough to work out by hand. Ticks come every 10 s."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from allocator.domain import Decision, Snapshot, Start, UsageRecord
from allocator.domain.trace import Maintenance, Outage, Revision
from allocator.replay import Idling, ReplayError, ReplayOptions, Simulator, plain_decision
from tests.builders import HOUR, budget
from tests.replay.play import START, Told, job, play, run_of, told, trace


def test_an_arrival_waits_for_the_tick_and_its_successor_for_the_tick_after_its_end() -> None:
    # a comes at 3, starts at 10, ends at 110 (a tick); b has waited since 4 for its GPUs.
    simulator = play(trace(job("a", 3), job("b", 4)))
    assert told(simulator) == [("a", 10, 110, "completed"), ("b", 110, 210, "completed")]
    assert simulator.world.lives["b"].queued == 106
    # Decisions: at the start, at 10 (both have come), 110 and 210 (an end each). No tick costs anything without a change.
    assert [row.now - START for row in simulator.epochs] == [0, 10, 110, 210]


def test_gpus_stand_idle_from_an_end_to_the_next_tick() -> None:
    simulator = play(trace(job("a", 0, work=95), job("b", 0)))
    assert told(simulator) == [("a", 0, 95, "completed"), ("b", 100, 200, "completed")]
    (root,) = [row for row in simulator.world.hours if row.allocation == ""]
    assert (root.charged, root.idle, root.share) == (8 * 195, 8 * (3600 - 195), 8 * 3600)
    assert (root.demand, root.waiting) == (8 * (95 + 200), 8 * 100)


def test_what_runs_at_the_end_is_cut() -> None:
    simulator = play(trace(job("a", 0, work=5000)))
    assert told(simulator) == [("a", 0, 3600, "cut")]
    life = simulator.world.lives["a"]
    assert (life.progress, life.ended, life.outcome) == (3600, None, None)


def test_checkpoints_cost_time_and_save_work() -> None:
    # Checkpoints at 60, 120, ...: 10 s each. Stopped at 100: the work up to 60 is saved (50 s), 40 s are lost.
    # Back at 200, restart 20 s, 450 s of work to go; useful per minute 50 s, the first minute 30.
    one = job("a", work=500, checkpoint_interval=60, checkpoint_cost=10, restart_time=20)
    simulator = play(trace(one), Told(stops={100: ["a"]}, back=100))
    first, second = run_of(simulator, "a"), run_of(simulator, "a", 2)
    assert (first.work, first.checkpoint, first.lost, first.ended_by) == (90, 10, 40, "share")
    # 30 s in the first minute, then 8 full minutes of 50 s make 430, then 20 s: 60 + 8 * 60 + 20.
    assert (second.start - START, second.end - START) == (200, 200 + 560)
    assert (second.restart, second.checkpoint, second.work, second.lost) == (20, 90, 450, 0)
    life = simulator.world.lives["a"]
    assert (life.worked, life.lost, life.stops, life.queued) == (540, 40, 1, 100)


def test_work_that_checkpoints_on_notice_loses_nothing() -> None:
    simulator = play(trace(job("a", work=300, checkpoint_on_notice=True)), Told(stops={100: ["a"]}, back=50))
    assert told(simulator) == [("a", 0, 100, "share"), ("a", 150, 350, "completed")]
    assert simulator.world.lives["a"].lost == 0


def test_work_that_cannot_resume_begins_anew() -> None:
    simulator = play(trace(job("a", work=300, resumable=False)), Told(stops={100: ["a"], 250: ["a"]}, back=50))
    assert told(simulator) == [("a", 0, 100, "share"), ("a", 150, 250, "share"), ("a", 300, 600, "completed")]
    life = simulator.world.lives["a"]
    assert (life.worked, life.lost, life.progress) == (500, 200, 300)


def test_the_stop_is_told_to_the_policy_as_apply_tells_it() -> None:
    seen: list[Snapshot] = []

    class Watching(Told):
        def decide(self, snapshot: Snapshot, previous: Decision | None) -> Decision:
            seen.append(snapshot)
            return super().decide(snapshot, previous)

    play(trace(job("a", work=300)), Watching(stops={100: ["a"]}, back=50))
    (work,) = next(snapshot for snapshot in seen if snapshot.now == START + 150).workloads
    assert work.preempted == 1
    assert work.submit_time == START
    assert work.stopped is not None
    assert (work.stopped.at, work.stopped.charged, work.stopped.placement) == (START + 100, True, {"n1": 1})


def test_an_early_failure_ends_the_job_for_good() -> None:
    simulator = play(trace(job("a", work=500, fails_after=40)))
    assert told(simulator) == [("a", 0, 40, "failed")]
    assert simulator.world.lives["a"].outcome == "failed"


def test_a_resume_may_fail_before_one_succeeds() -> None:
    # Two resumes take their restart of 15 s and die; the job waits for the next tick each time.
    one = job("a", work=200, failing_resumes=2, restart_time=15, checkpoint_on_notice=True)
    simulator = play(trace(one), Told(stops={100: ["a"]}, back=20))
    assert told(simulator) == [
        ("a", 0, 100, "share"),
        ("a", 120, 135, "resume_failed"),
        ("a", 140, 155, "resume_failed"),
        ("a", 160, 275, "completed"),
    ]
    assert [row.restart for row in simulator.world.runs] == [0, 15, 15, 15]


def test_the_segments_of_a_campaign_run_one_after_the_other() -> None:
    simulator = play(trace(job("a", 0), job("b", 5, after="a"), job("c", 500, after="b"), num_nodes=3))
    assert told(simulator) == [("a", 0, 100, "completed"), ("b", 100, 200, "completed"), ("c", 500, 600, "completed")]
    # The wait of a segment begins when it may come: b at 100, not at 5.
    assert [simulator.world.lives[name].submit - START for name in "abc"] == [0, 100, 500]


def test_a_dead_node_kills_what_runs_there_and_comes_back() -> None:
    # The node dies at 33; the work since the checkpoint at 30 is lost, and 7 s pass before anybody takes the job off.
    one = job("a", work=100, checkpoint_interval=30)
    simulator = play(trace(one, outages=(Outage(node="n1", start=START + 33, end=START + 205),)))
    assert told(simulator) == [("a", 0, 40, "node_down"), ("a", 210, 280, "completed")]
    first = run_of(simulator, "a")
    assert (first.work, first.lost, first.dead) == (33, 3, 7)
    # Schedulable: until 40 (a dead node counts until it is empty), and from 205 on.
    (root,) = [row for row in simulator.world.hours if row.allocation == ""]
    assert root.share == 8 * (40 + 3600 - 205)


def test_a_node_that_is_back_before_the_tick_has_killed_its_work_all_the_same() -> None:
    simulator = play(trace(job("a", work=100), outages=(Outage(node="n1", start=START + 33, end=START + 36),)))
    assert told(simulator) == [("a", 0, 36, "crashed"), ("a", 40, 140, "completed")]


def test_outages_of_one_node_may_overlap() -> None:
    outages = (Outage(node="n1", start=START, end=START + 50), Outage(node="n1", start=START + 20, end=START + 90))
    assert told(play(trace(job("a"), outages=outages))) == [("a", 90, 190, "completed")]


def test_a_drain_takes_nothing_new_and_what_is_left_at_the_deadline_needs_a_person() -> None:
    drain = Maintenance(node="n1", announced=START + 20, deadline=START + 60, end=START + 200)
    simulator = play(trace(job("a", work=100, checkpoint_on_notice=True), job("b", 30), maintenance=(drain,), num_nodes=2))
    assert told(simulator) == [
        ("a", 0, 60, "person"),
        ("b", 30, 130, "completed"),
        ("a", 130, 170, "completed"),
    ]
    assert sum(row.drains_by_hand for row in simulator.epochs) == 1
    assert simulator.world.lives["a"].stops == 1


def test_a_drain_without_a_deadline_takes_nothing_new_and_hurries_nobody() -> None:
    drain = Maintenance(node="n1", announced=START + 20, deadline=None, end=START + 200)
    simulator = play(trace(job("a", work=150), job("b", 30, work=50), maintenance=(drain,)))
    assert told(simulator) == [("a", 0, 150, "completed"), ("b", 200, 250, "completed")]
    assert not any(row.drains_by_hand for row in simulator.epochs)


def test_an_announced_drain_takes_work_until_its_deadline() -> None:
    drain = Maintenance(node="n1", announced=START, deadline=START + 100, end=START + 200, drain=False)
    simulator = play(trace(job("a", 0, work=90), job("b", 0, work=50), maintenance=(drain,)))
    assert told(simulator) == [("a", 0, 90, "completed"), ("b", 90, 100, "person"), ("b", 200, 250, "completed")]


def test_a_revision_in_mid_period_changes_the_shares_and_holds_back_what_has_no_budget() -> None:
    later = (budget("a", 3), budget("c", 1))
    revision = Revision(at=START + 1800, budgets=later)
    jobs = (job("a", 0, work=3000), job("b", 10, allocation="b"), job("c", 20, allocation="c", work=50))
    simulator = play(trace(*jobs, revisions=(revision,)))
    assert told(simulator) == [("a", 0, 3000, "completed"), ("c", 3000, 3050, "completed")]
    assert list(simulator.world.held_back) == ["b"]
    shares = [(row.start - START, row.allocation, row.share) for row in simulator.world.hours if row.allocation == "a"]
    assert shares == [(0, "a", 8 * 1800 // 2), (1800, "a", 8 * 1800 * 3 // 4)]


@pytest.mark.parametrize(("idling", "end"), [(Idling.NEVER, 100), (Idling.PROMISE, 150), (Idling.ALWAYS, 400)])
def test_a_session_holds_its_gpus_where_the_policy_lets_it(idling: Idling, end: int) -> None:
    simulator = play(trace(job("a", work=100, idle=300), job("b", 0)), Told(idling=idling, promise=150))
    assert told(simulator)[0] == ("a", 0, end, "completed")
    assert run_of(simulator, "a").parked == end - 100
    assert run_of(simulator, "b").start - START == end


def test_an_idle_session_that_is_stopped_is_over() -> None:
    simulator = play(trace(job("a", work=100, idle=3000), job("b", 0)), Told(stops={200: ["a"]}, back=1000))
    assert told(simulator) == [("a", 0, 200, "share"), ("b", 200, 300, "completed")]
    assert simulator.world.lives["a"].outcome == "completed"
    assert run_of(simulator, "a").parked == 100


def test_an_idle_session_whose_node_dies_is_over() -> None:
    outage = Outage(node="n1", start=START + 205, end=START + 207)
    simulator = play(trace(job("a", work=100, idle=3000), outages=(outage,)))
    assert told(simulator) == [("a", 0, 207, "completed")]
    assert (run_of(simulator, "a").parked, run_of(simulator, "a").dead) == (105, 2)


def test_a_gang_that_is_spread_is_slower() -> None:
    # Two nodes in racks of one node each: the fewest possible is 2 racks, so that nothing is lost.
    slow = {"rack": Fraction(1, 5)}
    assert told(play(trace(job("a", gpus=16), num_nodes=2, per_rack=1, slowdown=slow)))[0][2] == 100
    # Racks of two: n1 is taken, so that the gang lies on n2 and n3, one rack too many: 4/5 of the speed.
    jobs = (job("z", 0, work=3000), job("a", 10, gpus=16))
    simulator = play(trace(*jobs, num_nodes=3, per_rack=2, slowdown=slow))
    assert told(simulator)[0] == ("a", 10, 135, "completed")
    assert (run_of(simulator, "a").slow, run_of(simulator, "a").excess_domains) == (25, 1)


def test_a_promise_that_is_broken_is_counted() -> None:
    simulator = play(trace(job("a", work=300)), Told(stops={100: ["a"]}, back=50, promise=200))
    assert [row.broken for row in simulator.world.runs] == [True, False]


def test_a_decision_that_cannot_be_carried_out_is_refused_with_place_and_time() -> None:
    class Wrong(Told):
        def decide(self, snapshot: Snapshot, previous: Decision | None) -> Decision:
            start = Start(workload="a", placement={"n1": 2}, charged=False, protected_until=None)
            return plain_decision(snapshot, self.name, [start])

    with pytest.raises(ReplayError, match=rf"at {START}: the policy: gang: a: 2 of its 1 tasks are placed"):
        play(trace(job("a")), Wrong())


def test_a_decision_for_another_instant_is_refused() -> None:
    class Late(Told):
        def decide(self, snapshot: Snapshot, previous: Decision | None) -> Decision:
            return replace(super().decide(snapshot, previous), now=snapshot.now - 1)

    with pytest.raises(ReplayError, match="decides for"):
        play(trace(job("a")), Late())


def test_books_that_do_not_balance_are_an_error() -> None:
    def tamper(simulator: Simulator) -> None:
        simulator.world.fleet.idle["h100"] += 1
        simulator.world.see_fleet()

    with pytest.raises(ReplayError, match=rf"at {START + HOUR}: pool h100: assigned .* schedulable GPU-seconds"):
        play(trace(job("a", 5), hours=2), on_tick=tamper)


def test_work_that_is_counted_twice_is_an_error() -> None:
    def tamper(simulator: Simulator) -> None:
        simulator.world.lives["a"].worked += 1

    with pytest.raises(ReplayError, match="a: worked 101 s, lost 0 s, but holds 100 s of progress"):
        play(trace(job("a")), on_tick=tamper)


def test_the_policy_sees_what_was_used_before_and_since() -> None:
    seen: list[Snapshot] = []

    class Watching(Told):
        def decide(self, snapshot: Snapshot, previous: Decision | None) -> Decision:
            seen.append(snapshot)
            return super().decide(snapshot, previous)

    before = UsageRecord(id="old", allocation="b", pool="h100", gpus=8, start=START - 100, end=START - 50)
    play(trace(job("a"), usage=(before,)), Watching())
    assert {(row.allocation, row.gpus * (row.end - row.start)) for row in seen[-1].usage} == {("a", 800), ("b", 400)}


def test_a_replay_may_stop_before_the_trace_does() -> None:
    simulator = Simulator(trace(job("a", work=900), hours=2), Told(), ReplayOptions(tick=10, until=START + 600))
    simulator.run()
    assert simulator.now == START + 600
    assert told(simulator) == [("a", 0, 600, "cut")]
