"""The next snapshot: what a decision does, that doing it twice changes nothing, and that no GPU-second is lost or invented."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator import transition
from allocator.domain import (
    Allocation,
    Cluster,
    Decision,
    LastStop,
    Node,
    Preemption,
    Promotion,
    Reason,
    Renewal,
    Reservation,
    Run,
    Snapshot,
    SnapshotError,
    SolverReport,
    Start,
    StopReason,
    UsageRecord,
    WaitingRow,
    Workload,
)

NOW = 1_764_430_000
HOUR = 3600
REPORT = SolverReport(rung="greedy", engine="greedy", status="feasible", objective=0, bound=None, gap=None, terms={}, seed=0)
NODES = tuple(Node(name=f"n{i}", pool="h100" if i < 3 else "b200", gpus=8, domains=("c",)) for i in range(1, 5))


def work(key: str, run: Run | None = None, **more: object) -> Workload:
    base = Workload(
        id=key, allocation="A", submit_time=NOW - 2 * HOUR, tasks=2, gpus_per_task=4, min_runtime=HOUR, resumable=True, run=run
    )
    return replace(base, **more)  # type: ignore[arg-type]


def running(key: str, since: int = HOUR, *, charged: bool = True, node: str = "n1", **more: object) -> Workload:
    until = NOW + HOUR if charged else None
    return work(key, Run(placement={node: 2}, charged=charged, start_time=NOW - since, protected_until=until), **more)


def snapshot(*works: Workload, **more: object) -> Snapshot:
    budgets = (Allocation(id="A", parent=None, share=Fraction(1)),)
    base = Snapshot(now=NOW, cluster=Cluster(levels=("cluster", "node"), nodes=NODES), budgets=budgets, workloads=works)
    return replace(base, **more).canonical()  # type: ignore[arg-type]


def decision(**rows: object) -> Decision:
    return replace(Decision(now=NOW, snapshot="sha256:0", solver=REPORT), **rows)  # type: ignore[arg-type]


def stop(key: str, reason: StopReason = StopReason.SHARE) -> Preemption:
    return Preemption(workload=key, reason=reason, beneficiaries=(), lost_gpu_seconds=0, stop_by=NOW)


def start(key: str, node: str = "n1", *, charged: bool = True, express: bool = False) -> Start:
    until = NOW + HOUR if charged else None
    return Start(workload=key, placement={node: 2}, charged=charged, protected_until=until, express=express)


def waits(key: str, reason: Reason = Reason.NO_CAPACITY, since: int | None = None) -> WaitingRow:
    return WaitingRow(workload=key, reason=reason, not_before=None, never=False, detail="", entitled_since=since)


def the(state: Snapshot, key: str = "w") -> Workload:
    return next(found for found in state.workloads if found.id == key)


def test_a_stopped_workload_waits_again_and_what_it_took_becomes_usage() -> None:
    after = transition.apply(snapshot(running("w", preempted=1)), decision(preemptions=(stop("w"),)), 300)
    found = the(after)
    assert (found.run, found.preempted, found.submit_time) == (None, 2, NOW - 2 * HOUR)
    assert found.stopped == LastStop(at=NOW, pool="h100", gpus=8, charged=True, placement={"n1": 2})
    assert after.usage == (
        UsageRecord(id=f"w@{NOW - HOUR}-{NOW}", allocation="A", pool="h100", gpus=8, start=NOW - HOUR, end=NOW, charged=True),
    )
    assert after.now == NOW + 300


def test_a_charged_start_is_dated_and_promised() -> None:
    run = the(transition.apply(snapshot(work("w")), decision(starts=(start("w", express=True),)), 60)).run
    assert run == Run(
        placement={"n1": 2},
        charged=True,
        start_time=NOW,
        charged_since=NOW,
        granted_at=NOW,
        protected_until=NOW + HOUR,
        express=True,
    )


def test_an_uncharged_start_has_no_promise() -> None:
    run = the(transition.apply(snapshot(work("w")), decision(starts=(start("w", charged=False),)), 60)).run
    assert run == Run(placement={"n1": 2}, charged=False, start_time=NOW)


def test_a_promotion_leaves_the_time_so_far_uncharged() -> None:
    row = Promotion(workload="w", protected_until=NOW + HOUR)
    after = transition.apply(snapshot(running("w", charged=False)), decision(promotions=(row,)))
    run = the(after).run
    assert run is not None
    assert (run.charged, run.start_time, run.charged_since, run.granted_at) == (True, NOW - HOUR, NOW, NOW)
    assert [(record.start, record.end, record.charged) for record in after.usage] == [(NOW - HOUR, NOW, False)]
    stopped = transition.apply(replace(after, now=NOW + 60), decision(now=NOW + 60, preemptions=(stop("w"),)))
    assert [(record.start, record.end, record.charged) for record in stopped.usage] == [
        (NOW - HOUR, NOW, False),
        (NOW, NOW + 60, True),
    ]


def test_a_renewal_moves_the_promise_only() -> None:
    before = snapshot(running("w"))
    after = transition.apply(before, decision(renewals=(Renewal(workload="w", protected_until=NOW + 9 * HOUR),)))
    run = the(before).run
    assert run is not None
    assert the(after).run == replace(run, granted_at=NOW, protected_until=NOW + 9 * HOUR)


def test_a_relocation_is_a_stop_and_a_start() -> None:
    rows = decision(preemptions=(stop("w", StopReason.RELOCATE),), starts=(start("w", "n2"),))
    after = transition.apply(snapshot(running("w")), rows)
    found = the(after)
    assert found.run is not None
    assert found.stopped is not None
    assert (dict(found.run.placement), found.run.start_time) == ({"n2": 2}, NOW)
    assert (found.preempted, found.stopped.at, found.stopped.placement) == (1, NOW, {"n1": 2})
    assert transition.apply(after, rows) == after


def test_a_restart_on_a_node_that_dies_in_the_same_second_is_stopped_all_the_same() -> None:
    moved = transition.apply(
        snapshot(running("w")), decision(preemptions=(stop("w", StopReason.RELOCATE),), starts=(start("w", "n2"),))
    )
    after = transition.apply(moved, decision(preemptions=(stop("w", StopReason.NODE_DOWN),)))
    assert the(after).run is None
    assert the(after).preempted == 2


def test_a_victim_leaves_when_it_was_told_to_and_one_that_is_overdue_stays() -> None:
    def leaving(until: int) -> Workload:
        found = running("w")
        assert found.run is not None
        return replace(found, run=replace(found.run, terminating_until=until))

    gone = transition.apply(snapshot(leaving(NOW + 60)), decision(), 300)
    assert the(gone).run is None
    assert [(record.start, record.end) for record in gone.usage] == [(NOW - HOUR, NOW + 60)]
    assert the(transition.apply(snapshot(leaving(NOW + 60)), decision(), 59)).run is not None
    assert the(transition.apply(snapshot(leaving(NOW - 1)), decision(), 300)).run is not None


def test_a_run_without_a_start_time_is_dated_when_it_is_first_seen() -> None:
    unknown = work("w", Run(placement={"n1": 2}, charged=True))
    run = the(transition.apply(snapshot(unknown), decision(), 60)).run
    assert run is not None
    assert run.start_time == NOW


def test_checkpoints_advance_with_the_clock_and_not_without() -> None:
    base = snapshot(running("w", since=4000, checkpoint_interval=1800))
    for advance, want in ((0, None), (1, NOW - 400), (1400, NOW + 1400)):
        run = the(transition.apply(base, decision(), advance)).run
        assert run is not None
        assert run.last_checkpoint == want


def test_reservations_of_gangs_that_wait_are_carried_over_and_mark_them() -> None:
    held = [
        Reservation(workload=key, pool="h100", domain=("c",), nodes=2, start=NOW + HOUR, eligible_since=NOW - 60, bound=NOW)
        for key in ("v", "w")
    ]
    rows = decision(reservations=tuple(held), starts=(start("v"),))
    after = transition.apply(snapshot(work("v"), work("w")), rows, 60)
    assert after.reservations == (held[1],)
    assert the(after, "w").entitled_since == NOW - 60


def test_the_mark_of_a_gang_lasts_until_it_runs_or_has_no_funds() -> None:
    marked = snapshot(work("w", entitled_since=NOW - 60))
    begun = decision(starts=(start("w"),))
    assert the(transition.apply(marked, begun)).entitled_since == NOW - 60, "a second call at the same instant must see it"
    assert the(transition.apply(marked, begun, 60)).entitled_since is None
    assert the(transition.apply(marked, decision(waiting=(waits("w"),)), 60)).entitled_since == NOW - 60
    assert the(transition.apply(marked, decision(waiting=(waits("w", Reason.UNFUNDED),)), 60)).entitled_since is None
    fresh = transition.apply(snapshot(work("w")), decision(waiting=(waits("w", since=NOW),)), 60)
    assert the(fresh).entitled_since == NOW


def test_work_that_ends_by_itself_leaves_its_usage() -> None:
    after = transition.finish(snapshot(running("w"), work("v"), running("u", node="n2")), "w", "v")
    assert [found.id for found in after.workloads] == ["u"]
    assert [(record.id, record.gpus) for record in after.usage] == [(f"w@{NOW - HOUR}-{NOW}", 8)]


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (decision(starts=(start("ghost"),)), "$.starts[0].workload: ghost is not in the snapshot"),
        (decision(preemptions=(stop("v"),)), "$.preemptions[0].workload: v does not run"),
        (decision(promotions=(Promotion(workload="v", protected_until=NOW),)), "$.promotions[0].workload: v does not run"),
        (decision(starts=(start("w", "n2"),)), "$.starts[0].workload: w runs already"),
        (decision(starts=(start("v", "n9"),)), "$.starts[0].placement: unknown nodes n9"),
        (decision(now=NOW + 1), "later than the snapshot"),
    ],
)
def test_a_decision_that_was_made_for_something_else_is_refused(rows: Decision, problem: str) -> None:
    with pytest.raises(SnapshotError) as caught:
        transition.apply(snapshot(running("w"), work("v")), rows)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("rows", "paths"),
    [
        ({"preemptions": (stop("r"), stop("r"))}, ["$.preemptions[1].workload"]),
        ({"starts": (start("w"), start("w", "n2"))}, ["$.starts[1].workload"]),
        (
            {"preemptions": (stop("r"),), "promotions": (Promotion(workload="r", protected_until=NOW),)},
            ["$.promotions[0].workload"],
        ),
        (
            {"preemptions": (stop("r"),), "renewals": (Renewal(workload="r", protected_until=NOW),) * 2},
            ["$.renewals[0].workload", "$.renewals[1].workload"],
        ),
    ],
)
def test_a_decision_that_contradicts_itself_is_refused(rows: dict[str, object], paths: list[str]) -> None:
    with pytest.raises(SnapshotError) as caught:
        transition.apply(snapshot(work("w"), running("r")), decision(**rows))
    assert [issue.path for issue in caught.value.issues] == paths


def test_every_misfit_is_named() -> None:
    with pytest.raises(SnapshotError) as caught:
        transition.apply(snapshot(), decision(starts=(start("a"), start("b", "n9"))), -1)
    assert len(caught.value.issues) == 4


# --- any decision ------------------------------------------------------------------------------------------------------


@st.composite
def epochs(draw: st.DrawFn) -> tuple[Snapshot, Decision]:
    """Work in every state, and a decision that does something to each of it that may be done."""
    works, rows = [], _Rows()
    for index in range(draw(st.integers(1, 6))):
        key, node = f"w{index}", f"n{draw(st.integers(1, 4))}"
        run = draw(st.none() | runs(node))
        works.append(work(key, run, checkpoint_interval=draw(st.none() | st.just(900)), preempted=draw(st.integers(0, 3))))
        rows.draw_for(draw, key, run)
    history = UsageRecord(id="old", allocation="A", pool="h100", gpus=4, start=NOW - 9 * HOUR, end=NOW - 8 * HOUR)
    return snapshot(*works, usage=(history,)), rows.decision()


@st.composite
def runs(draw: st.DrawFn, node: str) -> Run:
    charged = draw(st.booleans())
    begun = draw(st.none() | st.integers(-2 * HOUR, HOUR))
    since = draw(st.integers(begun, HOUR)) if charged and begun is not None and draw(st.booleans()) else None
    return Run(
        placement={node: 2},
        charged=charged,
        start_time=None if begun is None else NOW + begun,
        charged_since=None if since is None else NOW + since,
        terminating_until=draw(st.none() | st.integers(NOW - 60, NOW + 600)) if begun is not None and begun < 0 else None,
    )


class _Rows:
    """Rows of a decision while it is drawn."""

    def __init__(self) -> None:
        self.starts: list[Start] = []
        self.stops: list[Preemption] = []
        self.promotions: list[Promotion] = []
        self.renewals: list[Renewal] = []

    def draw_for(self, draw: st.DrawFn, key: str, run: Run | None) -> None:
        deed = draw(st.sampled_from(["nothing", "start"] if run is None else ["nothing", "stop", "move", "promise"]))
        if deed in ("stop", "move"):
            self.stops.append(stop(key))
        if deed in ("start", "move"):
            self.starts.append(start(key, f"n{draw(st.integers(1, 4))}", charged=draw(st.booleans())))
        if deed == "promise" and run is not None and run.charged:
            self.renewals.append(Renewal(workload=key, protected_until=NOW + HOUR))
        if deed == "promise" and run is not None and not run.charged:
            self.promotions.append(Promotion(workload=key, protected_until=NOW + HOUR))

    def decision(self) -> Decision:
        return decision(
            starts=tuple(self.starts),
            preemptions=tuple(self.stops),
            promotions=tuple(self.promotions),
            renewals=tuple(self.renewals),
        )


def gpu_seconds(state: Snapshot, *, charged: bool | None = None) -> int:
    """What was used up to `now`, in records and in running work."""
    total = sum(record.gpus * (record.end - record.start) for record in state.usage if charged in (None, record.charged))
    for found in state.workloads:
        if found.run is not None and charged in (None, found.run.charged):
            total += found.gpus * max(0, state.now - _since(found.run, state.now))
    return total


def _since(run: Run, now: int) -> int:
    if run.charged_since is not None:
        return run.charged_since
    return now if run.start_time is None else run.start_time


@given(epochs())
def test_doing_it_twice_changes_nothing(epoch: tuple[Snapshot, Decision]) -> None:
    before, rows = epoch
    once = transition.apply(before, rows)
    assert transition.apply(once, rows) == once


@given(epochs(), st.integers(0, 2 * HOUR))
def test_gpu_seconds_are_neither_lost_nor_invented(epoch: tuple[Snapshot, Decision], advance: int) -> None:
    before, rows = epoch
    at_once = transition.apply(before, rows)
    assert gpu_seconds(at_once) == gpu_seconds(before)
    promoted = {row.workload for row in rows.promotions}
    free = sum(
        found.gpus * max(0, NOW - _since(found.run, NOW))
        for found in before.workloads
        if found.id in promoted and found.run is not None
    )
    assert gpu_seconds(at_once, charged=False) >= free, "a promotion charges nothing of what was free"
    later = transition.apply(before, rows, advance)
    passed = sum(found.gpus * _runs_for(found.run, advance) for found in at_once.workloads if found.run is not None)
    assert gpu_seconds(later) == gpu_seconds(before) + passed


def _runs_for(run: Run, advance: int) -> int:
    """Seconds of the next `advance` in which the run holds its GPUs."""
    end = NOW + advance
    if run.terminating_until is not None and NOW < run.terminating_until <= end:
        end = run.terminating_until
    return max(0, end - max(NOW, _since(run, NOW)))


@given(epochs(), st.integers(1, HOUR), st.integers(1, HOUR))
def test_time_may_pass_in_steps(epoch: tuple[Snapshot, Decision], first: int, second: int) -> None:
    before, rows = epoch
    steps = transition.apply(transition.apply(before, rows, first), decision(now=NOW + first), second)
    assert steps == transition.apply(before, rows, first + second)


@given(epochs(), st.integers(0, HOUR))
def test_the_input_is_left_alone(epoch: tuple[Snapshot, Decision], advance: int) -> None:
    before, rows = epoch
    kept = repr(before)
    transition.apply(before, rows, advance)
    assert repr(before) == kept
